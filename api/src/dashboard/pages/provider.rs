//! Signing in with an OpenID Connect provider.
//!
//! The sign-in starts with a link and not with a form, because browsers apply the content security
//! policy's `form-action` to a form's redirects.

use std::time::Duration;

use axum::extract::{Path, State};
use http::HeaderMap;
use http::header::SET_COOKIE;

use crate::app::App;
use crate::dashboard::pages::sign_in;
use crate::dashboard::response::{PageResult, forget, next_path, redirect};
use crate::dashboard::visitor::{Browser, Query};
use crate::http::cookies;
use crate::http::not_found::not_found_error;
use crate::http::request_context::RequestContext;
use crate::openid::{Callback, Flow};
use crate::ops::auth;

/// The time in which the user signs in at the provider.
const FLOW_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// Sends the browser to a provider.
pub async fn start(
    State(app): State<App>,
    browser: Browser,
    Path(name): Path<String>,
    Query(query): Query,
) -> PageResult {
    let next = next_path(query.get("next"));
    let (url, flow) = match auth::start_with_provider(&app, &name).await {
        Ok(Some(started)) => started,
        Ok(None) => return Err(not_found_error().into()),
        Err(error) => return sign_in::failed(&app, browser, error, next),
    };
    let mut response = redirect(url.as_str());
    for (name, value) in [
        (cookies::FLOW, flow.to_text().as_str()),
        (cookies::NEXT, next),
    ] {
        if let Some(cookie) = cookies::store(name, value, Some(FLOW_LIFETIME)) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    Ok(response)
}

/// Receives the browser back from a provider, and signs it in.
pub async fn finish(
    State(app): State<App>,
    browser: Browser,
    context: RequestContext,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(query): Query,
) -> PageResult {
    let flow = cookies::read(&headers, cookies::FLOW).and_then(|text| Flow::from_text(&text));
    let flow = flow.filter(|flow| flow.provider == name);
    let callback = Callback {
        code: query.get("code").to_owned(),
        state: query.get("state").to_owned(),
        issuer: query.get("iss").to_owned(),
        error: query.get("error").to_owned(),
    };
    let signed_in =
        auth::finish_with_provider(&app, context.origin(), flow.as_ref(), &callback).await;
    let response = match signed_in {
        Ok(signed_in) => sign_in::open_session(&headers, &signed_in)?,
        Err(error) => {
            let next = cookies::read(&headers, cookies::NEXT).unwrap_or_default();
            sign_in::failed(&app, browser, error, next_path(&next))?
        }
    };
    // A flow works once.
    Ok(forget(response, cookies::FLOW))
}
