//! The audit log of an organization: `/v1/audit`.

use std::sync::Arc;

use assay_core::model::audit::{AuditEntries, AuditEntry};
use assay_core::model::cursor::PAGE;
use assay_core::model::error::Errors;
use assay_core::model::ids::AuditId;
use assay_core::model::org::Role;
use assay_core::model::permissions::Owner;
use assay_core::model::validation;
use assay_core::store::audit::AuditFilter;
use assay_core::{Code, Error, Result, store};
use assay_eval::FieldError;
use futures_util::{Stream, TryStreamExt as _, stream};

use crate::app::App;
use crate::generated::inputs;

/// Number of entries that an export reads at once.
const EXPORT_BATCH: i64 = 1000;

impl inputs::ListAuditEntries {
    /// Validates the fields, and returns the filter and the size of the page.
    fn filter(self) -> Result<(AuditFilter, u32)> {
        let Self {
            r#type,
            actor_id,
            target_id,
            limit,
            before,
        } = self;
        let mut errors = Errors::default();
        let r#type = r#type.map(|text| validation::one_of("type", &text));
        let r#type = errors.take(r#type.transpose());
        let actor_id = actor_id.map(|text| validation::text("actor_id", &text));
        let actor_id = errors.take(actor_id.transpose());
        let target_id = target_id.map(|text| validation::text("target_id", &text));
        let target_id = errors.take(target_id.transpose());
        let before: Option<Result<AuditId, _>> = before.map(|text| {
            text.parse().map_err(|_| {
                FieldError::new("before", "format", "must be the id of an entry, aud_…")
            })
        });
        let before = errors.take(before.transpose());
        let limit = errors.take(validation::limit(limit, PAGE.0, PAGE.1));
        errors.finish()?;
        let filter = AuditFilter {
            r#type,
            actor_id,
            target_id,
            before,
        };
        Ok((filter, limit))
    }
}

/// Returns a page of the audit log of the organization, the newest entry first.
pub async fn list(
    app: &App,
    owner: &Owner,
    input: inputs::ListAuditEntries,
) -> Result<AuditEntries> {
    let (filter, limit) = input.filter()?;
    let org_id = owner.session().org_id();
    let rows = i64::from(limit) + 1;
    let mut entries = store::audit::list(&app.db.get(), org_id, &filter, rows).await?;
    let has_more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    let last = entries.last().filter(|_| has_more);
    Ok(AuditEntries {
        next_before: last.map(|entry| entry.id.clone()),
        entries,
    })
}

/// Returns all entries of the filter as a stream, the newest first. The size of the page is
/// ignored.
///
/// # Errors
/// 503 if other exports are in progress. The stream ends with 403 if the caller is no longer an
/// owner.
pub async fn export(
    app: App,
    owner: &Owner,
    input: inputs::ListAuditEntries,
) -> Result<impl Stream<Item = Result<AuditEntry>> + Send + use<>> {
    let (filter, _) = input.filter()?;
    let org_id = owner.session().org_id().clone();
    let user_id = owner.session().user_id().clone();
    let permit = Arc::new(
        app.concurrency
            .audit_exports
            .acquire(org_id.as_str())
            .await?,
    );
    let batches = stream::try_unfold(Some(filter), move |rest| {
        let (app, org_id, user_id) = (app.clone(), org_id.clone(), user_id.clone());
        // Held until the stream ends.
        let permit = Arc::clone(&permit);
        async move {
            let _permit = permit;
            let Some(filter) = rest else { return Ok(None) };
            let db = app.db.get();
            let member = store::member::find(&db, &org_id, &user_id).await?;
            if member.is_none_or(|member| member.role != Role::Owner) {
                let message = "You are no longer an owner of this organization.";
                return Err(Error::new(Code::Forbidden, message));
            }
            let entries = store::audit::list(&db, &org_id, &filter, EXPORT_BATCH).await?;
            let last = entries
                .last()
                .filter(|_| entries.len() as i64 == EXPORT_BATCH);
            let rest = last.map(|entry| AuditFilter {
                before: Some(entry.id.clone()),
                ..filter
            });
            Ok::<_, Error>(Some((stream::iter(entries.into_iter().map(Ok)), rest)))
        }
    });
    Ok(batches.try_flatten())
}
