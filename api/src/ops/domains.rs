//! `/v1/domains`

use assay_core::model::cursor::{Listing, PageQuery};
use assay_core::model::email_domain::{
    self, ClaimedDomain, DomainClaim, DomainRecord, DomainVerification, Domains, MISSES_MAX,
};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation;
use assay_core::store::email_domain::{Claim, Standing, Verified};
use assay_core::{Code, Error, Resource, Result, Timestamp, store};
use assay_eval::FieldError;

use crate::app::App;

fn missing() -> Error {
    Error::not_found(Resource::Domain)
}

fn taken(domain: &str) -> Error {
    Error::new(
        Code::Conflict,
        format!("{domain} is claimed and verified already."),
    )
}

/// The domain that a path names.
fn named(domain: &str) -> Result<String> {
    validation::domain("domain", domain).map_err(|_| missing())
}

/// A page of the organization's verified domains, by name.
pub async fn list(app: &App, session: &Session, page: PageQuery) -> Result<Domains> {
    let page = page.read(Listing::Domains)?;
    let mut domains = store::email_domain::list(&app.db, session.org_id(), &page).await?;
    let next_cursor = page.cut(&mut domains, |domain| {
        (Timestamp::UNIX_EPOCH, domain.domain.clone())
    });
    Ok(Domains {
        domains,
        next_cursor,
    })
}

/// Whether the name server shows the record of a claim with this token.
async fn is_shown(app: &App, domain: &str, token: &str) -> Result<bool> {
    let record = DomainRecord::new(domain, token);
    Ok(app.dns.texts(&record.name).await?.contains(&record.value))
}

/// Claims a domain for a week, in which its name server must come to show a record. Nothing is reserved by that. A domain that
/// another organization has verified can be claimed once that organization's record is gone.
pub async fn claim(app: &App, owner: &Owner, domain: &str) -> Result<DomainClaim> {
    let domain = email_domain::claimable("domain", domain)?;
    let session = owner.session();
    if let Some(holder) =
        store::email_domain::other_holder(&app.db, session.org_id(), &domain).await?
        && is_shown(app, &domain, &holder.token).await?
    {
        return Err(taken(&domain));
    }
    let claim = store::email_domain::claim(
        &app.db,
        session.org_id(),
        &domain,
        &email_domain::token()?,
        session.user_id(),
    )
    .await?;
    let Claim { token, expires_at } = claim.ok_or_else(|| taken(&domain))?;
    Ok(DomainClaim {
        record: DomainRecord::new(&domain, &token),
        domain,
        expires_at,
    })
}

/// Looks whether the record is there. From then on the domain is the organization's. If another organization has verified the
/// domain, it loses it, provided that the same response of the name server does not show its record any more.
pub async fn verify(app: &App, owner: &Owner, domain: &str) -> Result<DomainVerification> {
    let domain = named(domain)?;
    let org_id = owner.session().org_id();
    let token = match store::email_domain::find(&app.db, org_id, &domain).await? {
        None => return Err(missing()),
        Some(Standing::Verified {
            domain, misses: 0, ..
        }) => {
            return Ok(DomainVerification {
                verified: true,
                domain: Some(domain),
            });
        }
        Some(Standing::Verified { token, .. } | Standing::Pending(token)) => token,
    };
    let record = DomainRecord::new(&domain, &token);
    let shown = app.dns.texts(&record.name).await?;
    if !shown.contains(&record.value) {
        return Ok(DomainVerification {
            verified: false,
            domain: None,
        });
    }
    let mut transaction = app.db.begin().await?;
    if let Some(holder) =
        store::email_domain::other_holder(&mut *transaction, org_id, &domain).await?
    {
        if shown.contains(&DomainRecord::new(&domain, &holder.token).value) {
            return Err(taken(&domain));
        }
        store::email_domain::lose(&mut transaction, &holder.org_id, &domain, &holder.token).await?;
        tracing::warn!(from = %holder.org_id, to = %org_id, "domain taken over by a new proof");
    }
    let verified = store::email_domain::verify(&mut *transaction, org_id, &domain, &token).await?;
    if matches!(verified, Verified::Owned(_)) {
        transaction.commit().await?;
    }
    match verified {
        Verified::Owned(domain) => Ok(DomainVerification {
            verified: true,
            domain: Some(domain),
        }),
        Verified::Taken => Err(taken(&domain)),
        Verified::Gone => Err(missing()),
    }
}

/// Says whether people with an address of the domain become members when they sign in.
pub async fn update(
    app: &App,
    owner: &Owner,
    domain: &str,
    auto_join: Option<bool>,
) -> Result<ClaimedDomain> {
    let auto_join = auto_join.ok_or_else(|| FieldError::required("auto_join"))?;
    let domain = named(domain)?;
    let org_id = owner.session().org_id();
    if let Some(changed) =
        store::email_domain::set_auto_join(&app.db, org_id, &domain, auto_join).await?
    {
        return Ok(changed);
    }
    match store::email_domain::find(&app.db, org_id, &domain).await? {
        Some(Standing::Verified { .. }) => {
            let message = format!(
                "The record of {domain} was missing {MISSES_MAX} times in a row. Restore it and verify the domain again, then set auto_join."
            );
            Err(Error::invalid_state(Resource::Domain, message))
        }
        _ => Err(missing()),
    }
}

/// Gives a domain up. Who joined by it stays a member.
pub async fn release(app: &App, owner: &Owner, domain: &str) -> Result<()> {
    let domain = named(domain)?;
    match store::email_domain::remove(&app.db, owner.session().org_id(), &domain).await? {
        true => Ok(()),
        false => Err(missing()),
    }
}
