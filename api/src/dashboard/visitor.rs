//! A page's user, and what every page shows about them.

use std::sync::Arc;

use assay_core::model::org::{Org, Role};
use assay_core::model::permissions::{Credential, Proof, User};
use assay_core::{Error, OrgId, Result, Timestamp};
use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;

use super::form::{self, Form};
use super::section::Section;
use crate::app::App;
use crate::http::cookies;
use crate::http::error_response::Failure;
use crate::http::theme::Theme;
use crate::layers::memory;
use crate::limits::request_memory::{Reservation, SharedReservation};
use crate::ops::account;

/// A page's user, signed in. A request without a session is sent to the sign-in page.
pub struct Visitor {
    credential: Credential,
    browser: Browser,
    room: SharedReservation,
}

/// A browser's cookies.
pub struct Browser {
    /// The theme that the user chose.
    pub theme: Theme,
    /// The previous page's notice.
    pub notice: Option<String>,
    /// The session's form token. Empty without a session.
    pub csrf: String,
}

impl Browser {
    fn of(headers: &HeaderMap) -> Self {
        let cookie = |name| cookies::read(headers, name);
        Self {
            theme: Theme::of(headers),
            notice: cookie(cookies::NOTICE),
            csrf: cookie(cookies::SESSION)
                .map(|token| form::csrf_token(&token))
                .unwrap_or_default(),
        }
    }

    /// Returns the layout for a page that shows no user.
    pub fn layout(self, title: impl Into<String>) -> Layout {
        let Self {
            theme,
            notice,
            csrf,
        } = self;
        Layout {
            title: title.into(),
            section: Section::None,
            theme,
            notice,
            csrf,
            account: None,
            org: None,
            now: Timestamp::now(),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Browser {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self::of(&parts.headers))
    }
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let credential = parts.extensions.get::<Credential>().cloned();
        Ok(Self {
            credential: credential
                .ok_or_else(|| Error::internal("the page has no authentication"))?,
            browser: Browser::of(&parts.headers),
            room: memory::reservation(&parts.extensions)?,
        })
    }
}

/// A request's form. Empty if the request has none.
pub struct Submitted(pub Arc<Form>);

impl<S: Sync> FromRequestParts<S> for Submitted {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self(parts.extensions.get().cloned().unwrap_or_default()))
    }
}

/// A request's query, as a form.
pub struct Query(pub Form);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(Form::parse(query.as_bytes())))
    }
}

impl Visitor {
    /// Returns the memory that is charged for the request and its page.
    pub fn room(&self) -> &Reservation {
        &self.room
    }

    /// Returns the proof for a permission.
    ///
    /// # Errors
    /// The reason why the user does not have it.
    pub fn proof<P: Proof>(&self) -> Result<P> {
        P::from_credential(&self.credential)
    }

    /// Returns the organization that the page acts for.
    ///
    /// # Errors
    /// If there is none, or it is suspended.
    pub fn org(&self) -> Result<Org> {
        let caller: assay_core::model::permissions::Caller = self.proof()?;
        Ok(caller.org().clone())
    }

    /// Returns the session's form token.
    pub fn csrf(&self) -> &str {
        &self.browser.csrf
    }

    /// Returns what every page shows about the user.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub async fn layout(
        self,
        app: &App,
        title: impl Into<String>,
        section: Section,
    ) -> Result<Layout> {
        let user: User = self.proof()?;
        let account = account::get(app, &user).await?;
        Ok(Layout {
            account: Some(account),
            org: self.org().ok(),
            section,
            ..self.browser.layout(title)
        })
    }
}

/// The data that the base template shows on every page.
pub struct Layout {
    /// The page's title.
    pub title: String,
    /// The section that the navigation marks.
    pub section: Section,
    /// The theme that the user chose.
    pub theme: Theme,
    /// The previous page's notice, shown once.
    pub notice: Option<String>,
    /// The session's form token. Empty without a session.
    pub csrf: String,
    /// The user. Absent without a session.
    pub account: Option<account::Account>,
    /// The organization that the page acts for.
    pub org: Option<Org>,
    /// The time at which the page was rendered.
    pub now: Timestamp,
}

impl Layout {
    /// Returns the organization's id that forms act for, or an empty string.
    pub fn org_id(&self) -> &str {
        self.org.as_ref().map_or("", |org| org.id.as_str())
    }

    /// Returns the user's other organizations.
    pub fn other_orgs(&self) -> impl Iterator<Item = &Org> {
        let orgs = self.account.iter().flat_map(|account| &account.orgs);
        let current: Option<&OrgId> = self.org.as_ref().map(|org| &org.id);
        orgs.filter(move |org| Some(&org.id) != current)
    }

    /// Returns `true` if the user has at least this role in the organization.
    fn has_role(&self, role: Role) -> bool {
        self.org.as_ref().is_some_and(|org| org.role >= role)
    }

    /// Returns `true` if the user can submit and manage keys.
    pub fn is_member(&self) -> bool {
        self.has_role(Role::Member)
    }

    /// Returns `true` if the user owns the organization.
    pub fn is_owner(&self) -> bool {
        self.has_role(Role::Owner)
    }
}
