//! Claimed domains.

use askama::Template;
use assay_core::model::email_domain::{ClaimedDomain, DomainClaim};
use assay_core::model::permissions::Session;
use axum::extract::{Path, State};

use crate::app::App;
use crate::dashboard::filters;
use crate::dashboard::form::{Entry, Form};
use crate::dashboard::response::{PageResult, page, page_with, redirect_with_notice};
use crate::dashboard::section::Section;
use crate::dashboard::visitor::{Layout, Submitted, Visitor};
use crate::generated::inputs;
use crate::ops::domains;

#[derive(Template)]
#[template(path = "pages/domains.html")]
struct DomainsPage {
    layout: Layout,
    entry: Entry,
    domains: Vec<ClaimedDomain>,
    /// The claim whose record has to be published.
    claim: Option<DomainClaim>,
}

#[derive(Template)]
#[template(path = "pages/release_domain.html")]
struct ReleaseDomainPage {
    layout: Layout,
    domain: String,
}

/// Shows the verified domains.
pub async fn list(State(app): State<App>, visitor: Visitor) -> PageResult {
    show(&app, visitor, Entry::default(), None).await
}

async fn show(app: &App, visitor: Visitor, entry: Entry, claim: Option<DomainClaim>) -> PageResult {
    let session: Session = visitor.proof()?;
    let all = inputs::ListDomains {
        limit: Some(200),
        cursor: None,
    };
    let status = entry.status();
    let template = DomainsPage {
        domains: domains::list(app, &session, all).await?.domains,
        layout: visitor.layout(app, "Domains", Section::Domains).await?,
        entry,
        claim,
    };
    page_with(status, &template)
}

/// Claims a domain, and shows the record that proves it. Claiming it again shows the same record.
pub async fn claim(
    State(app): State<App>,
    visitor: Visitor,
    Submitted(fields): Submitted,
) -> PageResult {
    let domain = fields.get("domain").to_owned();
    match domains::claim(&app, &visitor.proof()?, inputs::ClaimDomain { domain }).await {
        Ok(claim) => show(&app, visitor, Entry::default(), Some(claim)).await,
        Err(error) => {
            let entry = Entry::rejected(&fields, error)?;
            show(&app, visitor, entry, None).await
        }
    }
}

/// Looks for a claimed domain's record.
pub async fn verify(
    State(app): State<App>,
    visitor: Visitor,
    Path(domain): Path<String>,
) -> PageResult {
    let owner = visitor.proof()?;
    let verification = match domains::verify(&app, &owner, &domain).await {
        Ok(verification) => verification,
        Err(error) => {
            let entry = Entry::rejected(&Form::default(), error)?;
            return show(&app, visitor, entry, None).await;
        }
    };
    if verification.verified {
        let notice = format!("The domain {domain} is verified.");
        return Ok(redirect_with_notice("/domains", &notice));
    }
    let again = inputs::ClaimDomain {
        domain: domain.clone(),
    };
    let claim = domains::claim(&app, &owner, again).await?;
    let entry = Entry {
        message: format!(
            "The record of {domain} was not found. A new record can take some minutes to be visible. Check it, and try again."
        ),
        ..Entry::default()
    };
    show(&app, visitor, entry, Some(claim)).await
}

/// Sets whether users with an address in the domain join by themselves.
pub async fn update(
    State(app): State<App>,
    visitor: Visitor,
    Path(domain): Path<String>,
    Submitted(fields): Submitted,
) -> PageResult {
    let joins = fields.get("auto_join") == "true";
    let change = inputs::UpdateDomain {
        auto_join: Some(joins),
    };
    domains::update(&app, &visitor.proof()?, &domain, change).await?;
    let notice = if joins {
        format!("Users with an address of {domain} join when they sign in.")
    } else {
        format!("Users with an address of {domain} need an invite.")
    };
    Ok(redirect_with_notice("/domains", &notice))
}

/// Shows what releasing a domain changes.
pub async fn confirm_release(
    State(app): State<App>,
    visitor: Visitor,
    Path(domain): Path<String>,
) -> PageResult {
    let domain = domains::get(&app, &visitor.proof()?, &domain).await?.domain;
    let layout = visitor
        .layout(&app, format!("Release {domain}"), Section::Domains)
        .await?;
    page(&ReleaseDomainPage { layout, domain })
}

/// Releases a domain.
pub async fn release(
    State(app): State<App>,
    visitor: Visitor,
    Path(domain): Path<String>,
) -> PageResult {
    domains::release(&app, &visitor.proof()?, &domain).await?;
    let notice = format!("The domain {domain} was released.");
    Ok(redirect_with_notice("/domains", &notice))
}
