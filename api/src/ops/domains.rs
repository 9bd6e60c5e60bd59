//! `/v1/domains`

use assay_core::domain::{self, ClaimedDomain, DomainClaim, DomainRecord, DomainVerification, Domains};
use assay_core::principal::{Owner, Session};
use assay_core::store::domain::{Claim, Standing, Verified};
use assay_core::{Code, Error, FieldError, Resource, Result, field, store};

use crate::app::App;

fn missing() -> Error {
    Error::not_found(Resource::Domain)
}

fn taken(domain: &str) -> Error {
    Error::new(Code::Conflict, format!("{domain} is claimed and verified already."))
}

/// The domain that a path names.
fn named(domain: &str) -> Result<String> {
    field::domain("domain", domain).map_err(|_| missing())
}

/// The domains that are known to be the organization's.
pub async fn list(app: &App, session: &Session) -> Result<Domains> {
    Ok(Domains { domains: store::domain::list(&app.db, session.org_id()).await? })
}

/// Claims a domain for a week, in which its name server must come to show a record. Nothing is reserved by that.
pub async fn claim(app: &App, owner: &Owner, domain: &str) -> Result<DomainClaim> {
    let domain = domain::claimable("domain", domain)?;
    let session = owner.session();
    let claim = store::domain::claim(&app.db, session.org_id(), &domain, &domain::token()?, session.user_id()).await?;
    let Claim { token, expires_at } = claim.ok_or_else(|| taken(&domain))?;
    Ok(DomainClaim { record: DomainRecord::new(&domain, &token), domain, expires_at })
}

/// Looks whether the record is there. From then on the domain is the organization's.
pub async fn verify(app: &App, owner: &Owner, domain: &str) -> Result<DomainVerification> {
    let domain = named(domain)?;
    let org_id = owner.session().org_id();
    let token = match store::domain::find(&app.db, org_id, &domain).await? {
        None => return Err(missing()),
        Some(Standing::Verified(domain)) => return Ok(DomainVerification { verified: true, domain: Some(domain) }),
        Some(Standing::Pending(token)) => token,
    };
    let record = DomainRecord::new(&domain, &token);
    if !app.dns.texts(&record.name).await?.contains(&record.value) {
        return Ok(DomainVerification { verified: false, domain: None });
    }
    match store::domain::verify(&app.db, org_id, &domain, &token).await? {
        Verified::Owned(domain) => Ok(DomainVerification { verified: true, domain: Some(domain) }),
        Verified::Taken => Err(taken(&domain)),
        Verified::Gone => Err(missing()),
    }
}

/// Says whether people with an address of the domain become members when they sign in.
pub async fn update(app: &App, owner: &Owner, domain: &str, auto_join: Option<bool>) -> Result<ClaimedDomain> {
    let auto_join = auto_join.ok_or_else(|| FieldError::required("auto_join"))?;
    let domain = named(domain)?;
    store::domain::set_auto_join(&app.db, owner.session().org_id(), &domain, auto_join).await?.ok_or_else(missing)
}

/// Gives a domain up. Who joined by it stays a member.
pub async fn release(app: &App, owner: &Owner, domain: &str) -> Result<()> {
    let domain = named(domain)?;
    match store::domain::remove(&app.db, owner.session().org_id(), &domain).await? {
        true => Ok(()),
        false => Err(missing()),
    }
}
