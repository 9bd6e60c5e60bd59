//! Identifiers: a prefix that says what a thing is, and 22 random characters (131 bits).

use std::fmt;
use std::str::FromStr;

use crate::model::error::Result;
use crate::model::random;

/// A text that is not an identifier of the wanted kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of this kind")]
pub struct MalformedId;

fn well_formed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        (1..=40).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, sqlx::Type)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("A new identifier, `", $prefix, "` and 22 random characters.")]
            pub fn random() -> Result<Self> {
                Ok(Self(format!("{}{}", $prefix, random::base62(22)?)))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = MalformedId;
            fn from_str(text: &str) -> Result<Self, MalformedId> {
                if well_formed(text, $prefix) { Ok(Self(text.to_owned())) } else { Err(MalformedId) }
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

ids! {
    /// An organization.
    OrgId = "org_";
    /// An API key (not its secret).
    KeyId = "key_";
    /// A person.
    UserId = "usr_";
    /// A session (not its token).
    SessionId = "ses_";
    /// An invite.
    InviteId = "inv_";
    /// A job.
    JobId = "job_";
    /// An upload.
    UploadId = "upl_";
    /// A process that scores, from its start to its end.
    WorkerId = "wrk_";
    /// One request, as the header `X-Request-Id` names it.
    RequestId = "req_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_and_other_kinds_are_refused() {
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
}
