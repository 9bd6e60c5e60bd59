//! A web page's origin, as browsers send it.

use std::str::FromStr;

use http::{HeaderValue, Uri};

/// An origin in the form that browsers send, or all origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Every origin, written `*`.
    All,
    /// One origin, such as `https://app.example.org`.
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
        let base = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.host().unwrap_or_default()
        );
        let port = uri
            .port()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        // Browsers send neither a path nor upper case.
        if uri.scheme().is_none()
            || uri.host().is_none()
            || format!("{base}{port}").to_ascii_lowercase() != text
        {
            return Err(wrong);
        }
        text.parse().map(Self::One).map_err(|_| wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_scheme_and_host() {
        for good in [
            "https://app.example.org",
            "http://localhost:3000",
            "http://127.0.0.1:8080",
            "*",
        ] {
            assert!(good.parse::<Origin>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "app.example.org",
            "https://app.example.org/",
            "https://App.example.org",
            "https://a/b",
            "https://*.example.org/x",
        ] {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
