//! The page that the sign-in link of an email opens.
//!
//! The link opens a page instead of an operation, because mail scanners follow links and must not
//! use them up. Only the page's button sends the token. The token follows a `#` in the URL, so that
//! browsers do not send it by themselves. The page sends requests to this API only.

use std::sync::LazyLock;

use axum::Router;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use sha2::{Digest as _, Sha256};

use crate::app::App;

const STYLE: &str = include_str!("sign_in.css");
const SCRIPT: &str = include_str!("sign_in.js");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("sign_in.html")
        .replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
});

/// The content security policy. It allows the script and the style of the page, and requests to
/// this API.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |source: &str| STANDARD.encode(Sha256::digest(source));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// Returns the route of the page.
pub fn routes() -> Router<App> {
    Router::new().route("/sign-in", get(sign_in))
}

async fn sign_in() -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(PAGE.as_str()))
}
