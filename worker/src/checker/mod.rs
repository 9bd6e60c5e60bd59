//! The checker: reads the files of drafts, checks them, stores their content, and publishes it. It has a database role of its own, which
//! can read neither jobs nor keys.

mod check;
mod escrowed;
mod failure;

use std::future::Future;
use std::time::Duration;

use assay_core::model::draft::{DraftFailure, DraftStatus};
use assay_core::model::random;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::settings::{ADMIN_LISTEN, CHECKER_DATABASE_URL};
use assay_core::store::draft_check::{
    self, ATTEMPTS_MAX, CLAIM_DURATION, ClaimedDraft, EndedDraft,
};
use assay_core::store::publish::{self, Publication};
use assay_core::store::{self, PoolProfile, PrimaryPool, escrow, migrations, retirement};
use assay_core::{BestEffort as _, Error, Result};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::settings::CheckerSettings;

use failure::fail;

/// Interval at which the checker looks for drafts.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the checker deletes the files and contents of drafts that have ended.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(30);

/// The longest check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Number of characters of a claim.
const CLAIM_CHARACTERS: usize = 22;

/// Number of ended drafts that are removed at once.
const REMOVED_AT_ONCE: i64 = 20;

/// Number of rows of content that one statement deletes.
const ROWS_AT_ONCE: i64 = 50_000;

/// Name of the task that checks drafts.
pub const CHECKER: &str = "checker";

/// Runs the checker alone until the shutdown signal. `metrics` renders the Prometheus metrics for the admin port.
///
/// # Errors
/// When the admin port cannot be bound, the database's schema does not fit, or the role can do more than check drafts.
pub async fn run(settings: CheckerSettings, metrics: PrometheusHandle) -> Result<(), ProcessError> {
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.admin_listen).await?;
    let (db, follow_primary) = open(&settings.database_url)?;
    let mut tasks = BackgroundTasks::default();
    tasks.spawn_infallible("primary", follow_primary);
    ensure_rights(&db).await?;
    let (stop, stopped) = watch::channel(false);
    let ready = stopped.clone();
    tasks.spawn_infallible(CHECKER, check_drafts(db.clone(), stopped));
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, {
            let db = db.clone();
            move || process::readiness_with_database(db.clone(), ready.clone())
        }),
    );
    tracing::info!(admin = %settings.admin_listen, git_sha = settings.git_sha, "checking drafts");
    let failure = tokio::select! {
        signal = process::shutdown_signal() => signal.err().map(ProcessError::from),
        failure = tasks.first_failure() => Some(failure),
    };
    if let Some(error) = failure {
        return Err(error);
    }
    stop.send_replace(true);
    tracing::info!("shutdown signal received, draining");
    tasks
        .join(CHECKER, settings.drain)
        .await
        .best_effort("waiting for the check");
    drop(tasks);
    process::close(&db).await;
    Ok(())
}

/// Opens a pool with the role of the checker, and returns the task that follows the primary server.
pub fn open(database_url: &str) -> Result<(PrimaryPool, impl Future<Output = ()> + Send + use<>)> {
    store::pool_with_task(
        database_url,
        CONNECTIONS,
        "assay-checker",
        PoolProfile::WORK,
    )
}

/// One for the check, one for its claim, one for the admin port.
const CONNECTIONS: u32 = 3;

/// Returns an error if the schema does not fit, or if the role can do more than check drafts.
pub async fn ensure_rights(db: &PrimaryPool) -> Result<(), ProcessError> {
    process::ensure_schema_is_current(db).await?;
    if migrations::can_do_more_than_check(&db.get()).await? {
        return Err(ProcessError::RoleDoesMoreThanCheck {
            setting: CHECKER_DATABASE_URL.name,
        });
    }
    Ok(())
}

/// Checks and publishes drafts, one after the other, retires versions, and removes what ended drafts leave, until
/// `stopped` is true.
pub async fn check_drafts(db: PrimaryPool, mut stopped: watch::Receiver<bool>) {
    let mut removed_at: Option<tokio::time::Instant> = None;
    loop {
        while !*stopped.borrow() {
            match execute_next(&db).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(error = error.log_text(), "checking a draft failed");
                    break;
                }
            }
        }
        retire_requested(&db)
            .await
            .best_effort("retiring versions of suites");
        if removed_at.is_none_or(|at| at.elapsed() >= REMOVAL_INTERVAL) {
            remove_ended(&db)
                .await
                .best_effort("removing the files of ended drafts");
            removed_at = Some(tokio::time::Instant::now());
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Executes a publisher's request to retire a version, if one waits.
async fn retire_requested(db: &PrimaryPool) -> Result<()> {
    retirement::execute_next(&db.get()).await.map(drop)
}

/// Executes the check or publication that has waited longest. Returns `false` if none waits.
async fn execute_next(db: &PrimaryPool) -> Result<bool> {
    let claim = random::base62(CLAIM_CHARACTERS)?;
    let claimed = {
        let mut connection = db.get().acquire().await?;
        draft_check::claim(&mut connection, &claim).await?
    };
    let Some(draft) = claimed else {
        return Ok(false);
    };
    let (draft_id, attempts) = (&draft.id, draft.attempts);
    if attempts > ATTEMPTS_MAX {
        tracing::warn!(%draft_id, attempts, "draft given up");
        let message =
            "The check ended its process three times. Make the files smaller, or ask the operator.";
        fail(db, &draft, DraftFailure::Internal, message, None).await?;
        return Ok(true);
    }
    tracing::info!(%draft_id, attempts, status = %draft.status, "draft claimed");
    let executed = match draft.status {
        DraftStatus::Publishing => publish_draft(db, &draft).await,
        _ => check_in_time(db, &draft).await,
    };
    if executed.is_err() {
        // The next attempt need not wait until the claim expires.
        let mut connection = db.get().acquire().await?;
        draft_check::release(&mut connection, &draft).await?;
    }
    executed.map(|()| true)
}

/// Checks a draft while its claim is renewed, within the time limit.
async fn check_in_time(db: &PrimaryPool, draft: &ClaimedDraft) -> Result<()> {
    // The check blocks its task, which must not be the one that renews the claim.
    let mut check = tokio::spawn({
        let (db, draft) = (db.clone(), draft.clone());
        async move { check::check(&db, &draft).await }
    });
    let ended = tokio::select! {
        checked = &mut check => return checked.map_err(Error::internal)?,
        () = tokio::time::sleep(CHECK_TIMEOUT) => {
            let message = "The check took longer than 60 minutes. Make the suite smaller.";
            fail(db, draft, DraftFailure::Internal, message, None).await
        }
        lost = renew_claim(db, draft) => lost,
    };
    // The next check begins when the memory of this one is free. Its result no longer counts.
    check.abort();
    let _ = check.await;
    ended
}

/// Renews a claim until it is lost: the draft was deleted.
async fn renew_claim(db: &PrimaryPool, draft: &ClaimedDraft) -> Result<()> {
    loop {
        tokio::time::sleep(CLAIM_DURATION / 3).await;
        let mut connection = db.get().acquire().await?;
        if !draft_check::renew(&mut connection, draft).await? {
            tracing::info!(draft_id = %draft.id, "draft claim lost");
            return Ok(());
        }
    }
}

/// Publishes a draft's content in one transaction.
async fn publish_draft(db: &PrimaryPool, draft: &ClaimedDraft) -> Result<()> {
    let Some(content_id) = draft.content_id else {
        return Err(Error::internal("a draft that is published has no content"));
    };
    let mut transaction = db.get().begin().await?;
    let plan = draft_check::plan(&mut transaction, &draft.org_id).await?;
    let others =
        draft_check::lock_publication(&mut transaction, &draft.org_id, &draft.suite_id).await?;
    if others >= plan.suites {
        drop(transaction);
        let message = format!(
            "The organization has {others} suites; its plan allows {} (limit suites).",
            plan.suites
        );
        return fail(db, draft, DraftFailure::QuotaExceeded, &message, None).await;
    }
    let published = publish::publish(&mut transaction, content_id).await?;
    let draft_id = &draft.id;
    let (code, message) = match published {
        Publication::Published | Publication::WasPublished => {
            let was_published = published == Publication::WasPublished;
            if draft_check::finish_published(&mut transaction, draft, was_published).await? {
                transaction.commit().await?;
                tracing::info!(%draft_id, was_published, "draft published");
            }
            return Ok(());
        }
        Publication::Conflict => (
            DraftFailure::Conflict,
            "The version is published with other content, and a published version never changes. Give it a new version.",
        ),
        Publication::Removed => (
            DraftFailure::Conflict,
            "The operator has removed the suite or this version of it, for good. Ask the operator why.",
        ),
        Publication::Closed => (
            DraftFailure::ValidationFailed,
            "closes_at has passed. Create a draft with a later time.",
        ),
    };
    drop(transaction);
    fail(db, draft, code, message, None).await
}

/// Deletes the files and the unpublished content of drafts that have ended.
async fn remove_ended(db: &PrimaryPool) -> Result<()> {
    let mut connection = db.get().acquire().await?;
    loop {
        let ended = draft_check::ended(&mut connection, REMOVED_AT_ONCE).await?;
        if ended.is_empty() {
            return Ok(());
        }
        for draft in &ended {
            remove(&mut connection, draft).await?;
        }
    }
}

async fn remove(db: &mut store::PgConnection, draft: &EndedDraft) -> Result<()> {
    escrow::delete(db, &draft.org_id, &draft.id).await?;
    draft_check::mark_removed(db, draft, draft.is_content_published).await?;
    if let Some(content_id) = draft.content_id.filter(|_| !draft.is_content_published) {
        while publish::delete_rows(db, content_id, ROWS_AT_ONCE).await? {}
    }
    Ok(())
}
