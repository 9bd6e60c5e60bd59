//! The files that pages load: a style sheet, a script and an icon. Their paths change with their
//! contents, so browsers may keep them for a year.

use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest as _, Sha256};

use super::response_markers::SharedBody;

/// A file with its path on this server.
pub struct Asset {
    /// The path, which contains the contents' digest.
    pub path: String,
    media_type: &'static str,
    contents: &'static str,
}

impl Asset {
    fn new(name: &str, media_type: &'static str, contents: &'static str) -> Self {
        let digest = hex::encode(&Sha256::digest(contents)[..6]);
        Self {
            path: format!("/assets/{digest}/{name}"),
            media_type,
            contents,
        }
    }
}

/// All pages' style sheet.
pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let contents = include_str!("../../assets/style.css");
    Asset::new("style.css", "text/css; charset=utf-8", contents)
});

/// All pages' script. Each page works without it.
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let contents = include_str!("../../assets/live.js");
    Asset::new("live.js", "text/javascript; charset=utf-8", contents)
});

/// All pages' icon.
pub static ICON: LazyLock<Asset> = LazyLock::new(|| {
    let contents = include_str!("../../assets/icon.svg");
    Asset::new("icon.svg", "image/svg+xml", contents)
});

/// Returns the files' routes.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let files = [&STYLE, &SCRIPT, &ICON];
    files.into_iter().fold(Router::new(), |routes, file| {
        routes.route(&file.path, get(async move || serve(file)))
    })
}

fn serve(file: &'static Asset) -> axum::response::Response {
    let headers = [
        (CONTENT_TYPE, file.media_type),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    let mut response = (headers, file.contents).into_response();
    response.extensions_mut().insert(SharedBody);
    super::page_headers::set(response.headers_mut());
    response
}
