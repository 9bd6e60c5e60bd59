//! Page responses.

use std::time::Duration;

use askama::Template;
use assay_core::Error;
use axum::response::{Html, IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderValue, StatusCode, Uri};

use crate::http::cookies;
use crate::http::error_response::Failure;

/// A page handler's result.
pub type PageResult = Result<Response, PageError>;

/// A page handler's error. It is boxed because every page returns one.
#[derive(Debug)]
pub struct PageError(Box<Error>);

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        Self(Box::new(error))
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        Failure::from(*self.0).into_response()
    }
}

/// The time for which a notice or a secret waits for the page that shows it.
const ONCE_LIFETIME: Duration = Duration::from_secs(60);

/// Renders a page.
///
/// # Errors
/// `internal` if the template cannot be rendered.
pub fn page(template: &impl Template) -> PageResult {
    page_with(StatusCode::OK, template)
}

/// Renders a page with a form that was rejected.
///
/// # Errors
/// `internal` if the template cannot be rendered.
pub fn rejected(template: &impl Template) -> PageResult {
    page_with(StatusCode::UNPROCESSABLE_ENTITY, template)
}

/// Renders a page with this status.
///
/// # Errors
/// `internal` if the template cannot be rendered.
pub fn page_with(status: StatusCode, template: &impl Template) -> PageResult {
    let html = template.render().map_err(Error::internal)?;
    Ok((status, Html(html)).into_response())
}

/// Returns a redirect after which the browser sends `GET`.
pub fn redirect(location: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    // All callers build locations from visible ASCII.
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Returns a redirect to a page that shows this notice once.
pub fn redirect_with_notice(location: &str, notice: &str) -> Response {
    once(redirect(location), cookies::NOTICE, notice)
}

/// Stores a value that the next page shows once.
pub fn once(mut response: Response, cookie: &'static str, value: &str) -> Response {
    if let Some(cookie) = cookies::store(cookie, value, Some(ONCE_LIFETIME)) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// Removes a value that was shown.
pub fn forget(mut response: Response, cookie: &'static str) -> Response {
    if let Some(cookie) = cookies::remove(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

/// Makes browsers store a response under this name.
pub fn download(name: &str, mut response: Response) -> Response {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    headers
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
    response
}

/// Returns the path with the page to return to as the parameter `next`.
pub fn with_next(path: &str, here: &Uri) -> String {
    match here.path_and_query().map_or("/", |here| here.as_str()) {
        "/" => path.to_owned(),
        here => {
            let next: String = form_urlencoded::byte_serialize(here.as_bytes()).collect();
            format!("{path}?next={next}")
        }
    }
}

/// Returns the page to return to: a path on this site, or else `/`.
///
/// Browsers take `//host` and `/\host` for another site, and ignore white space and control
/// characters in a URL.
pub fn next_path(next: &str) -> &str {
    let is_path = next.starts_with('/')
        && !next.starts_with("//")
        && next
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_path { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_belongs_to_this_site() {
        for path in ["/", "/jobs", "/jobs?suite_id=suite:a&label=%20", "/a//b"] {
            assert_eq!(next_path(path), path);
        }
        for elsewhere in [
            "",
            "jobs",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/ /evil.example",
            "/jobs\r\nSet-Cookie: a=b",
            "/é",
        ] {
            assert_eq!(next_path(elsewhere), "/", "{elsewhere:?}");
        }
    }
}
