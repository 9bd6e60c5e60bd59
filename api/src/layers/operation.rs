//! The operation of a request, found by its method and route, or by the path of its rpc.

use std::collections::HashMap;
use std::sync::LazyLock;

use assay_proto::OPERATIONS;
use assay_proto::operations::Operation;
use axum::extract::Request;

use super::route_name;

/// The operations by the paths of their rpcs.
static BY_RPC: LazyLock<HashMap<&str, &Operation>> = LazyLock::new(|| {
    let rpcs =
        |operation: &'static Operation| operation.rpcs.iter().map(move |rpc| (*rpc, operation));
    OPERATIONS.iter().flat_map(rpcs).collect()
});

/// The operations by their methods and routes.
static BY_ROUTE: LazyLock<HashMap<(&str, &str), &Operation>> = LazyLock::new(|| {
    let entry = |operation: &'static Operation| ((operation.method, operation.path), operation);
    OPERATIONS.iter().map(entry).collect()
});

/// Returns the operation of a request that the router has matched. `None` for pages and files.
pub fn find(request: &Request) -> Option<&'static Operation> {
    // A HEAD request runs the handler of GET.
    let method = match request.method().as_str() {
        "HEAD" => "GET",
        method => method,
    };
    let by_route = BY_ROUTE.get(&(method, route_name::route(request)));
    by_route
        .or_else(|| BY_RPC.get(request.uri().path()))
        .copied()
}
