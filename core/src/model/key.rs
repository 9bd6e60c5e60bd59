//! API keys: their representation without the secret, and their creation.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::secret::{Secret, SecretKind};
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    /// The id of the key.
    pub id: KeyId,
    /// The id of the organization that owns the key. The key does not belong to the user who
    /// created it.
    pub org_id: OrgId,
    /// The name of the key.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The first characters of the secret, for recognition: `svc_live_` and 4 letters or digits.
    #[schema(pattern = "^svc_live_[0-9A-Za-z]{4}$")]
    pub prefix: String,
    /// The id of the user who created the key.
    pub created_by: UserId,
    /// The time at which the key was created.
    pub created_at: Timestamp,
    /// The time at which the key was last used, exact to about a minute. Null if it was never used.
    pub last_used_at: Option<Timestamp>,
    /// The time at which the key was revoked. Null for live keys. A revoked key is listed for 90
    /// days, unless the operator sets another time.
    pub revoked_at: Option<Timestamp>,
}

/// The request body of `POST /v1/keys`.
#[derive(ToSchema)]
pub struct ApiKeyCreate {
    /// The name of the key, for people.
    #[schema(value_type = validation::Text, example = "ci")]
    pub name: String,
}

/// A new API key with its secret. No other response contains the secret.
#[derive(Serialize, ToSchema)]
pub struct ApiKeyCreated {
    /// The key without its secret.
    #[serde(flatten)]
    pub api_key: ApiKey,
    /// The secret, `svc_live_` and 38 letters or digits. No other response contains it.
    #[schema(pattern = "^svc_live_[0-9A-Za-z]{38}$", format = Password)]
    pub key: String,
}

/// One page of API keys, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKeys {
    /// The keys of the page. Revoked keys are included.
    #[schema(max_items = 200)]
    pub keys: Vec<ApiKey>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}

/// Maximum number of live keys of an organization.
pub const LIVE_MAX: i64 = 100;

/// A new key that is not stored yet.
pub struct NewKey {
    /// The id of the key.
    pub id: KeyId,
    /// The name of the key.
    pub name: String,
    /// The user who creates the key.
    pub created_by: UserId,
    /// The secret, of which only the hash is stored.
    pub secret: Secret,
}

impl NewKey {
    /// Creates a key with a random id and secret.
    pub fn random(name: String, created_by: UserId) -> Result<Self> {
        Ok(Self {
            id: KeyId::random()?,
            name,
            created_by,
            secret: Secret::random(SecretKind::ApiKey)?,
        })
    }
}
