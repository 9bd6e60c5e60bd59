//! The dashboard's cookies. All have the prefix `__Host-`: no other host, and no page
//! without TLS, can set them.

use std::time::Duration;

use cookie::{Cookie, SameSite};
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// The browser session's token.
pub const SESSION: &str = "__Host-assay_session";

/// The theme that the user chose, `light` or `dark`.
pub const THEME: &str = "__Host-assay_theme";

/// A message that the next page shows once.
pub const NOTICE: &str = "__Host-assay_notice";

/// A new secret that the next page shows once.
pub const SECRET: &str = "__Host-assay_secret";

/// A sign-in with a provider that this browser has started.
pub const FLOW: &str = "__Host-assay_flow";

/// The page to open after the sign-in.
pub const NEXT: &str = "__Host-assay_next";

/// Returns the value of a request's cookie, or `None` if it is absent or empty.
///
/// Only the value is decoded. A browser treats `%5F%5FHost-…` as a name without the prefix, so such a
/// cookie may come from anywhere.
pub fn read(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(COOKIE).into_iter();
    let value = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(Cookie::split_parse)
        .filter_map(Result::ok)
        .find(|cookie| cookie.name() == name && !cookie.value().is_empty())
        .map(|cookie| cookie.value().to_owned())?;
    let decoded = Cookie::parse_encoded(format!("{name}={value}")).ok()?;
    Some(decoded.value().to_owned())
}

/// Returns the `Set-Cookie` header's value that stores a cookie for this time. `None` stores
/// it until the browser is closed.
pub fn store(name: &'static str, value: &str, lifetime: Option<Duration>) -> Option<HeaderValue> {
    let mut cookie = Cookie::build((name, value.to_owned()))
        .path("/")
        .secure(true)
        .http_only(true)
        .same_site(SameSite::Lax);
    if let Some(lifetime) = lifetime {
        cookie = cookie.max_age(cookie::time::Duration::try_from(lifetime).ok()?);
    }
    HeaderValue::try_from(cookie.build().encoded().to_string()).ok()
}

/// Returns the `Set-Cookie` header's value that removes a cookie.
pub fn remove(name: &'static str) -> Option<HeaderValue> {
    store(name, "", Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_name_is_another_cookie() {
        let stored = store(SESSION, "a b;ü", None).unwrap();
        let stored = stored
            .to_str()
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        let planted = SESSION.replacen("__", "%5F%5F", 1);
        let line = format!("{planted}=planted; {stored}; other=x");
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(line).unwrap())]);
        assert_eq!(read(&headers, SESSION).as_deref(), Some("a b;ü"));
        let line = format!("{planted}=planted");
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::try_from(line).unwrap())]);
        assert_eq!(read(&headers, SESSION), None);
    }
}
