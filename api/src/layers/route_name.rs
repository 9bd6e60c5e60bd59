//! The name by which tables of routes know a request.

use axum::extract::{MatchedPath, Request};

/// Returns the matched route of a request, or its path.
pub fn route(request: &Request) -> &str {
    let matched = request.extensions().get::<MatchedPath>();
    matched.map_or(request.uri().path(), MatchedPath::as_str)
}

/// Returns `true` if there is an operation or a page with this path.
#[cfg(test)]
pub fn exists(path: &str) -> bool {
    let pages = include_str!("../dashboard/mod.rs");
    let mut operations = assay_proto::OPERATIONS.iter();
    operations.any(|operation| operation.path == path) || pages.contains(&format!("\"{path}\""))
}
