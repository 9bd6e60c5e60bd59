//! The user's account: theme, emails and sessions.

use std::time::Duration;

use askama::Template;
use assay_core::Error;
use assay_core::model::identity::LinkedAccount;
use assay_core::model::mail_preferences::{JobMails, MailPreferences};
use assay_core::model::session::Session;
use assay_core::model::validation;
use axum::extract::{Path, State};
use http::header::SET_COOKIE;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::response::{PageResult, forget, page, redirect, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Submitted, Visitor};
use crate::http::cookies;
use crate::http::theme::Theme;
use crate::ops::{account, sessions};

/// The time for which a browser keeps the theme.
const THEME_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Template)]
#[template(path = "pages/account.html")]
struct AccountPage {
    layout: Layout,
    email: String,
    mails: MailPreferences,
    accounts: Vec<LinkedAccount>,
    sessions: Vec<Session>,
}

/// Shows the account.
pub async fn show(State(app): State<App>, visitor: Visitor) -> PageResult {
    let user = visitor.proof()?;
    let sessions = sessions::list(&app, &user).await?.sessions;
    let accounts = account::linked_accounts(&app, &visitor.proof()?).await?;
    let mails = account::mail_preferences(&app, &visitor.proof()?).await?;
    let layout = visitor.layout(&app, "Account", Section::None).await?;
    let email = layout
        .account
        .as_ref()
        .map(|account| account.email.clone())
        .unwrap_or_default();
    page(&AccountPage {
        layout,
        email,
        mails,
        accounts,
        sessions,
    })
}

/// Stores the theme in the browser.
pub async fn set_theme(visitor: Visitor, Submitted(fields): Submitted) -> PageResult {
    drop(visitor);
    let theme = Theme::named(fields.get("theme"));
    let mut response = redirect("/account");
    let cookie = cookies::store(cookies::THEME, theme.as_str(), Some(THEME_LIFETIME));
    if let Some(cookie) = cookie {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Stores the emails that the user turns on.
pub async fn set_mails(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let preferences = MailPreferences {
        job_mails: validation::one_of("jobs", fields.get("jobs")).map_err(Error::from)?,
        thresholds: fields.contains("thresholds", "true"),
    };
    account::set_mail_preferences(&app, &visitor.proof()?, preferences).await?;
    Ok(redirect_with_notice(
        "/account",
        "Your choice of emails is saved.",
    ))
}

/// Removes a provider's account.
pub async fn unlink(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let (issuer, subject) = (fields.get("issuer"), fields.get("subject"));
    account::unlink_account(&app, &visitor.proof()?, issuer, subject).await?;
    Ok(redirect_with_notice(
        "/account",
        "The account no longer signs you in. Sessions that it has started go on until you end them.",
    ))
}

/// Ends a session.
pub async fn end_session(
    State(app): State<App>,
    visitor: Visitor,
    Path(session_id): Path<String>,
) -> PageResult {
    let user = visitor.proof()?;
    sessions::end(&app, &user, &session_id).await?;
    if session_id == user.session_id().as_str() {
        return Ok(forget(redirect("/sign-in"), cookies::SESSION));
    }
    Ok(redirect_with_notice("/account", "The session has ended."))
}

/// Ends all sessions, also this browser's.
pub async fn end_all_sessions(State(app): State<App>, visitor: Visitor) -> PageResult {
    let user = visitor.proof()?;
    sessions::end_others(&app, &user).await?;
    sessions::end_current(&app, &user).await?;
    Ok(forget(redirect("/sign-in"), cookies::SESSION))
}
