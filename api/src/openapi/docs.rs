//! `GET /openapi.json`, and `GET /docs`, a page that shows it. Neither needs a credential nor anything from elsewhere.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use assay_core::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use utoipa_swagger_ui::Config;

use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::not_found::nothing;
use crate::http::response_markers::SharedBody;
use crate::rest::Id;

/// The page loads nothing but its own files and calls nobody but this api. Swagger UI shows small pictures that it
/// carries with it, and writes one style sheet into the page: the hash is that one's.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is no operation of the contract, and has no rpc.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/openapi.json", get(document))
        .route("/docs", get(to_page))
        .route("/docs/", get(page))
        .route("/docs/{*path}", get(part))
}

/// It is the same for every caller, and takes a while to make.
async fn document(State(app): State<App>) -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| {
        super::document(Some(&app.settings.common.git_sha))
            .to_string()
            .into()
    });
    let mut response = ([(CONTENT_TYPE, "application/json")], document.clone()).into_response();
    response.extensions_mut().insert(SharedBody);
    response
}

/// A page's files stand beside it, so it must end with a slash.
async fn to_page() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "/docs/")]).into_response()
}

async fn page() -> Result<Response, Failure> {
    Ok(file("index.html")?)
}

async fn part(Id(path): Id) -> Result<Response, Failure> {
    Ok(file(&path)?)
}

fn file(path: &str) -> Result<Response> {
    let config = Arc::new(
        Config::from("/openapi.json")
            .validator_url("none")
            .try_it_out_enabled(true),
    );
    let found = utoipa_swagger_ui::serve(path, config)
        .map_err(|error| Error::internal(error.to_string()))?;
    let file = found.ok_or_else(nothing)?;
    let mut response = match file.bytes {
        Cow::Borrowed(bytes) => Response::new(Body::from(Bytes::from_static(bytes))),
        // The page's settings, about a kilobyte, are written anew each time.
        Cow::Owned(bytes) => Response::new(Body::from(bytes)),
    };
    response.extensions_mut().insert(SharedBody);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_str(&file.content_type).map_err(Error::internal)?,
    );
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
