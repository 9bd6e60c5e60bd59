//! Identifiers: a prefix that names the resource kind, and 22 characters, or the name of a suite.

use std::fmt;
use std::str::FromStr;

use crate::model::random::{self, BASE62, RandomError};
use crate::model::timestamp::Timestamp;
use assay_eval::suite::is_suite_id;

pub use assay_eval::suite::is_version;

/// The string is not an identifier with the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of this kind")]
pub struct MalformedId;

fn is_well_formed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        (1..=40).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal, $characters:path;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, sqlx::Type)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Returns a new identifier: `", $prefix, "` and 22 characters.")]
            pub fn random() -> Result<Self, RandomError> {
                Ok(Self(format!("{}{}", $prefix, $characters()?)))
            }

            /// Returns the identifier with its prefix.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;
            fn from_str(text: &str) -> Result<Self, MalformedId> {
                if is_well_formed(text, $prefix) { Ok(Self(text.to_owned())) } else { Err(MalformedId) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                crate::model::openapi_schema::id($prefix)
            }
        }

        impl utoipa::ToSchema for $name {}

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    )*};
}

/// Number of characters after the prefix.
const CHARACTERS: usize = 22;

/// Returns 22 random characters: 131 bits.
fn random_characters() -> Result<String, RandomError> {
    random::base62(CHARACTERS)
}

/// The cell of the installation, a part of ids that begin with the time. If several installations are
/// reached at one address, it names the one that has the row.
const CELL: &str = "00";

/// Returns the time in milliseconds as 8 characters, the cell, and 12 random characters: 71 bits. Byte
/// by byte, later ones are greater.
fn ordered_characters() -> Result<String, RandomError> {
    time_and_random::<8>(Timestamp::now().unix_micros() / 1000)
}

/// Returns the time in microseconds as 9 characters, the cell, and 11 random characters: 65 bits. Byte
/// by byte, later ones are greater.
fn precisely_ordered_characters() -> Result<String, RandomError> {
    time_and_random::<9>(Timestamp::now().unix_micros())
}

/// Returns a time as `TIME` characters, the highest digit first, the cell, and random characters.
fn time_and_random<const TIME: usize>(time: i64) -> Result<String, RandomError> {
    let mut rest = usize::try_from(time).unwrap_or(0);
    let mut digits = [BASE62[0]; TIME];
    for place in digits.iter_mut().rev() {
        *place = BASE62[rest % BASE62.len()];
        rest /= BASE62.len();
    }
    let time: String = digits.iter().copied().map(char::from).collect();
    let random = random::base62(CHARACTERS - TIME - CELL.len())?;
    Ok(format!("{time}{CELL}{random}"))
}

ids! {
    /// An organization's id.
    OrgId = "org_", random_characters;
    /// An API key's id. It is not the secret.
    KeyId = "key_", random_characters;
    /// A user's id.
    UserId = "usr_", random_characters;
    /// A session's id. It is not the token.
    SessionId = "ses_", random_characters;
    /// A device login's id. It is no code.
    DeviceLoginId = "dev_", random_characters;
    /// An invite's id.
    InviteId = "inv_", random_characters;
    /// A job's id. It begins with the time: simultaneous jobs are neighbours in the indexes on
    /// their ids. With random ids, each job would change its own pages in the indexes over millions
    /// of jobs.
    JobId = "job_", ordered_characters;
    /// An audit log entry's id. It begins with the time, which orders the log.
    AuditId = "aud_", precisely_ordered_characters;
    /// The id of an entry of a board.
    EntryId = "ent_", ordered_characters;
    /// The id of an event. The event of a finished job has the characters of the job's id.
    EventId = "evt_", ordered_characters;
    /// The id of a webhook.
    WebhookId = "whk_", random_characters;
    /// The id for an event's delivery to a webhook. It begins with the time, which orders the
    /// delivery list.
    DeliveryId = "dlv_", precisely_ordered_characters;
    /// The id of a draft.
    DraftId = "dft_", ordered_characters;
    /// The id of a grant.
    GrantId = "grt_", ordered_characters;
    /// The id of an upload.
    UploadId = "upl_", ordered_characters;
    /// The id of a score receipt.
    ReceiptId = "rcp_", ordered_characters;
    /// The id of a worker process, from its start to its exit.
    WorkerId = "wrk_", random_characters;
    /// A request's id, as in the header `X-Request-Id`.
    RequestId = "req_", random_characters;
}

/// A suite's id: `suite:` and 1 to 64 lower-case letters, digits, `.`, `_` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, sqlx::Type)]
#[serde(transparent)]
#[sqlx(transparent)]
pub struct SuiteId(String);

impl SuiteId {
    /// Returns the id with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SuiteId {
    type Err = MalformedId;
    fn from_str(text: &str) -> Result<Self, MalformedId> {
        if is_suite_id(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(MalformedId)
        }
    }
}

impl fmt::Display for SuiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl utoipa::PartialSchema for SuiteId {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let description = "`suite:` and 1 to 64 lower-case letters, digits, `.`, `_` or `-`.";
        crate::model::openapi_schema::text(
            description,
            "^suite:[a-z0-9._-]{1,64}$",
            70,
            "suite:lunch",
        )
    }
}

impl utoipa::ToSchema for SuiteId {}

impl From<SuiteId> for String {
    fn from(id: SuiteId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that later ids are greater, and that all have the cell after this many characters of
    /// time.
    fn assert_ordered<Id: ToString>(
        random: fn() -> Result<Id, RandomError>,
        pause: std::time::Duration,
        time: usize,
    ) {
        let ids: Vec<_> = std::iter::repeat_with(|| {
            std::thread::sleep(pause);
            random().unwrap().to_string()
        })
        .take(20)
        .collect();
        assert!(ids.is_sorted(), "{ids:?}");
        for id in ids {
            let (_, characters) = id.split_once('_').unwrap();
            assert_eq!(characters.len(), CHARACTERS, "{id}");
            assert_eq!(&characters[time..time + 2], CELL, "{id}");
        }
    }

    #[test]
    fn ordered_ids_begin_with_time_and_cell() {
        let ms = std::time::Duration::from_millis(2);
        assert_ordered(JobId::random, ms, 8);
        assert_ordered(ReceiptId::random, ms, 8);
        assert_ordered(EntryId::random, ms, 8);
        assert_ordered(UploadId::random, ms, 8);
        assert_ordered(EventId::random, ms, 8);
        let us = std::time::Duration::from_micros(2);
        assert_ordered(AuditId::random, us, 9);
        assert_ordered(DeliveryId::random, us, 9);
    }

    #[test]
    fn id_parses_as_its_own_kind_only() {
        let id = OrgId::random().unwrap();
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert_eq!(id.as_str().parse::<KeyId>(), Err(MalformedId));
        for bad in [
            "",
            "org_",
            "org_a\0",
            "org_a b",
            "org_ä",
            "ORG_a",
            &format!("org_{}", "a".repeat(41)),
        ] {
            assert_eq!(bad.parse::<OrgId>(), Err(MalformedId), "{bad:?}");
        }
    }

    #[test]
    fn suite_ids_are_lower_case() {
        assert!("suite:survivor-votes".parse::<SuiteId>().is_ok());
        for bad in [
            "survivor",
            "suite:",
            "suite:A",
            "suite:a b",
            "suite:ä",
            "Suite:a",
        ] {
            assert!(bad.parse::<SuiteId>().is_err(), "{bad}");
        }
    }
}
