//! The sign-in page: signing in with a link that is sent by email, and signing out.
//!
//! The link opens a page instead of signing in, because mail scanners follow links and must not use
//! them up. Only the page's button uses the link. It signs in the browser that shows the page: a
//! user may read the email on another device, so the page says who requested the link.

use std::time::Duration;

use askama::Template;
use assay_core::model::auth::PendingLink;
use assay_core::{Code, Error};
use axum::extract::State;
use http::header::SET_COOKIE;
use http::{HeaderMap, StatusCode};

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::Entry;
use crate::dashboard::response::{PageResult, forget, next_path, page, page_with, redirect};
use crate::dashboard::visitor::{Browser, Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::http::cookies;
use crate::http::request_context::RequestContext;
use crate::openid::ProviderSettings;
use crate::ops::{auth, sessions};

/// The time for which a browser remembers the page to open after the sign-in: a link's.
const NEXT_LIFETIME: Duration = Duration::from_secs(15 * 60);

#[derive(Template)]
#[template(path = "pages/sign_in.html")]
struct SignInPage<'a> {
    layout: Layout,
    entry: Entry,
    next: &'a str,
    providers: Vec<&'a ProviderSettings>,
}

#[derive(Template)]
#[template(path = "pages/link_sent.html")]
struct LinkSentPage {
    layout: Layout,
    email: String,
}

#[derive(Template)]
#[template(path = "pages/link.html")]
struct LinkPage {
    layout: Layout,
    token: String,
    link: PendingLink,
}

/// Shows the form that requests a link, or a link's page.
pub async fn show(
    State(app): State<App>,
    browser: Browser,
    context: RequestContext,
    Query(query): Query,
) -> PageResult {
    let token = query.get("token");
    if !token.is_empty() {
        match auth::find_link(&app, context.origin(), token).await {
            Ok(link) => {
                return page(&LinkPage {
                    layout: browser.layout("Sign in"),
                    token: token.to_owned(),
                    link,
                });
            }
            Err(error) => return failed(&app, browser, error, "/"),
        }
    }
    let next = next_path(query.get("next"));
    form(&app, browser, StatusCode::OK, Entry::default(), next)
}

/// Shows the sign-in page with the reason why a sign-in has failed.
///
/// # Errors
/// The error itself, if it is a server failure.
pub fn failed(app: &App, browser: Browser, error: Error, next: &str) -> PageResult {
    if error.code == Code::Internal {
        return Err(error.into());
    }
    if let Some(cause) = &error.cause {
        tracing::warn!(cause, "sign-in failed");
    }
    let status = match error.code {
        // The browser is not asked for another credential.
        Code::InvalidToken => StatusCode::UNPROCESSABLE_ENTITY,
        code => StatusCode::from_u16(code.http_status()).map_err(Error::internal)?,
    };
    let entry = Entry {
        message: error.message.into_owned(),
        ..Entry::default()
    };
    form(app, browser, status, entry, next)
}

fn form(app: &App, browser: Browser, status: StatusCode, entry: Entry, next: &str) -> PageResult {
    let template = SignInPage {
        layout: browser.layout("Sign in"),
        entry,
        next,
        providers: app.sign_in_providers.all().collect(),
    };
    page_with(status, &template)
}

/// Sends a link.
pub async fn request(
    State(app): State<App>,
    browser: Browser,
    context: RequestContext,
    Submitted(fields): Submitted,
) -> PageResult {
    let next = next_path(fields.get("next"));
    let email = fields.get("email").to_owned();
    let input = inputs::RequestSignIn { email };
    match auth::request(&app, context.origin(), input).await {
        Ok(requested) => {
            let mut response = page(&LinkSentPage {
                layout: browser.layout("Check your email"),
                email: requested.email,
            })?;
            let cookie = cookies::store(cookies::NEXT, next, Some(NEXT_LIFETIME));
            if let Some(cookie) = cookie.filter(|_| next != "/") {
                response.headers_mut().append(SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            form(&app, browser, StatusCode::UNPROCESSABLE_ENTITY, entry, next)
        }
    }
}

/// Uses a link: signs this browser in.
pub async fn verify(
    State(app): State<App>,
    browser: Browser,
    context: RequestContext,
    headers: HeaderMap,
    Submitted(fields): Submitted,
) -> PageResult {
    let token = fields.get("token").to_owned();
    match auth::verify(&app, context.origin(), inputs::VerifySignIn { token }).await {
        Ok(signed_in) => open_session(&headers, &signed_in),
        Err(error) => failed(&app, browser, error, "/"),
    }
}

/// Returns the response that stores a new session in the browser. A session's token that the
/// browser had before is replaced.
pub fn open_session(
    headers: &HeaderMap,
    signed_in: &assay_core::model::auth::SignedIn,
) -> PageResult {
    let next = cookies::read(headers, cookies::NEXT).unwrap_or_default();
    let mut response = forget(redirect(next_path(&next)), cookies::NEXT);
    let lifetime = assay_core::Timestamp::now().seconds_until(signed_in.expires_at);
    let cookie = cookies::store(
        cookies::SESSION,
        &signed_in.token,
        Some(Duration::from_secs(u64::from(lifetime))),
    );
    response.headers_mut().append(
        SET_COOKIE,
        cookie.ok_or_else(|| assay_core::Error::internal("the session's cookie is malformed"))?,
    );
    Ok(response)
}

/// Ends this browser's session.
pub async fn sign_out(State(app): State<App>, visitor: Visitor) -> PageResult {
    sessions::end_current(&app, &visitor.proof()?).await?;
    Ok(forget(redirect("/sign-in"), cookies::SESSION))
}
