//! The origin of a web page, as browsers send it.

use std::str::FromStr;

use http::{HeaderValue, Uri};

/// An origin as browsers write it, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// `*`
    All,
    /// `https://app.example.org`
    One(HeaderValue),
}

impl FromStr for Origin {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "must be a scheme and a host, such as https://app.example.org, or *";
        if text == "*" {
            return Ok(Self::All);
        }
        let uri: Uri = text.parse().map_err(|_| wrong)?;
        let plain = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.host().unwrap_or_default()
        );
        let port = uri
            .port()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        // Browsers write neither a path nor capital letters.
        if uri.scheme().is_none()
            || uri.host().is_none()
            || format!("{plain}{port}").to_ascii_lowercase() != text
        {
            return Err(wrong);
        }
        text.parse().map(Self::One).map_err(|_| wrong)
    }
}
