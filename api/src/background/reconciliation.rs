//! Reconciliation: compares the artifact store with the rows that refer to its objects, in both
//! directions.
//!
//! Every object is recorded before it is written, or its key contains an upload or job that is. So
//! an object that is a day old and that no row refers to is an orphan: its writer died, its row was
//! lost by restoring a backup, or its removal failed. Objects for organizations that the database
//! does not know are not touched, because the store may be shared by mistake.

use std::time::{Duration, SystemTime};

use assay_core::model::package;
use assay_core::runtime::artifacts::{Artifacts, Object};
use assay_core::runtime::prometheus;
use assay_core::store::reconcile::{self, BATCH, Found, Kind, Known, Objects, Recorded};
use assay_core::store::{self, PgConnection, PgPool, PoolProfile};
use assay_core::{BestEffort as _, Error, JobId, OrgId, Result, UploadId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use tokio::sync::watch;

use crate::app::App;
use crate::receipt_log::publication as receipt_log;

/// Interval at which a process checks if the daily reconciliation is due.
const INTERVAL: Duration = Duration::from_secs(60);

/// The most objects that are looked up or removed concurrently.
const PARALLEL: usize = 16;

/// A reconciliation's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The object count in the store.
    pub objects: u64,
    /// Objects that are at least a day old and that no row refers to.
    pub orphans: u64,
    /// These orphans' size in bytes.
    pub orphan_bytes: u64,
    /// Orphans that were removed; 0 in a dry run.
    pub removed: u64,
    /// Temporary files whose writers died. They are removed like orphans.
    pub unfinished: u64,
    /// Objects whose organization is unknown or whose key has an unknown form. They
    /// are never removed.
    pub foreign: u64,
    /// Rows whose object is missing.
    pub missing: u64,
}

/// Reconciles once a day, in one process in the installation at a time, until `stop` is set. The
/// future may be dropped at any time.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) {
    loop {
        daily(&app)
            .await
            .best_effort("reconciling the artifact store; retried in a minute");
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Reconciles if that is due and no other process does.
async fn daily(app: &App) -> Result<()> {
    metrics::gauge!(prometheus::ARTIFACTS_MISSING)
        .set(reconcile::missing(&app.db.get()).await? as f64);
    let mut db = store::connect(&app.db.get(), "assay-reconcile", PoolProfile::CLEANUP).await?;
    if reconcile::lead(&mut db).await? && reconcile::start(&mut db).await? {
        let report = reconcile(&mut db, &app.artifacts, false).await?;
        let Report {
            objects,
            orphans,
            orphan_bytes,
            removed,
            unfinished,
            foreign,
            missing,
        } = report;
        tracing::info!(
            objects,
            orphans,
            orphan_bytes,
            removed,
            unfinished,
            foreign,
            missing,
            "artifact store reconciled"
        );
        metrics::counter!(prometheus::ARTIFACTS_ORPHANED).increment(removed);
        metrics::gauge!(prometheus::ARTIFACTS_MISSING).set(missing as f64);
    }
    store::disconnect(db).await;
    Ok(())
}

/// Reconciles now. A dry run removes and records nothing.
///
/// # Errors
/// If another process reconciles.
pub async fn once(pool: &PgPool, artifacts: &Artifacts, dry_run: bool) -> Result<Report> {
    let mut db = store::connect(pool, "assay-reconcile", PoolProfile::CLEANUP).await?;
    if !reconcile::lead(&mut db).await? {
        return Err(Error::field(
            "command",
            "refused",
            "another process reconciles the artifact store; try again when it has finished",
        ));
    }
    let report = reconcile(&mut db, artifacts, dry_run).await?;
    store::disconnect(db).await;
    Ok(report)
}

async fn reconcile(db: &mut PgConnection, artifacts: &Artifacts, dry_run: bool) -> Result<Report> {
    let before = SystemTime::from(reconcile::orphaned_before(db).await?);
    let mut report = Report {
        unfinished: artifacts.remove_unfinished(before, !dry_run).await?,
        ..Report::default()
    };
    let mut listed = artifacts.list().try_chunks(BATCH);
    while let Some(objects) = listed.next().await {
        let objects = objects.map_err(|error| error.1)?;
        report.objects += objects.len() as u64;
        remove_orphans(db, artifacts, dry_run, before, &objects, &mut report).await?;
    }
    for kind in Kind::ALL {
        find_missing(db, artifacts, kind, &mut report).await?;
    }
    if !dry_run {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let found = Found {
            removed: count(report.removed),
            removed_bytes: count(report.orphan_bytes),
            missing: count(report.missing),
        };
        reconcile::finish(db, &found).await?;
    }
    Ok(report)
}

/// Returns `true` for the store's marker, for package files (a publication removes those
/// that it does not use), and for the receipt log's files, which are never removed.
fn is_without_row(key: &str) -> bool {
    Artifacts::is_marker(key) || package::is_file(key) || receipt_log::is_file(key)
}

/// Finds orphans among the listed objects, and removes them unless this is a dry run.
///
/// The rows are read after the objects were listed. If a row is deleted in between, the deletion
/// also removes the object.
async fn remove_orphans(
    db: &mut PgConnection,
    artifacts: &Artifacts,
    dry_run: bool,
    before: SystemTime,
    objects: &[Object],
    report: &mut Report,
) -> Result<()> {
    let mut named = Objects::default();
    let old = objects
        .iter()
        .filter(|object| object.modified < before && !is_without_row(&object.key));
    for object in old {
        match ObjectKey::parse(&object.key) {
            Some(ObjectKey {
                org_id,
                owner_id,
                number,
            }) => {
                named.keys.push(&object.key);
                named.org_ids.push(org_id);
                named.owner_ids.push(owner_id);
                named.numbers.push(number);
            }
            None => report.foreign += 1,
        }
    }
    let known = reconcile::known(db, &named).await?;
    report.foreign += known.iter().filter(|known| !known.is_ours).count() as u64;
    let mut removals = Vec::new();
    for Known { key, .. } in known
        .into_iter()
        .filter(|known| known.is_ours && !known.is_recorded)
    {
        report.orphans += 1;
        report.orphan_bytes += objects
            .iter()
            .find(|object| object.key == key)
            .map_or(0, |object| object.bytes);
        tracing::info!(key, dry_run, "orphaned object");
        if !dry_run {
            removals.push(remove(artifacts.clone(), key));
        }
    }
    let removed: Vec<bool> = stream::iter(removals)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    report.removed += removed.into_iter().filter(|is_removed| *is_removed).count() as u64;
    Ok(())
}

async fn remove(artifacts: Artifacts, key: String) -> bool {
    let removed = artifacts.delete(&key).await;
    if let Err(error) = &removed {
        tracing::warn!(key, error = error.log_text(), "orphaned object not removed");
    }
    removed.is_ok()
}

/// Counts and logs one kind of rows whose object is missing.
async fn find_missing(
    db: &mut PgConnection,
    artifacts: &Artifacts,
    kind: Kind,
    report: &mut Report,
) -> Result<()> {
    let mut after = (String::new(), 0);
    loop {
        let rows = reconcile::recorded(db, kind, (&after.0, after.1)).await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };
        after = (last.owner_id.clone(), last.number);
        let looked_up: Vec<_> = rows
            .into_iter()
            .map(|row| look_up(artifacts.clone(), row))
            .collect();
        let missing: Vec<Option<Recorded>> = stream::iter(looked_up)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await?;
        for row in missing.into_iter().flatten() {
            if reconcile::is_recorded(db, kind, &row).await? {
                tracing::error!(org_id = %row.org_id, owner_id = row.owner_id, key = row.key, "object missing from the artifact store");
                report.missing += 1;
            }
        }
    }
}

/// Returns the row if its object is missing.
async fn look_up(artifacts: Artifacts, row: Recorded) -> Result<Option<Recorded>> {
    Ok((!artifacts.exists(&row.key).await?).then_some(row))
}

/// An object key's parts.
#[derive(Debug, PartialEq, Eq)]
struct ObjectKey<'a> {
    org_id: &'a str,
    /// The job's or upload's id.
    owner_id: &'a str,
    /// An upload part's number; 0 for jobs' objects.
    number: i32,
}

impl<'a> ObjectKey<'a> {
    /// Parses a key as [`Artifacts`] and `upload` create them. Returns `None` for any other key.
    fn parse(key: &'a str) -> Option<Self> {
        let (org_id, rest) = key.split_once('/')?;
        org_id.parse::<OrgId>().ok()?;
        if let Some((owner_id, part)) = rest.split_once('/') {
            owner_id.parse::<UploadId>().ok()?;
            return Some(Self {
                org_id,
                owner_id,
                number: part.split_once('-')?.0.parse().ok()?,
            });
        }
        let (owner_id, kind) = rest.split_once('.')?;
        owner_id.parse::<JobId>().ok()?;
        let is_scores = |kind: &str| {
            let attempt = kind
                .strip_suffix(".scores")
                .or_else(|| kind.strip_suffix(".f64"));
            attempt.is_some_and(|attempt| attempt.bytes().all(|byte| byte.is_ascii_digit()))
        };
        (kind == "predictions.json" || is_scores(kind)).then_some(Self {
            org_id,
            owner_id,
            number: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_keys_are_parsed() {
        let org_id = OrgId::random().unwrap();
        let job_id = JobId::random().unwrap();
        let upload_id = UploadId::random().unwrap();
        let job_object = Some((job_id.to_string(), 0));
        let part = assay_core::model::upload::part_key(&org_id, &upload_id, 12).unwrap();
        for (key, expected) in [
            (
                Artifacts::predictions_key(&org_id, &job_id),
                job_object.clone(),
            ),
            (
                Artifacts::scores_key(&org_id, &job_id, 3),
                job_object.clone(),
            ),
            (format!("{org_id}/{job_id}.1.f64"), job_object),
            (part, Some((upload_id.to_string(), 12))),
            (format!("{org_id}/{job_id}.predictions.json.bak"), None),
            (format!("{org_id}/{job_id}.x.scores"), None),
            (format!("{org_id}/notes.txt"), None),
            (format!("backup/{job_id}.predictions.json"), None),
            (String::from("readme"), None),
        ] {
            let read = ObjectKey::parse(&key).map(|name| (name.owner_id.to_owned(), name.number));
            assert_eq!(read, expected, "{key}");
        }
    }
}
