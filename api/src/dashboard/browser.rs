//! Layer for all pages: the browser's session, form checks, and page
//! headers.

use std::sync::Arc;

use assay_core::model::secret::{self, SecretKind};
use assay_core::{Code, Details, Error, Result};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::form::{self, Form};
use super::response::{forget, redirect, with_next};
use super::resubmission;
use crate::app::App;
use crate::http::cookies;
use crate::http::error_response::{Failure, PendingFailure};
use crate::http::page_headers;
use crate::http::theme::Theme;

/// The route for forms with a file.
const FILES: &str = "/suites/{suite_id}/submissions";

/// A form's maximum size without a file, in bytes.
const FORM_MAX: usize = 64 * 1024;

/// Serves a page's request.
///
/// The session's cookie becomes the header `Authorization`, so that the API's layers work for
/// pages as they are. A form names its organization, which becomes the header `X-Org-Id`: a page
/// that was opened before the user chose another organization still acts for its own. A failure that
/// another page can correct becomes a redirect to it.
pub async fn serve(State(app): State<App>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let theme = Theme::of(request.headers());
    let has_notice = cookies::read(request.headers(), cookies::NOTICE).is_some();
    let mut response = match admit(&app, request).await {
        Ok(Admitted::Request(request, form)) => {
            let response = next.run(request).await;
            continue_elsewhere(response, &method, &uri, form.as_deref(), theme)
        }
        Ok(Admitted::Outdated(page)) => page,
        Err(refusal) => Failure::from(refusal).into_response(),
    };
    if has_notice && is_page(&response) {
        response = forget(response, cookies::NOTICE);
    }
    page_headers::set(response.headers_mut());
    response
}

/// Returns `true` if a response is a page, which has shown the notice.
fn is_page(response: &Response) -> bool {
    let media_type = response.headers().get(CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok());
    media_type.is_some_and(|media_type| media_type.starts_with("text/html"))
}

/// A request that passed the checks.
enum Admitted {
    /// The request with the API's headers, and its form if it has one.
    Request(Request, Option<Arc<Form>>),
    /// The page that shows an earlier session's form again.
    Outdated(Response),
}

/// Checks where a request comes from, reads its form, and replaces its cookie by the API's
/// headers.
async fn admit(app: &App, request: Request) -> Result<Admitted> {
    let (mut parts, body) = request.into_parts();
    let token = cookies::read(&parts.headers, cookies::SESSION);
    parts.headers.remove(AUTHORIZATION);
    parts.headers.remove("x-org-id");
    // A page is for a user: a key in the cookie is no session.
    let is_session =
        |token: &String| secret::read(token).is_some_and(|(kind, _)| kind == SecretKind::Session);
    if let Some(token) = token.as_ref().filter(|token| is_session(token))
        && let Ok(mut bearer) = HeaderValue::try_from(format!("Bearer {token}"))
    {
        bearer.set_sensitive(true);
        parts.headers.insert(AUTHORIZATION, bearer);
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Admitted::Request(Request::from_parts(parts, body), None));
    }
    if !is_same_origin(&parts.headers, &parts.uri, &app.settings.public_url) {
        let message = "Another site sent this form. Open the page here, and send it again.";
        return Err(Error::new(Code::Forbidden, message));
    }
    let csrf = token.as_deref().map(form::csrf_token);
    // The file handler reads its forms itself, with the token before the file.
    let has_file = parts.extensions.get::<MatchedPath>();
    if has_file.is_some_and(|route| route.as_str() == FILES) {
        return Ok(Admitted::Request(Request::from_parts(parts, body), None));
    }
    if !is_urlencoded(&parts.headers) {
        let message = "Send a form: Content-Type: application/x-www-form-urlencoded";
        return Err(Error::new(Code::InvalidRequest, message));
    }
    let body = to_bytes(body, FORM_MAX).await.map_err(|_| {
        let message = format!("The form is incomplete or larger than {FORM_MAX} bytes.");
        Error::new(Code::PayloadTooLarge, message)
    })?;
    let form = Arc::new(Form::parse(&body));
    if let Some(csrf) = csrf
        && form.get("csrf") != csrf
    {
        let page = resubmission::page(&parts.uri, &form, Some(&csrf), Theme::of(&parts.headers));
        return Ok(Admitted::Outdated(page));
    }
    if form.has("org_id") {
        // An id that no header can hold is no organization's id.
        let org_id = HeaderValue::try_from(form.get("org_id"));
        let org_id = org_id.unwrap_or(HeaderValue::from_static("-"));
        parts.headers.insert("x-org-id", org_id);
    }
    parts.extensions.insert(Arc::clone(&form));
    let request = Request::from_parts(parts, Body::empty());
    Ok(Admitted::Request(request, Some(form)))
}

/// Returns `true` if this installation's page sent the request. Browsers set these headers, and
/// no page can change them.
fn is_same_origin(headers: &HeaderMap, uri: &Uri, public_url: &str) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return false;
    }
    let Some(origin) = text(ORIGIN.as_str()) else {
        return false;
    };
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = authority.or_else(|| text(HOST.as_str()));
    let origin_authority = origin.split_once("://").map(|(_, authority)| authority);
    origin == public_url || (origin_authority.is_some() && origin_authority == host)
}

fn is_urlencoded(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<mime::Mime>().ok())
        .is_some_and(|media_type| media_type.essence_str() == "application/x-www-form-urlencoded")
}

/// Replaces a failure by a redirect to the page that corrects it: signing in, choosing an
/// organization or creating one. A form from a session that has ended is shown again.
fn continue_elsewhere(
    response: Response,
    method: &Method,
    uri: &Uri,
    form: Option<&Form>,
    theme: Theme,
) -> Response {
    let Some(PendingFailure(failure)) = response.extensions().get::<PendingFailure>() else {
        return response;
    };
    let error = &failure.error;
    let is_signed_out = matches!(error.code, Code::Unauthenticated | Code::InvalidToken);
    let path = match (&error.details, error.code) {
        _ if is_signed_out => "/sign-in",
        (Some(Details::ChooseOrganization { .. }), _) => "/choose",
        (_, Code::OrgRequired) => "/orgs/new",
        _ => return response,
    };
    let mut elsewhere = match form {
        Some(form) if is_signed_out => resubmission::page(uri, form, None, theme),
        _ if method == Method::GET => redirect(&with_next(path, uri)),
        _ => return response,
    };
    if is_signed_out && let Some(removed) = cookies::remove(cookies::SESSION) {
        elsewhere.headers_mut().append(SET_COOKIE, removed);
    }
    elsewhere
}
