//! Leaderboards and their entries: `/v1/suites/{suite_id}/board`, `/v1/entries`.

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::board::{
    BOARD_PAGE, Board, BoardCursor, BoardMethod, BoardStatus, ENTRIES_PAGE, Entries, Entry,
    entry_name, entry_url,
};

use assay_core::model::cursor::bad_cursor;
use assay_core::model::error::Errors;
use assay_core::model::ids::{EntryId, is_version};
use assay_core::model::permissions::{EvalSubmitter, JobReader, Principal, SuiteVisitor};
use assay_core::model::suite::{BoardMode, SuiteId};
use assay_core::model::validation;
use assay_core::store::board::{BoardHead, Entered, NewEntry};
use assay_core::{Code, Error, JobId, Resource, Result, store};
use assay_eval::Metric;

use super::jobs;
use crate::app::App;
use crate::generated::inputs;

/// Enters a succeeded job on the board of its suite.
pub async fn enter(
    app: &App,
    submitter: &EvalSubmitter,
    job_id: &str,
    input: inputs::CreateEntry,
) -> Result<Entry> {
    enter_job(app, submitter, job_id, input, false).await
}

/// Does the same as [`enter`], and marks the job as final if it enters.
pub async fn enter_final(
    app: &App,
    submitter: &EvalSubmitter,
    job_id: &str,
    input: inputs::CreateEntry,
) -> Result<Entry> {
    enter_job(app, submitter, job_id, input, true).await
}

async fn enter_job(
    app: &App,
    submitter: &EvalSubmitter,
    job_id: &str,
    input: inputs::CreateEntry,
    marks_final: bool,
) -> Result<Entry> {
    let inputs::CreateEntry { name, url } = input;
    let caller = submitter.caller();
    let mut errors = Errors::default();
    let name = errors.take(entry_name(&name));
    let url = errors.take(url.as_deref().map(entry_url).transpose());
    errors.finish()?;
    let job_not_found = || Error::not_found(Resource::Job);
    let job_id: JobId = job_id.parse().map_err(|_| job_not_found())?;
    let entered_by = match caller.principal() {
        Principal::ApiKey { key_id, .. } => key_id.as_str(),
        Principal::Session { user_id, .. } => user_id.as_str(),
    };
    let new = NewEntry {
        id: &EntryId::random()?,
        job_id: &job_id,
        name: &name,
        url: url.as_deref(),
        entered_by,
    };
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    if marks_final {
        jobs::finalize_in(&mut transaction, submitter, &job_id).await?;
    }
    match store::board::enter(&mut transaction, org_id, new).await? {
        Entered::Done(entry) => {
            let entered = Change::entry(AuditType::BoardEntered, &entry.id)
                .field("job_id", (), &job_id)
                .field("name", (), &name);
            let actor = caller.actor();
            store::audit::record(&mut transaction, org_id, &actor, &[entered]).await?;
            transaction.commit().await?;
            Ok(*entry)
        }
        Entered::Missing => Err(job_not_found()),
        Entered::OtherVersion {
            suite_version,
            current_version,
        } => Err(Error::job_of_other_version(suite_version, current_version)),
        Entered::Refused(refusal) => Err(Error::entry_refused(refusal)),
    }
}

/// Returns an entry of the organization.
pub async fn get_entry(app: &App, caller: &JobReader, entry_id: &str) -> Result<Entry> {
    let not_found = || Error::not_found(Resource::Entry);
    let entry_id: EntryId = entry_id.parse().map_err(|_| not_found())?;
    store::board::find_entry(&app.db.get(), caller.org_id(), &entry_id)
        .await?
        .ok_or_else(not_found)
}

/// Withdraws an entry. Withdrawing it again changes nothing.
pub async fn withdraw(app: &App, submitter: &EvalSubmitter, entry_id: &str) -> Result<Entry> {
    let caller = submitter.caller();
    let org_id = caller.org_id();
    let not_found = || Error::not_found(Resource::Entry);
    let entry_id: EntryId = entry_id.parse().map_err(|_| not_found())?;
    let mut transaction = app.db.get().begin().await?;
    let (entry, changed) = store::board::withdraw(&mut transaction, org_id, &entry_id)
        .await?
        .ok_or_else(not_found)?;
    if changed {
        let withdrawn = [Change::entry(AuditType::BoardWithdrawn, &entry_id)];
        store::audit::record(&mut transaction, org_id, &caller.actor(), &withdrawn).await?;
    }
    transaction.commit().await?;
    Ok(entry)
}

/// Returns a page of the entries of the organization, the newest first.
pub async fn list_entries(
    app: &App,
    caller: &JobReader,
    input: inputs::ListEntries,
) -> Result<Entries> {
    let inputs::ListEntries {
        suite_id,
        limit,
        before,
    } = input;
    let mut errors = Errors::default();
    let suite_id = suite_id.map(|text| validation::suite_id("suite_id", &text));
    let suite_id = errors.take(suite_id.transpose());
    let limit = validation::limit(limit, ENTRIES_PAGE.0, ENTRIES_PAGE.1);
    let limit = errors.take(limit);
    let before = before.map(|text| validation::timestamp("before", &text));
    let before = errors.take(before.transpose());
    errors.finish()?;
    // One row more than the page has shows that there is a next page.
    let mut entries = store::board::list_entries(
        &app.db.get(),
        caller.org_id(),
        suite_id.as_ref(),
        before,
        limit + 1,
    )
    .await?;
    let has_more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    let next_before = entries.last().filter(|_| has_more);
    let next_before = next_before.map(|entry| entry.entered_at);
    Ok(Entries {
        entries,
        next_before,
    })
}

/// Returns a page of the stored board of a version of a suite. It runs no test.
pub async fn get(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    input: inputs::GetLeaderboard,
) -> Result<Board> {
    let inputs::GetLeaderboard {
        version,
        limit,
        cursor,
    } = input;
    let not_found = || match visitor.org_id() {
        // Without a credential, boards that are not public do not exist.
        None => Error::new(
            Code::Unauthenticated,
            "There is no such public board. Send an API key or a session token to read others: \
             Authorization: Bearer <TOKEN>",
        ),
        Some(_) => Error::not_found(Resource::Board),
    };
    let limit = validation::limit(limit, BOARD_PAGE.0, BOARD_PAGE.1)?;
    let cursor = cursor
        .as_deref()
        .map(str::parse::<BoardCursor>)
        .transpose()?;
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let cursor = cursor.map(|cursor| cursor.of(&suite_id)).transpose()?;
    let version = match (version, &cursor) {
        (Some(version), Some(cursor)) if version != cursor.version => return Err(bad_cursor()),
        (Some(version), _) if !is_version(&version) => return Err(not_found()),
        (version, cursor) => version.or_else(|| cursor.as_ref().map(|one| one.version.clone())),
    };
    let computation = cursor.as_ref().map(|cursor| cursor.computation);
    let db = app.db.get();
    let (org_id, version) = (visitor.org_id(), version.as_deref());
    let found = store::board::find(&db, org_id, &suite_id, version, computation).await?;
    let head = found.ok_or_else(not_found)?;
    if cursor.is_some() && head.computation.is_none() {
        return Err(Error::field(
            "cursor",
            "format",
            "is of a computation that is no longer stored; leave it out to begin again",
        ));
    }
    let after = cursor.map_or(0, |cursor| cursor.place);
    let entries = match head.computation {
        Some(computation) => {
            let version = &head.suite_version;
            store::board::rows(&db, &suite_id, version, computation, after, limit).await?
        }
        None => Vec::new(),
    };
    let baselines = store::baselines::for_board(&db, &suite_id, &head.suite_version).await?;
    // Before its close, a board that is computed then shows nothing that depends on others.
    let is_hidden = head.mode == BoardMode::AtClose && head.status != BoardStatus::Final;
    let n_removed = if is_hidden { 0 } else { head.n_removed };
    let removed = match n_removed {
        0 => Vec::new(),
        _ => store::board::removals(&db, &suite_id, &head.suite_version).await?,
    };
    let shown = after.saturating_add(i32::try_from(entries.len()).unwrap_or(i32::MAX));
    let has_more = shown < head.n_entries && !entries.is_empty();
    let next_cursor = head.computation.filter(|_| has_more).map(|computation| {
        BoardCursor::new(&suite_id, head.suite_version.clone(), computation, shown)
    });
    let BoardHead {
        suite_version,
        metric,
        release,
        mode,
        status,
        closes_at,
        visibility,
        computation: _,
        as_of,
        n_entries,
        n_items,
        n_clusters,
        is_clustered,
        n_removed: _,
    } = head;
    Ok(Board {
        suite_id,
        suite_version,
        lower_is_better: metric.parse::<Metric>().is_ok_and(Metric::lower_is_better),
        metric,
        release,
        board: mode,
        status,
        closes_at,
        as_of,
        visibility,
        method: BoardMethod::of(is_clustered),
        n_entries: n_entries.into(),
        n_items: n_items.map(i64::from),
        n_clusters: n_clusters.map(i64::from),
        baselines,
        entries,
        next_cursor,
        n_removed,
        removed,
    })
}
