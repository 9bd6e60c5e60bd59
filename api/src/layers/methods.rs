//! Methods: a path takes those that are listed for it and no other. The router would answer HEAD wherever there is GET,
//! which no description of the api says.

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::header::ALLOW;
use http::{HeaderValue, Method};
use tower::ServiceExt as _;

/// Carries a request out. It stands around the router, which chooses by method before any layer of its own.
pub async fn route(router: Router, mut request: Request) -> Result<Response, std::convert::Infallible> {
    if request.method() == Method::HEAD {
        // Methods are told apart by case: no route takes this one.
        *request.method_mut() = Method::from_bytes(b"head").unwrap_or(Method::TRACE);
    }
    let mut response = router.oneshot(request).await?;
    if let Some(allowed) = response.headers().get(ALLOW).and_then(|value| value.to_str().ok()) {
        let listed: Vec<_> = allowed.split(',').filter(|method| *method != "HEAD").collect();
        if let Ok(value) = HeaderValue::from_str(&listed.join(", ")) {
            response.headers_mut().insert(ALLOW, value);
        }
    }
    Ok(response)
}
