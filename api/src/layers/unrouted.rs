//! The layer for requests without a route: an unknown path, or a method that the path does not
//! support.
//!
//! Every caller gets the same 404 or 405. A request with a valid credential counts as its
//! organization's, and its response reports the organization's allowance.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::AUTHORIZATION;

use super::traffic_class::traffic_class;
use super::{auth, rate_limit};
use crate::app::App;
use crate::limits::Allowance;

/// Authenticates and counts a request without a route. A refused credential changes the allowance
/// but not the response.
pub async fn count_unrouted(State(app): State<App>, request: Request, next: Next) -> Response {
    if !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    let class = traffic_class(&request);
    match auth::identify(&app, class, request.headers(), request.extensions().get()).await {
        Ok(credential) => {
            let count = async |request| rate_limit::limit(State(app), request, next).await;
            auth::run_as(credential, request, count).await
        }
        Err(refusal) => {
            let allowance = auth::refuse(&app, request.extensions().get(), refusal)
                .await
                .extensions()
                .get::<Allowance>()
                .copied();
            let mut response = next.run(request).await;
            allowance.map(|allowance| response.extensions_mut().insert(allowance));
            response
        }
    }
}
