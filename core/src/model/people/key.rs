//! API keys: their representation without the secret, and their creation.

use std::time::Duration;

use assay_eval::FieldError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::error::{Error, Result};
use crate::model::error_details::Resource;
use crate::model::ids::{KeyId, OrgId, UserId};
use crate::model::scope::Scopes;
use crate::model::secret::{Secret, SecretKind};
use crate::model::timestamp::Timestamp;

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
    /// The operations that the key may be used for.
    pub scopes: Scopes,
    /// The id of the user who created the key.
    pub created_by: UserId,
    /// The time at which the key was created.
    pub created_at: Timestamp,
    /// The time from which the key fails with 401. Null if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// The time at which the key was last used, exact to about a minute. Null if it was never used.
    pub last_used_at: Option<Timestamp>,
    /// The address of the client that last used the key: of IPv6 the first 64 bits. Null if the key
    /// was never used.
    pub last_used_address: Option<String>,
    /// The id of the key that this key replaced in a rotation. Null if it replaced none.
    pub replaces: Option<KeyId>,
    /// The id of the key that replaced this key in a rotation. Null if none did.
    pub replaced_by: Option<KeyId>,
    /// The time at which the key was revoked. Null for live keys. A revoked or expired key is
    /// listed for 90 days, unless the operator sets another time.
    pub revoked_at: Option<Timestamp>,
}

/// Number of hours for which a replaced key keeps working, unless the request says otherwise.
pub const OVERLAP_HOURS_DEFAULT: i64 = 24;

/// The most hours for which a replaced key keeps working.
pub const OVERLAP_HOURS_MAX: i64 = 720;

/// Time before a key's expiry in which its responses announce it.
pub const EXPIRY_ANNOUNCED: Duration = Duration::from_secs(14 * 24 * 60 * 60);

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

/// The most live keys per organization.
pub const LIVE_MAX: i64 = 100;

/// A new key that is not stored yet.
pub struct NewKey {
    /// The id of the key.
    pub id: KeyId,
    /// The name of the key.
    pub name: String,
    /// The key's scopes.
    pub scopes: Scopes,
    /// The time from which the key is not valid.
    pub expires_at: Option<Timestamp>,
    /// The key that it replaces.
    pub replaces: Option<KeyId>,
    /// The user who creates the key.
    pub created_by: UserId,
    /// The secret; only its hash is stored.
    pub secret: Secret,
}

impl NewKey {
    /// Creates a key with a random id and secret, which has all scopes and does not expire.
    pub fn random(name: String, created_by: UserId) -> Result<Self> {
        Ok(Self {
            id: KeyId::random()?,
            name,
            scopes: Scopes::All,
            expires_at: None,
            replaces: None,
            created_by,
            secret: Secret::random(SecretKind::ApiKey)?,
        })
    }
}

/// An API key change. Absent fields remain unchanged.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// The new name.
    pub name: Option<String>,
    /// The new scopes.
    pub scopes: Option<Scopes>,
    /// The new expiry.
    pub expires_at: Option<Timestamp>,
    /// The key that replaces it.
    pub replaced_by: Option<KeyId>,
    /// `true` to revoke it.
    pub revoke: bool,
}

/// Validates a key's expiry at the time `now`.
///
/// # Errors
/// If it is not in the future.
pub fn check_expiry(expires_at: Option<Timestamp>, now: Timestamp) -> Result<(), FieldError> {
    if expires_at.is_some_and(|at| at <= now) {
        let message = format!("must be later than the present, {now}");
        return Err(FieldError::new("expires_at", "range", message));
    }
    Ok(())
}

/// Validates a rotation's overlap, and returns it in hours.
///
/// # Errors
/// If it is not from 0 to [`OVERLAP_HOURS_MAX`].
pub fn overlap_hours(value: Option<i64>) -> Result<i64, FieldError> {
    let hours = value.unwrap_or(OVERLAP_HOURS_DEFAULT);
    if (0..=OVERLAP_HOURS_MAX).contains(&hours) {
        Ok(hours)
    } else {
        let message = format!("must be an integer from 0 to {OVERLAP_HOURS_MAX}");
        Err(FieldError::new("overlap_hours", "range", message))
    }
}

impl ApiKey {
    /// Returns an error unless the key is live at the time `now`. `what` is the refused change in
    /// the error: "changed".
    ///
    /// # Errors
    /// 409 if the key was revoked or has expired.
    pub fn ensure_live(&self, now: Timestamp, what: &str) -> Result<()> {
        let reason = match (self.revoked_at, self.expires_at) {
            (Some(at), _) => format!("it was revoked at {at}"),
            (None, Some(at)) if at <= now => format!("it expired at {at}"),
            (None, _) => return Ok(()),
        };
        let message = format!("The key cannot be {what}: {reason}. Create another one.");
        Err(Error::invalid_state(Resource::Key, message))
    }

    /// Validates new scopes and a new expiry, which may only restrict the key further.
    ///
    /// # Errors
    /// The field errors.
    pub fn check_restriction(&self, change: &KeyChange) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(scopes) = &change.scopes
            && !self.scopes.include(scopes)
        {
            let missing = scopes.list().iter();
            let missing: Vec<&str> = missing
                .filter(|scope| !self.scopes.contains(**scope))
                .map(|scope| scope.as_str())
                .collect();
            let message = format!(
                "may only be narrowed, and the key does not have {}; create another key",
                missing.join(", ")
            );
            errors.push(FieldError::new("scopes", "range", message));
        }
        if let (Some(new), Some(present)) = (change.expires_at, self.expires_at)
            && new > present
        {
            let message =
                format!("may only be brought forward, from {present}; rotate the key instead");
            errors.push(FieldError::new("expires_at", "range", message));
        }
        errors
    }

    /// Returns the expiry for a key that replaces this one at the time `now`: it lives as long as
    /// this one from its creation to its expiry.
    pub fn expiry_of_replacement(&self, now: Timestamp) -> Option<Timestamp> {
        let lifetime = self.expires_at?.unix_micros() - self.created_at.unix_micros();
        Some(now.plus_micros(lifetime))
    }

    /// Returns this key's expiry if another one replaces it at the time `now`.
    pub fn expiry_if_replaced(&self, now: Timestamp, overlap_hours: i64) -> Timestamp {
        let end = now.plus_micros(overlap_hours * 3_600_000_000);
        self.expires_at.map_or(end, |present| present.min(end))
    }
}
