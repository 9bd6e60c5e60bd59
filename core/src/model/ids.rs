//! Identifiers: a prefix that names the kind of resource, and 22 random characters (131 bits).

use std::fmt;
use std::str::FromStr;

use crate::model::random::{self, RandomError};

/// The string is not an identifier of the expected kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of this kind")]
pub struct MalformedId;

fn is_well_formed(text: &str, prefix: &str) -> bool {
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
            #[doc = concat!("Returns a new identifier: `", $prefix, "` and 22 random characters.")]
            pub fn random() -> Result<Self, RandomError> {
                Ok(Self(format!("{}{}", $prefix, random::base62(22)?)))
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

ids! {
    /// The id of an organization.
    OrgId = "org_";
    /// The id of an API key. It is not the secret.
    KeyId = "key_";
    /// The id of a user.
    UserId = "usr_";
    /// The id of a session. It is not the token.
    SessionId = "ses_";
    /// The id of an invite.
    InviteId = "inv_";
    /// The id of a job.
    JobId = "job_";
    /// The id of an upload.
    UploadId = "upl_";
    /// The id of a worker process, from its start to its exit.
    WorkerId = "wrk_";
    /// The id of a request, as in the header `X-Request-Id`.
    RequestId = "req_";
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
