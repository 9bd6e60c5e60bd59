//! The pages' theme, which a cookie stores.

use http::HeaderMap;

use super::cookies;

/// The pages' colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// The system's.
    System,
    /// Dark text on a light background.
    Light,
    /// Light text on a dark background.
    Dark,
}

impl Theme {
    /// All themes, in the order in which users choose.
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// Returns a request's theme.
    pub fn of(headers: &HeaderMap) -> Self {
        Self::named(&cookies::read(headers, cookies::THEME).unwrap_or_default())
    }

    /// Returns the theme with a name. Unknown names are the system's.
    pub fn named(name: &str) -> Self {
        match name {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// Returns the theme's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}
