//! Device logins: a program that has no browser gets an API key, which a user approves in their own
//! browser. The flow follows RFC 8628.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::error::{Error, Result};
use crate::model::ids::{DeviceLoginId, KeyId, OrgId, UserId};
use crate::model::key::ApiKeyCreated;
use crate::model::random::{self, RandomError};
use crate::model::scope::Scopes;
use crate::model::secret::{Secret, SecretHash, SecretKind};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

/// The time in which a login must be approved and its key fetched.
pub const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The time after the key's creation in which it can be fetched again, if the response was
/// lost.
pub const REPEAT_WINDOW: Duration = Duration::from_secs(60);

/// The fewest seconds between two polls by a program.
pub const POLL_INTERVAL_SECONDS: u32 = 5;

/// User code characters. They have no vowels, so that no code is a word, and none
/// is taken for another one.
const USER_CODE_CHARACTERS: &[u8; 20] = b"3479CDFHJKMNPQRTVWXY";

/// A user code's character count: 34 bits. They live for [`LIFETIME`], and a user can try
/// few.
const USER_CODE_LENGTH: usize = 8;

/// The code that a user enters or confirms in a browser, shown as `KXQW-7TPM`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCode(String);

impl UserCode {
    /// Creates a random code.
    pub fn random() -> Result<Self, RandomError> {
        random::characters(USER_CODE_CHARACTERS, USER_CODE_LENGTH).map(Self)
    }

    /// Reads a code as a user types it: in any case, with or without the hyphen. Returns `None` if
    /// it is none.
    pub fn read(text: &str) -> Option<Self> {
        let is_ignored = |letter: &char| letter.is_whitespace() || *letter == '-';
        let letters = text.chars().filter(|letter| !is_ignored(letter));
        let letters: String = letters
            .take(USER_CODE_LENGTH + 1)
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        let is_code = letters.len() == USER_CODE_LENGTH
            && letters
                .bytes()
                .all(|byte| USER_CODE_CHARACTERS.contains(&byte));
        is_code.then_some(Self(letters))
    }

    /// Returns the hash that is stored instead of the code.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl fmt::Display for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = self.0.split_at(USER_CODE_LENGTH / 2);
        write!(f, "{first}-{second}")
    }
}

/// A new device login with its codes.
// Without `Debug`, so that the codes cannot be logged.
#[derive(Serialize, ToSchema)]
pub struct DeviceLogin {
    /// The secret with which the program polls, `svc_devc_` and 38 letters or digits. No other
    /// response contains it.
    #[schema(pattern = "^svc_devc_[0-9A-Za-z]{38}$", format = Password)]
    pub device_code: String,
    /// The code that the user confirms in a browser.
    #[schema(pattern = "^[3479CDFHJKMNPQRTVWXY]{4}-[3479CDFHJKMNPQRTVWXY]{4}$")]
    pub user_code: String,
    /// The URL of the page on which the user enters the code.
    #[schema(format = "uri")]
    pub verification_url: String,
    /// The URL of the same page with the code.
    #[schema(format = "uri")]
    pub verification_url_complete: String,
    /// The smallest number of seconds between two polls.
    #[schema(minimum = 1)]
    pub interval: i64,
    /// The time at which the codes expire, 10 minutes after the request.
    pub expires_at: Timestamp,
}

text_enum! {
    /// A device login's state.
    pub enum DeviceLoginStatus {
        /// No user has decided yet. Poll again after the interval.
        Pending = "pending",
        /// A user has approved the login. `api_key` is the key.
        Granted = "granted",
        /// A user has denied the login, or may no longer create keys of the organization.
        Denied = "denied",
    }
}

/// The result of a poll.
// Without `Debug`, so that the key cannot be logged.
#[derive(Serialize, ToSchema)]
pub struct DeviceLoginResult {
    /// The state of the login.
    pub status: DeviceLoginStatus,
    /// The new API key with its secret. Null unless the login is granted.
    pub api_key: Option<ApiKeyCreated>,
}

/// A login as the user sees it who approves or denies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The name that the program has given itself.
    pub client_name: String,
    /// The program's address: for IPv6 the first 64 bits.
    pub address: String,
    /// The request's time.
    pub created_at: Timestamp,
    /// The time at which the codes expire.
    pub expires_at: Timestamp,
}

/// A login's approval: the key that its next poll creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The key's organization.
    pub org_id: OrgId,
    /// The user who has approved the login.
    pub approved_by: UserId,
    /// The name of the key.
    pub name: String,
    /// The key's scopes.
    pub scopes: Scopes,
    /// The time from which the key is not valid.
    pub expires_at: Option<Timestamp>,
}

/// The key that a login has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The key's organization.
    pub org_id: OrgId,
    /// The id of the key.
    pub key_id: KeyId,
    /// The creation time.
    pub granted_at: Timestamp,
}

/// A stored login's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceState {
    /// No user has decided.
    Pending,
    /// A user has denied it.
    Denied,
    /// A user has approved it, and no poll has created the key.
    Approved(Approval),
    /// A poll has created the key, which can still be fetched.
    Granted(Grant),
    /// Its time is over.
    Ended,
}

/// A stored login, without its codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLogin {
    /// The login's id.
    pub id: DeviceLoginId,
    /// The part that the user sees.
    pub request: DeviceRequest,
    /// The last poll's time.
    pub polled_at: Option<Timestamp>,
    /// `true` if a user has denied it.
    pub is_denied: bool,
    /// The approval, if a user has approved it.
    pub approval: Option<Approval>,
    /// The key, if a poll has created it.
    pub grant: Option<Grant>,
}

impl StoredLogin {
    /// Returns the state at the time `now`.
    pub fn state(&self, now: Timestamp) -> DeviceState {
        let Self {
            request,
            is_denied,
            approval,
            grant,
            ..
        } = self;
        let window = i64::try_from(REPEAT_WINDOW.as_micros()).unwrap_or(i64::MAX);
        match (grant, approval) {
            (Some(grant), _) if now < grant.granted_at.plus_micros(window) => {
                DeviceState::Granted(grant.clone())
            }
            (Some(_), _) => DeviceState::Ended,
            (None, _) if request.expires_at <= now => DeviceState::Ended,
            (None, _) if *is_denied => DeviceState::Denied,
            (None, Some(approval)) => DeviceState::Approved(approval.clone()),
            (None, None) => DeviceState::Pending,
        }
    }

    /// Returns an error if a poll at the time `now` comes too early after the one before.
    ///
    /// # Errors
    /// 429 with the seconds that are left.
    pub fn check_interval(&self, now: Timestamp) -> Result<()> {
        let interval = i64::from(POLL_INTERVAL_SECONDS) * 1_000_000;
        let next = self.polled_at.map(|at| at.plus_micros(interval));
        match next.map(|next| now.seconds_until(next)) {
            None | Some(0) => Ok(()),
            Some(seconds) => Err(Error::polled_too_fast(POLL_INTERVAL_SECONDS, seconds)),
        }
    }
}

/// Returns the secret for the key that a login creates. The program's device code determines it, so
/// that a lost response can be repeated although only hashes are stored.
pub fn key_secret(device_code: &str, id: &DeviceLoginId) -> Result<Secret> {
    Secret::derived(SecretKind::ApiKey, device_code, id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_code_is_read_as_it_is_typed() {
        let code = UserCode::random().unwrap();
        let shown = code.to_string();
        assert_eq!((shown.len(), shown.as_bytes()[4]), (9, b'-'));
        for text in [
            shown.clone(),
            shown.to_lowercase(),
            shown.replace('-', ""),
            format!(" {} ", shown.replace('-', " - ")),
        ] {
            assert!(UserCode::read(&text) == Some(code.clone()), "{text}");
        }
        let longer = format!("{shown}3");
        for bad in [
            "",
            "KXQW-7TP",
            "KXQW-7TP0",
            "KXQW_7TPM",
            "ＫXQW-7TPM",
            &longer,
        ] {
            assert!(UserCode::read(bad).is_none(), "{bad}");
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH.plus_micros(seconds * 1_000_000)
    }

    fn login() -> StoredLogin {
        StoredLogin {
            id: DeviceLoginId::random().unwrap(),
            request: DeviceRequest {
                client_name: "assay".into(),
                address: "192.0.2.1".into(),
                created_at: at(0),
                expires_at: at(600),
            },
            polled_at: None,
            is_denied: false,
            approval: None,
            grant: None,
        }
    }

    #[test]
    fn login_ends_with_its_lifetime_or_a_minute_after_its_key() {
        let pending = login();
        let approval = Approval {
            org_id: OrgId::random().unwrap(),
            approved_by: UserId::random().unwrap(),
            name: "laptop".into(),
            scopes: Scopes::All,
            expires_at: None,
        };
        let grant = Grant {
            org_id: approval.org_id.clone(),
            key_id: KeyId::random().unwrap(),
            granted_at: at(590),
        };
        let denied = StoredLogin {
            is_denied: true,
            ..login()
        };
        let approved = StoredLogin {
            approval: Some(approval.clone()),
            ..login()
        };
        let granted = StoredLogin {
            grant: Some(grant.clone()),
            ..approved.clone()
        };
        for (login, expected) in [
            (&pending, DeviceState::Pending),
            (&denied, DeviceState::Denied),
            (&approved, DeviceState::Approved(approval)),
        ] {
            assert_eq!(login.state(at(599)), expected);
            assert_eq!(login.state(at(600)), DeviceState::Ended);
        }
        assert_eq!(granted.state(at(649)), DeviceState::Granted(grant));
        assert_eq!(granted.state(at(650)), DeviceState::Ended);
    }

    #[test]
    fn early_poll_waits_for_the_rest_of_the_interval() {
        let polled = StoredLogin {
            polled_at: Some(at(100)),
            ..login()
        };
        assert!(login().check_interval(at(0)).is_ok());
        assert!(polled.check_interval(at(105)).is_ok());
        let early = polled.check_interval(at(101)).unwrap_err();
        assert_eq!(early.retry_after, Some(4));
    }
}
