//! The one page of the api: where the link in a mail leads to.
//!
//! It is a page and not an answer of `/v1`, because a mail scanner that follows links must not use the link up: only its
//! button sends the token, which stands behind a `#` and so never reaches a server by itself. The page asks nobody but
//! this api for anything.

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

/// Nothing but the two parts that are in the page itself, and requests to this api.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |part: &str| STANDARD.encode(Sha256::digest(part));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// The page's route.
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
