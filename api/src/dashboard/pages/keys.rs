//! API keys.

use askama::Template;
use assay_core::Error;
use assay_core::model::key::{ApiKey, ApiKeyCreated, OVERLAP_HOURS_DEFAULT};
use assay_core::model::member::Member;
use assay_core::model::permissions;
use assay_core::model::scope::{Scope, Scopes};
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, forget, once, page_with, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::http::cookies;
use crate::ops::{keys, members};

#[derive(Template)]
#[template(path = "pages/keys.html")]
struct KeysPage {
    layout: Layout,
    entry: Entry,
    keys: Vec<ApiKey>,
    members: Vec<Member>,
    next_cursor: Option<String>,
    /// The secret for a key that was just created.
    secret: Option<String>,
    public_url: String,
}

impl KeysPage {
    /// Returns a key's state in words.
    fn state(&self, key: &ApiKey) -> &'static str {
        match (key.revoked_at, key.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(at)) if at <= self.layout.now => "expired",
            (None, _) => "live",
        }
    }

    /// Returns the member's address who created a key, or the user's id if they have left.
    fn creator<'a>(&'a self, key: &'a ApiKey) -> &'a str {
        let members = self.members.iter();
        let mut creators = members.filter(|member| member.user_id == key.created_by);
        creators
            .next()
            .map_or(key.created_by.as_str(), |member| &member.email)
    }
}

#[derive(Template)]
#[template(path = "pages/key_action.html")]
struct KeyActionPage {
    layout: Layout,
    key: ApiKey,
    action: KeyAction,
    entry: Entry,
}

/// A key change that has its own page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAction {
    Revoke,
    Rotate,
}

/// Shows the keys, and the secret for a key that was just created.
pub async fn list(
    State(app): State<App>,
    visitor: Visitor,
    headers: HeaderMap,
    Query(query): Query,
) -> PageResult {
    let secret = cookies::read(&headers, cookies::SECRET);
    let shows_secret = secret.is_some();
    let response = show(&app, visitor, &query, Entry::default(), secret).await?;
    Ok(if shows_secret {
        forget(response, cookies::SECRET)
    } else {
        response
    })
}

async fn show(
    app: &App,
    visitor: Visitor,
    query: &Form,
    entry: Entry,
    secret: Option<String>,
) -> PageResult {
    let session: permissions::Session = visitor.proof()?;
    let page_of_keys = inputs::ListKeys {
        limit: None,
        cursor: query.given("cursor").map(str::to_owned),
    };
    let keys = keys::list(app, &session, page_of_keys).await?;
    let members = members::list(app, &session, inputs::ListMembers::default()).await?;
    let status = entry.status();
    let template = KeysPage {
        layout: visitor.layout(app, "API keys", Section::Keys).await?,
        entry,
        keys: keys.keys,
        members: members.members,
        next_cursor: keys.next_cursor.map(|cursor| cursor.to_string()),
        secret,
        public_url: app.settings.public_url.clone(),
    };
    page_with(status, &template)
}

/// Creates a key.
pub async fn create(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    match keys::create(&app, &visitor.proof()?, self::fields(&fields)).await {
        Ok(created) => Ok(show_once(created)),
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            show(&app, visitor, &Form::default(), entry, None).await
        }
    }
}

/// Returns the fields of a new key that a form has.
pub fn fields(form: &Form) -> inputs::CreateKey {
    let scopes: Vec<String> = form.values("scopes").map(str::to_owned).collect();
    inputs::CreateKey {
        name: form.get("name").to_owned(),
        scopes: Some(scopes).filter(|scopes| !scopes.is_empty()),
        expires_at: form.given("expires_at").map(end_of_day),
    }
}

/// Returns a day's end in UTC, in the API's form.
fn end_of_day(date: &str) -> String {
    format!("{date}T23:59:59Z")
}

/// Returns the redirect to the page that shows a new key's secret once.
fn show_once(created: ApiKeyCreated) -> Response {
    let notice = format!("The key {} was created.", created.api_key.name);
    let response = redirect_with_notice("/keys", &notice);
    once(response, cookies::SECRET, &created.key)
}

async fn find(app: &App, visitor: &Visitor, key_id: &str) -> assay_core::Result<ApiKey> {
    keys::get(app, &visitor.proof()?, key_id).await
}

/// Shows what revoking a key changes.
pub async fn confirm_revocation(
    State(app): State<App>,
    visitor: Visitor,
    Path(key_id): Path<String>,
) -> PageResult {
    confirm(&app, visitor, &key_id, KeyAction::Revoke, Entry::default()).await
}

/// Shows what rotating a key changes.
pub async fn confirm_rotation(
    State(app): State<App>,
    visitor: Visitor,
    Path(key_id): Path<String>,
) -> PageResult {
    let overlap = Form::default().with("overlap_hours", OVERLAP_HOURS_DEFAULT.to_string());
    confirm(
        &app,
        visitor,
        &key_id,
        KeyAction::Rotate,
        Entry::new(overlap),
    )
    .await
}

async fn confirm(
    app: &App,
    visitor: Visitor,
    key_id: &str,
    action: KeyAction,
    entry: Entry,
) -> PageResult {
    let key = find(app, &visitor, key_id).await?;
    let title = match action {
        KeyAction::Revoke => format!("Revoke {}", key.name),
        KeyAction::Rotate => format!("Rotate {}", key.name),
    };
    let status = entry.status();
    let template = KeyActionPage {
        layout: visitor.layout(app, title, Section::Keys).await?,
        key,
        action,
        entry,
    };
    page_with(status, &template)
}

/// Revokes a key.
pub async fn revoke(
    State(app): State<App>,
    visitor: Visitor,
    Path(key_id): Path<String>,
) -> PageResult {
    let key = keys::revoke(&app, &visitor.proof()?, &key_id).await?;
    let notice = format!("The key {} was revoked.", key.name);
    Ok(redirect_with_notice("/keys", &notice))
}

/// Rotates a key.
pub async fn rotate(
    State(app): State<App>,
    visitor: Visitor,
    Path(key_id): Path<String>,
    Submitted(fields): Submitted,
) -> PageResult {
    let overlap = fields.get("overlap_hours");
    let rotated = match overlap.parse() {
        Ok(hours) => {
            let overlap_hours = Some(hours);
            let rotation = inputs::RotateKey { overlap_hours };
            keys::rotate(&app, &visitor.proof()?, &key_id, rotation).await
        }
        Err(_) => Err(Error::field(
            "overlap_hours",
            "type",
            "must be a whole number of hours",
        )),
    };
    match rotated {
        Ok(created) => Ok(show_once(created)),
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            confirm(&app, visitor, &key_id, KeyAction::Rotate, entry).await
        }
    }
}
