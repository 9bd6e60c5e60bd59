//! The access to a suite.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The organizations that may submit to a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Every organization; the default.
    Everyone,
    /// Organizations with a verified domain.
    VerifiedDomain,
    /// Organizations that the operator has granted access.
    Granted,
}

impl Access {
    /// Returns the name in `suite.toml` and in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everyone => "everyone",
            Self::VerifiedDomain => "verified_domain",
            Self::Granted => "granted",
        }
    }
}

impl FromStr for Access {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        [Self::Everyone, Self::VerifiedDomain, Self::Granted]
            .into_iter()
            .find(|access| access.as_str() == text)
            .ok_or("expected one of: everyone, verified_domain, granted")
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Access {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
