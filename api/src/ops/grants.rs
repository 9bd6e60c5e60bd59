//! Grants: `/v1/suites/{suite_id}/grants` and `/v1/grants`.

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::error::Errors;
use assay_core::model::grant::{GRANTS_MAX, GrantCreated, GrantLink, Grants, LINK_DAYS, USES};
use assay_core::model::permissions::{Member, Publisher};
use assay_core::model::secret::{self, Secret, SecretKind};
use assay_core::model::suite::{Suite, SuiteId};
use assay_core::model::validation;
use assay_core::store;
use assay_core::store::grant::{self, Target};
use assay_core::{Error, GrantId, Resource, Result};
use assay_eval::FieldError;

use super::suite_edits::{lock, not_owned};
use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;

/// Longest grant as JSON, in bytes.
const GRANT_BYTES: u64 = 1536;

fn not_found() -> Error {
    Error::not_found(Resource::Grant)
}

/// A new grant's fields, not validated yet. Exactly one must be given.
#[derive(Default)]
pub struct NewGrant {
    /// The organization.
    pub org_id: Option<String>,
    /// The domain.
    pub domain: Option<String>,
    /// The link.
    pub link: Option<GrantLink>,
}

impl NewGrant {
    fn validate(self) -> Result<Target> {
        match self {
            Self {
                org_id: Some(id),
                domain: None,
                link: None,
            } => match id.parse() {
                Ok(id) => Ok(Target::Org(id)),
                Err(_) => Err(Error::field(
                    "org_id",
                    "format",
                    "must be the id of an organization, org_…",
                )),
            },
            Self {
                org_id: None,
                domain: Some(domain),
                link: None,
            } => Ok(Target::Domain(validation::domain("domain", &domain)?)),
            Self {
                org_id: None,
                domain: None,
                link: Some(link),
            } => {
                let mut errors = Errors::default();
                let max_uses = link.max_uses.unwrap_or(USES.0);
                let max_uses = validation::count("link.max_uses", max_uses, USES.1);
                let max_uses = errors.take(max_uses);
                let days = link.expires_in_days.unwrap_or(LINK_DAYS.0);
                let days = validation::count("link.expires_in_days", days, LINK_DAYS.1);
                let days = errors.take(days);
                errors.finish()?;
                Ok(Target::Link { max_uses, days })
            }
            _ => Err(Error::field(
                "body",
                "required",
                "give exactly one of org_id, domain and link",
            )),
        }
    }
}

/// Returns the grants to the organization's suite, the newest first. Their memory is charged to `room` before they are read.
pub async fn list(
    app: &App,
    publisher: &Publisher,
    suite_id: &str,
    room: &Reservation,
) -> Result<Grants> {
    let caller = publisher.caller();
    let suite_id: SuiteId = suite_id
        .parse()
        .map_err(|_| Error::not_found(Resource::Suite))?;
    let (db, org_id) = (app.db.get(), caller.org_id());
    let Some(count) = grant::count(&db, org_id, &suite_id).await? else {
        let mut connection = db.acquire().await?;
        return Err(not_owned(&mut connection, org_id, &suite_id, Resource::Suite).await?);
    };
    room.reserve_response(count.unsigned_abs() * GRANT_BYTES * 3)
        .await?;
    let grants = grant::list(&db, org_id, &suite_id, None, count).await?;
    Ok(Grants { grants })
}

/// Lets other organizations see the organization's suite and submit to it. If the target has a grant already, returns that one.
pub async fn create(
    app: &App,
    publisher: &Publisher,
    suite_id: &str,
    new: NewGrant,
) -> Result<GrantCreated> {
    let target = new.validate()?;
    let caller = publisher.caller();
    let (org_id, actor) = (caller.org_id(), caller.actor());
    let mut transaction = app.db.get().begin().await?;
    let (suite_id, _) = lock(&mut transaction, org_id, suite_id).await?;
    let found = grant::find(&mut *transaction, org_id, &suite_id, &target).await?;
    let (id, token) = match found {
        Some(id) => (id, None),
        None => {
            let count = grant::count(&mut *transaction, org_id, &suite_id).await?;
            if count.unwrap_or(0) >= GRANTS_MAX {
                let message = format!(
                    "The suite has {GRANTS_MAX} grants, and cannot have more. Revoke some."
                );
                return Err(Error::invalid_state(Resource::Suite, message));
            }
            let id = GrantId::random()?;
            let token = match target {
                Target::Link { .. } => Some(Secret::random(SecretKind::Grant)?),
                Target::Org(_) | Target::Domain(_) => None,
            };
            let hash = token.as_ref().map(Secret::hash);
            grant::insert(
                &mut transaction,
                org_id,
                &suite_id,
                (&id, caller.actor_id()),
                &target,
                hash.as_ref(),
            )
            .await?;
            let change = Change::grant(AuditType::GrantCreated, &id, &suite_id);
            store::audit::record(&mut transaction, org_id, &actor, &[change]).await?;
            (id, token)
        }
    };
    let grant = grant::list(&mut *transaction, org_id, &suite_id, Some(&id), 1).await?;
    transaction.commit().await?;
    let grant = grant.into_iter().next();
    Ok(GrantCreated {
        grant: grant.ok_or_else(not_found)?,
        token: token.map(Secret::into_text),
    })
}

/// Revokes a grant.
pub async fn delete(app: &App, publisher: &Publisher, grant_id: &str) -> Result<()> {
    let grant_id: GrantId = grant_id.parse().map_err(|_| not_found())?;
    let caller = publisher.caller();
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    let suite_id = grant::delete(&mut transaction, org_id, &grant_id).await?;
    let suite_id = suite_id.ok_or_else(not_found)?;
    let change = Change::grant(AuditType::GrantRevoked, &grant_id, &suite_id);
    store::audit::record(&mut transaction, org_id, &caller.actor(), &[change]).await?;
    transaction.commit().await?;
    Ok(())
}

/// Gives the organization a grant with a link's token. A link to a suite that stays hidden from the organization, because the operator has
/// suspended it, is not used up.
pub async fn accept(app: &App, member: &Member, input: inputs::AcceptGrant) -> Result<Suite> {
    if input.token.is_empty() {
        return Err(FieldError::required("token").into());
    }
    let session = member.session();
    let org_id = session.org_id();
    let hash = match secret::read(input.token.trim()) {
        Some((SecretKind::Grant, hash)) => hash,
        _ => return Err(not_found()),
    };
    let id = GrantId::random()?;
    let mut transaction = app.db.get().begin().await?;
    let accepted = grant::accept(&mut transaction, org_id, &hash, &id).await?;
    let (suite_id, is_new) = accepted.ok_or_else(not_found)?;
    if is_new {
        let change = Change::grant(AuditType::GrantAccepted, &id, &suite_id);
        store::audit::record(&mut transaction, org_id, session.actor(), &[change]).await?;
    }
    let seen = store::suite::find(&mut *transaction, Some(org_id), &suite_id, None).await?;
    let seen = seen.ok_or_else(not_found)?;
    transaction.commit().await?;
    Ok(seen.into_suite(&app.settings.common.hfm_sha))
}
