//! API keys.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::error::Result;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::secret::{Secret, SecretKind};
use crate::model::timestamp::Timestamp;
use crate::model::validation;

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    /// `key_…`
    pub id: KeyId,
    /// The organization that owns it; not its creator's.
    pub org_id: OrgId,
    /// As its creator named it.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// Leading characters of the secret, for recognition only.
    #[schema(pattern = "^svc_live_[0-9A-Za-z]{4}$")]
    pub prefix: String,
    /// Who made it.
    pub created_by: UserId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last used, to about a minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked. A revoked key is listed for 90 days, or as the operator sets it.
    pub revoked_at: Option<Timestamp>,
}

/// What a new key is to be.
#[derive(ToSchema)]
pub struct ApiKeyCreate {
    /// For people: what the key is for.
    #[schema(value_type = validation::Text, example = "ci")]
    pub name: String,
}

/// Answer of the creation of a key: the only one that holds the secret.
#[derive(Serialize, ToSchema)]
pub struct ApiKeyCreated {
    /// The key.
    #[serde(flatten)]
    pub api_key: ApiKey,
    /// The full secret. It is in no other answer.
    #[schema(pattern = "^svc_live_[0-9A-Za-z]{38}$", format = Password)]
    pub key: String,
}

/// A page of keys, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKeys {
    /// Keys of the organization, revoked ones too.
    #[schema(max_items = 200)]
    pub keys: Vec<ApiKey>,
    /// Where the next page begins; null at the end.
    pub next_cursor: Option<Cursor>,
}

/// How many live keys an organization may have.
pub const LIVE_MAX: i64 = 100;

/// A key that is about to be stored.
pub struct NewKey {
    /// Its id.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub created_by: UserId,
    /// Its secret.
    pub secret: Secret,
}

impl NewKey {
    /// A new key with a fresh id and secret.
    pub fn random(name: String, created_by: UserId) -> Result<Self> {
        Ok(Self {
            id: KeyId::random()?,
            name,
            created_by,
            secret: Secret::random(SecretKind::ApiKey)?,
        })
    }
}
