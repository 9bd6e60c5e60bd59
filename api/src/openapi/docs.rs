//! `GET /openapi.json`, and `GET /docs`, an interactive page of the document. Neither requires a
//! credential, and the page loads nothing from other servers.

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
use crate::http::not_found::not_found_error;
use crate::http::response_markers::SharedBody;
use crate::rest::extract::Ids;

/// The content security policy of the page. It allows the page's own files and requests to this
/// API. Swagger UI embeds images as data URLs and one style sheet; the hash is of that style sheet.
const POLICY: &str = "default-src 'none'; script-src 'self'; \
                      style-src 'self' 'sha256-RL3ie0nH+Lzz2YNqQN83mnU0J1ot4QL7b99vMdIX99w='; \
                      img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Returns the routes of the document and of the page. They are not operations of the API and have
/// no rpc.
pub fn routes() -> Router<App> {
    Router::new()
        .route("/openapi.json", get(document))
        .route("/docs", get(redirect_to_page))
        .route("/docs/", get(page))
        .route("/docs/{*path}", get(page_file))
}

/// Returns the document. It is the same for every caller, and is generated once because that is
/// slow.
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

/// Redirects to the path with a slash, because the page names its files relative to it.
async fn redirect_to_page() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(LOCATION, "/docs/")]).into_response()
}

async fn page() -> Result<Response, Failure> {
    Ok(file("index.html")?)
}

async fn page_file(Ids([path]): Ids<1>) -> Result<Response, Failure> {
    Ok(file(&path)?)
}

/// Returns a file of Swagger UI.
fn file(path: &str) -> Result<Response> {
    let config = Arc::new(
        Config::from("/openapi.json")
            .validator_url("none")
            .try_it_out_enabled(true),
    );
    let found = utoipa_swagger_ui::serve(path, config)
        .map_err(|error| Error::internal(error.to_string()))?;
    let file = found.ok_or_else(not_found_error)?;
    let mut response = match file.bytes {
        Cow::Borrowed(bytes) => Response::new(Body::from(Bytes::from_static(bytes))),
        // The settings of the page, about 1 KB, are rendered for each request.
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
