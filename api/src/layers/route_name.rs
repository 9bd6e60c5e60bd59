//! The names by which tables of routes know a request.

use axum::extract::{MatchedPath, Request};

/// Returns the matched route and the path of a request. A table lists REST routes and pages by their
/// route, and rpcs by their path, because a gRPC service is one route with a wildcard.
pub fn names(request: &Request) -> [&str; 2] {
    let path = request.uri().path();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or(path, MatchedPath::as_str);
    [route, path]
}

/// Returns `true` if the routers have a route of this name, or the contract has the rpc.
#[cfg(test)]
pub fn exists(name: &str) -> bool {
    let routes = concat!(
        include_str!("../rest/mod.rs"),
        include_str!("../dashboard/mod.rs")
    );
    match name.starts_with("/assay.") {
        true => crate::http::protocol::is_method(name),
        false => routes.contains(&format!("\"{name}\"")),
    }
}
