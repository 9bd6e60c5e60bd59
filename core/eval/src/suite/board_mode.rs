//! A suite's board.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The times at which a suite's board shows figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BoardMode {
    /// The suite has no board; the default.
    #[default]
    Off,
    /// Entries' figures appear while the board is open.
    Live,
    /// Figures appear once, after the board has closed.
    AtClose,
}

impl BoardMode {
    /// Returns the name in `suite.toml` and in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Live => "live",
            Self::AtClose => "at_close",
        }
    }
}

impl FromStr for BoardMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        [Self::Off, Self::Live, Self::AtClose]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or("expected one of: off, live, at_close")
    }
}

impl fmt::Display for BoardMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for BoardMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
