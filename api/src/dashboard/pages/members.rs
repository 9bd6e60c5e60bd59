//! Members and invites.

use askama::Template;
use assay_core::model::invite::Invite;
use assay_core::model::key::ApiKey;
use assay_core::model::member::Member;
use assay_core::model::org::Role;
use assay_core::model::permissions::{Owner, Session};
use axum::extract::{Path, State};

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page_with, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Query, Submitted, Visitor};
use crate::generated::inputs;
use crate::ops::{invites, keys, members};

#[derive(Template)]
#[template(path = "pages/members.html")]
struct MembersPage {
    layout: Layout,
    entry: Entry,
    members: Vec<Member>,
    /// Open invites. Empty for users who do not own the organization.
    invites: Vec<Invite>,
    next_cursor: Option<String>,
}

impl MembersPage {
    /// Returns what a member with each role may do.
    fn roles(&self) -> [(Role, &'static str); 3] {
        [
            (Role::Viewer, "reads suites, jobs and usage"),
            (Role::Member, "also submits, and manages API keys"),
            (
                Role::Owner,
                "also manages members, domains, terms and settings",
            ),
        ]
    }

    /// Returns the user's id who sees the page.
    fn is_self(&self, member: &Member) -> bool {
        let account = self.layout.account.as_ref();
        account.is_some_and(|account| account.email == member.email)
    }
}

#[derive(Template)]
#[template(path = "pages/remove_member.html")]
struct RemoveMemberPage {
    layout: Layout,
    entry: Entry,
    member: Member,
    keys: Vec<ApiKey>,
}

/// Shows the members, and the open invites to owners.
pub async fn list(State(app): State<App>, visitor: Visitor, Query(query): Query) -> PageResult {
    show(&app, visitor, &query, Entry::default()).await
}

async fn show(app: &App, visitor: Visitor, query: &Form, entry: Entry) -> PageResult {
    let session: Session = visitor.proof()?;
    let asked = inputs::ListMembers {
        limit: None,
        cursor: query.given("cursor").map(str::to_owned),
    };
    let members = members::list(app, &session, asked).await?;
    let invites = match visitor.proof::<Owner>() {
        Ok(owner) => {
            invites::list(app, &owner, inputs::ListInvites::default())
                .await?
                .invites
        }
        Err(_) => Vec::new(),
    };
    let status = entry.status();
    let layout = visitor.layout(app, "Members", Section::Members).await?;
    let now = layout.now;
    let is_open = |invite: &Invite| {
        invite.accepted_at.is_none() && invite.revoked_at.is_none() && invite.expires_at > now
    };
    let template = MembersPage {
        layout,
        entry,
        members: members.members,
        invites: invites.into_iter().filter(is_open).collect(),
        next_cursor: members.next_cursor.map(|cursor| cursor.to_string()),
    };
    page_with(status, &template)
}

/// Invites a user.
pub async fn invite(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let new = inputs::CreateInvite {
        email: fields.get("email").to_owned(),
        role: fields.given("role").map(str::to_owned),
    };
    match invites::create(&app, &visitor.proof()?, new).await {
        Ok(invite) => {
            let notice = format!("{} was invited.", invite.email);
            Ok(redirect_with_notice("/members", &notice))
        }
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            show(&app, visitor, &Form::default(), entry).await
        }
    }
}

/// Revokes an invite.
pub async fn revoke_invite(
    State(app): State<App>,
    visitor: Visitor,
    Path(invite_id): Path<String>,
) -> PageResult {
    let invite = invites::revoke(&app, &visitor.proof()?, &invite_id).await?;
    let notice = format!("The invite of {} was revoked.", invite.email);
    Ok(redirect_with_notice("/members", &notice))
}

/// Changes a member's role.
pub async fn set_role(
    State(app): State<App>,
    visitor: Visitor,
    Path(user_id): Path<String>,
    Submitted(fields): Submitted,
) -> PageResult {
    let role = fields.get("role").to_owned();
    let change = inputs::UpdateMember { role };
    match members::set_role(&app, &visitor.proof()?, &user_id, change).await {
        Ok(member) => {
            let notice = format!("{} is now {}.", member.email, member.role);
            Ok(redirect_with_notice("/members", &notice))
        }
        Err(error) => {
            let entry = Entry::rejected(&Form::default(), error)?;
            show(&app, visitor, &Form::default(), entry).await
        }
    }
}

/// Shows what removing a member changes, with the keys that the member created.
pub async fn confirm_removal(
    State(app): State<App>,
    visitor: Visitor,
    Path(user_id): Path<String>,
) -> PageResult {
    removal(&app, visitor, &user_id, Entry::default()).await
}

async fn removal(app: &App, visitor: Visitor, user_id: &str, entry: Entry) -> PageResult {
    let _: Owner = visitor.proof()?;
    let session: Session = visitor.proof()?;
    let member = members::get(app, &session, user_id).await?;
    let all = inputs::ListKeys {
        limit: Some(200),
        cursor: None,
    };
    let keys = keys::list(app, &session, all).await?.keys;
    let status = entry.status();
    let template = RemoveMemberPage {
        layout: visitor
            .layout(app, format!("Remove {}", member.email), Section::Members)
            .await?,
        entry,
        keys: keys
            .into_iter()
            .filter(|key| member.live_keys.contains(&key.id))
            .collect(),
        member,
    };
    page_with(status, &template)
}

/// Removes a member, and revokes the keys that the form names.
pub async fn remove(
    State(app): State<App>,
    visitor: Visitor,
    Path(user_id): Path<String>,
    Submitted(fields): Submitted,
) -> PageResult {
    let owner: Owner = visitor.proof()?;
    let revoking = visitor.proof()?;
    // Keys first: a failure in between leaves a member whose removal can be repeated.
    for key_id in fields.values("keys") {
        keys::revoke(&app, &revoking, key_id).await?;
    }
    match members::remove(&app, &owner, &user_id).await {
        Ok(()) => Ok(redirect_with_notice("/members", "The member was removed.")),
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            removal(&app, visitor, &user_id, entry).await
        }
    }
}
