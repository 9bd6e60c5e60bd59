//! Domain claims of an organization, and their verification: `/v1/domains`.

use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::cursor::Listing;
use assay_core::model::email_domain::{
    self, ClaimedDomain, DomainClaim, DomainRecord, DomainVerification, Domains, MISSES_MAX,
};
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation;
use assay_core::store::email_domain::{Claim, ClaimStatus, Verified};
use assay_core::{Code, Error, Resource, Result, Timestamp, store};
use assay_eval::FieldError;

use crate::app::App;
use crate::generated::inputs;

fn not_found() -> Error {
    Error::not_found(Resource::Domain)
}

fn already_verified(domain: &str) -> Error {
    Error::new(
        Code::Conflict,
        format!("{domain} is already verified, by this or another organization."),
    )
}

/// Normalizes a domain of a path. An invalid one names no claim.
fn parse_domain(domain: &str) -> Result<String> {
    validation::domain("domain", domain).map_err(|_| not_found())
}

/// Returns a page of the verified domains of the organization, by name.
pub async fn list(app: &App, session: &Session, input: inputs::ListDomains) -> Result<Domains> {
    let page = Listing::Domains.page(input.limit, input.cursor.as_deref())?;
    let mut domains = store::email_domain::list(&app.db.get(), session.org_id(), &page).await?;
    let next_cursor = page.cut(&mut domains, |domain| {
        (Timestamp::UNIX_EPOCH, domain.domain.clone())
    });
    Ok(Domains {
        domains,
        next_cursor,
    })
}

/// Returns a verified domain of the organization.
pub async fn get(app: &App, session: &Session, domain: &str) -> Result<ClaimedDomain> {
    let domain = parse_domain(domain)?;
    match store::email_domain::find(&app.db.get(), session.org_id(), &domain).await? {
        Some(ClaimStatus::Verified { domain, .. }) => Ok(domain),
        Some(ClaimStatus::Pending(_)) | None => Err(not_found()),
    }
}

/// Returns `true` if DNS has the record of a claim with this token.
async fn has_record(app: &App, domain: &str, token: &str) -> Result<bool> {
    let record = DomainRecord::new(domain, token);
    Ok(app
        .dns
        .txt_records(&record.name)
        .await?
        .contains(&record.value))
}

/// Claims a domain. The claim can be verified for a week, with a DNS record, and reserves nothing.
///
/// # Errors
/// If this organization has verified the domain, or another one has and its record still exists.
pub async fn claim(app: &App, owner: &Owner, input: inputs::ClaimDomain) -> Result<DomainClaim> {
    let domain = email_domain::claimable("domain", &input.domain)?;
    let session = owner.session();
    if let Some(holder) =
        store::email_domain::other_holder(&app.db.get(), session.org_id(), &domain).await?
        && has_record(app, &domain, &holder.token).await?
    {
        return Err(already_verified(&domain));
    }
    let mut transaction = app.db.get().begin().await?;
    let claim = store::email_domain::claim(
        &mut *transaction,
        session.org_id(),
        &domain,
        &email_domain::token()?,
        session.user_id(),
    )
    .await?;
    let Claim { token, expires_at } = claim.ok_or_else(|| already_verified(&domain))?;
    let claimed =
        Change::domain(AuditType::DomainClaimed, &domain).field("expires_at", (), expires_at);
    store::audit::record(
        &mut transaction,
        session.org_id(),
        session.actor(),
        &[claimed],
    )
    .await?;
    transaction.commit().await?;
    Ok(DomainClaim {
        record: DomainRecord::new(&domain, &token),
        domain,
        expires_at,
    })
}

/// Looks the record of a claim up. If it exists, the domain belongs to the organization. Another
/// organization that has verified the domain loses it if the same DNS response does not contain its
/// record.
pub async fn verify(app: &App, owner: &Owner, domain: &str) -> Result<DomainVerification> {
    let domain = parse_domain(domain)?;
    let session = owner.session();
    let org_id = session.org_id();
    let token = match store::email_domain::find(&app.db.get(), org_id, &domain).await? {
        None => return Err(not_found()),
        Some(ClaimStatus::Verified {
            domain, misses: 0, ..
        }) => {
            return Ok(DomainVerification {
                verified: true,
                domain: Some(domain),
            });
        }
        Some(ClaimStatus::Verified { token, .. } | ClaimStatus::Pending(token)) => token,
    };
    let record = DomainRecord::new(&domain, &token);
    let records = app.dns.txt_records(&record.name).await?;
    if !records.contains(&record.value) {
        return Ok(DomainVerification {
            verified: false,
            domain: None,
        });
    }
    let mut transaction = app.db.get().begin().await?;
    let was_verified =
        store::email_domain::lock_verified(&mut transaction, org_id, &domain).await?;
    if let Some(holder) =
        store::email_domain::other_holder(&mut *transaction, org_id, &domain).await?
    {
        if records.contains(&DomainRecord::new(&domain, &holder.token).value) {
            return Err(already_verified(&domain));
        }
        let is_removed = store::email_domain::remove_verified(
            &mut transaction,
            &holder.org_id,
            &domain,
            &holder.token,
        )
        .await?;
        if is_removed {
            let released = [Change::domain(AuditType::DomainReleased, &domain)];
            let holder = &holder.org_id;
            store::audit::record(&mut transaction, holder, &Actor::PLATFORM, &released).await?;
        }
        tracing::warn!(from = %holder.org_id, to = %org_id, "domain taken over by a new proof");
    }
    let verified = store::email_domain::verify(&mut *transaction, org_id, &domain, &token).await?;
    if let Verified::Owned(claimed) = &verified {
        if !was_verified {
            let verified = Change::domain(AuditType::DomainVerified, &domain).field(
                "verified_at",
                (),
                claimed.verified_at,
            );
            store::audit::record(&mut transaction, org_id, session.actor(), &[verified]).await?;
        }
        transaction.commit().await?;
    }
    match verified {
        Verified::Owned(domain) => Ok(DomainVerification {
            verified: true,
            domain: Some(domain),
        }),
        Verified::Taken => Err(already_verified(&domain)),
        Verified::Gone => Err(not_found()),
    }
}

/// Sets whether users with an address of the domain become members when they sign in.
pub async fn update(
    app: &App,
    owner: &Owner,
    domain: &str,
    input: inputs::UpdateDomain,
) -> Result<ClaimedDomain> {
    let auto_join = input
        .auto_join
        .ok_or_else(|| FieldError::required("auto_join"))?;
    let domain = parse_domain(domain)?;
    let session = owner.session();
    let org_id = session.org_id();
    let mut transaction = app.db.get().begin().await?;
    if let Some((changed, joined_before)) =
        store::email_domain::set_auto_join(&mut *transaction, org_id, &domain, auto_join).await?
    {
        if joined_before != auto_join {
            let updated = Change::auto_join(&domain, joined_before, auto_join);
            store::audit::record(&mut transaction, org_id, session.actor(), &[updated]).await?;
        }
        transaction.commit().await?;
        return Ok(changed);
    }
    drop(transaction);
    match store::email_domain::find(&app.db.get(), org_id, &domain).await? {
        Some(ClaimStatus::Verified { .. }) => {
            let message = format!(
                "The DNS record of {domain} was missing {MISSES_MAX} times in a row. Restore it, \
                 verify the domain again, and then set auto_join."
            );
            Err(Error::invalid_state(Resource::Domain, message))
        }
        _ => Err(not_found()),
    }
}

/// Releases a domain claim, verified or not. Users who joined through the domain remain members.
pub async fn release(app: &App, owner: &Owner, domain: &str) -> Result<()> {
    let domain = parse_domain(domain)?;
    let session = owner.session();
    let mut transaction = app.db.get().begin().await?;
    if !store::email_domain::remove(&mut *transaction, session.org_id(), &domain).await? {
        return Err(not_found());
    }
    store::audit::record(
        &mut transaction,
        session.org_id(),
        session.actor(),
        &[Change::domain(AuditType::DomainReleased, &domain)],
    )
    .await?;
    transaction.commit().await?;
    Ok(())
}
