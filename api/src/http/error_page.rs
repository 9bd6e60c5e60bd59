//! The page that browsers show for a failure.

use askama::Template;
use assay_core::{Code, Error, RequestId};
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use super::page_headers;
use super::request_context::RequestContext;
use super::theme::Theme;

#[derive(Template)]
#[template(path = "pages/error.html")]
struct ErrorPage<'a> {
    title: &'static str,
    message: &'a str,
    retry_after: Option<u32>,
    status: u16,
    code: &'static str,
    request_id: &'a RequestId,
    theme: Theme,
}

/// Returns the title for a page about an error.
const fn title(code: Code) -> &'static str {
    match code {
        Code::NotFound => "There is no such page",
        Code::Forbidden | Code::SessionRequired => "You may not do this",
        Code::RateLimited => "Too many requests",
        Code::QuotaExceeded => "A limit is reached",
        Code::Unavailable => "The service is unavailable",
        Code::Internal => "Something went wrong",
        _ => "This is not possible",
    }
}

/// Renders an error as a page with this status.
pub fn render(error: &Error, status: StatusCode, context: &RequestContext) -> Response {
    let page = ErrorPage {
        title: title(error.code),
        message: &error.message,
        retry_after: error.retry_after,
        status: status.as_u16(),
        code: error.code.as_str(),
        request_id: &context.request_id,
        theme: context.theme,
    };
    // A template that only shows text cannot fail.
    let mut response = Response::new(Body::from(page.render().unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    if let Some(seconds) = error.retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    page_headers::set(headers);
    response
}
