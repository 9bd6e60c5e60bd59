//! The commands that publish suites and models, and that grant access to suites.

use std::path::Path;

use assay_audit::Audit;
use assay_core::Error;
use assay_core::model::audit::{Actor, AuditType, Change};
use assay_core::model::catalog::ModelFile;
use assay_core::model::handle;
use assay_core::model::published_model::ServedVersion;
use assay_core::model::random;
use assay_core::model::suite::{NamedVersion, SuiteId};
use assay_core::store::commitment::{self, NotRetired};
use assay_core::store::operator::lock_suite;
use assay_core::store::{self, publish};
use assay_eval::suite::{BadSuite, FolderReport, SuiteFolder};
use assay_publishing::{Prepared, Publication};
use serde_json::{Value, json};

use crate::admin::commands::{org_id, pool};
use crate::admin::error::{CommandError, Result, refused};
use crate::admin::suites::suite_id;

/// Returns the error for a published version whose content differs.
pub(super) fn content_differs(id: &str, version: &str) -> CommandError {
    refused(format!(
        "version {version} of {id} is published with other content; a published version never changes: \
         give it a new version"
    ))
}

/// `suite publish`: stores a folder as a version of a suite, in one transaction. Publishing the same
/// content again changes nothing.
pub async fn suite_publish(url: &str, folder: &Path) -> Result<Value> {
    let folder = read_suite(folder)?;
    let audit = audit(&folder)?;
    let warnings = folder.lint().map_err(bad_suite)?;
    let prepared = assay_publishing::prepare(&folder, &audit)?;
    let SuiteFolder {
        suite_id,
        version,
        metric,
        n_clusters,
        baselines,
        content_sha256,
        ..
    } = &folder;
    let mut transaction = pool(url)?.begin().await?;
    let db = &mut *transaction;
    ensure_no_handle(db, suite_id).await?;
    let publication = match publish::published(db, suite_id, version, content_sha256).await? {
        Some(published) => published,
        None => {
            let salt = random::bytes()?;
            let content_id = assay_publishing::store_content(db, &prepared, None, salt).await?;
            publish::publish(db, content_id).await?
        }
    };
    match publication {
        Publication::Published => transaction.commit().await?,
        Publication::WasPublished => {}
        Publication::Conflict => return Err(content_differs(suite_id, version)),
        Publication::Removed => {
            return Err(refused(format!(
                "{suite_id} or its version {version} was removed with suite remove, for good: choose another version or id"
            )));
        }
        Publication::Closed => {
            return Err(refused(format!(
                "closes_at: {} has passed; no job could be marked as final or enter the board",
                folder.protection.closes_at.as_deref().unwrap_or_default()
            )));
        }
    }
    let Prepared {
        n_items,
        n_sealed,
        slices,
        ceiling,
        ..
    } = &prepared;
    Ok(json!({
        "suite_id": suite_id, "version": version, "metric": metric.to_string(), "n_items": n_items, "n_sealed": n_sealed,
        "published": publication == Publication::Published, "n_clusters": n_clusters, "n_baselines": baselines.len(),
        "ceiling": ceiling, "n_slices": slices.iter().map(|field| field.groups.len()).sum::<usize>(), "warnings": warnings,
        "disclosure": audit.summary(),
    }))
}

/// Returns an error if the id of a suite begins with the handle of an organization. Until the transaction
/// ends, no organization takes it.
async fn ensure_no_handle(db: &mut store::PgConnection, suite_id: &str) -> Result<()> {
    let id: SuiteId = suite_id.parse().map_err(Error::internal)?;
    let Some(handle) = handle::in_suite_id(&id) else {
        return Ok(());
    };
    store::org::lock_handle(db, handle).await?;
    if store::org::is_handle(db, handle).await? {
        return Err(refused(format!(
            "suite.toml: suite_id: an organization has the handle {handle}, and only its suites have ids that begin with suite:{handle}.; choose another id"
        )));
    }
    Ok(())
}

/// `suite audit`: reports the share of a folder's answers that callers could compute, under its own
/// disclosure policy and under others. It publishes nothing, and needs no database.
pub fn suite_audit(folder: &Path) -> Result<Value> {
    let suite = read_suite(folder)?;
    let mut report = audit(&suite)?.report();
    if let Some(warnings) = report["warnings"].as_array_mut() {
        warnings.extend(
            suite
                .lint()
                .map_err(bad_suite)?
                .into_iter()
                .map(Value::from),
        );
    }
    Ok(report)
}

/// `suite check`: checks a folder, and returns warnings about it. It publishes nothing, and needs no
/// database.
pub fn suite_check(folder: &Path) -> Result<FolderReport> {
    read_suite(folder)?.check().map_err(bad_suite)
}

fn bad_suite(error: BadSuite) -> CommandError {
    refused(error.to_string())
}

fn read_suite(folder: &Path) -> Result<SuiteFolder> {
    assay_publishing::read(&folder, None).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        refused(lines.join("\n"))
    })
}

fn audit(folder: &SuiteFolder) -> Result<Audit<'_>> {
    Audit::new(folder).map_err(|error| refused(error.to_string()))
}

/// `suite grant`: allows an organization to submit to every version of a suite with `access =
/// "granted"`.
pub async fn suite_grant(url: &str, suite: &str, org: &str) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let org_id = org_id(org)?;
    let mut db = pool(url)?.acquire().await?;
    ensure_suite_exists(&mut db, &suite_id).await?;
    if store::org::find_name(&mut *db, &org_id).await?.is_none() {
        return Err(refused(format!("there is no organization {org_id}")));
    }
    let changed = publish::grant(&mut db, &org_id, &suite_id).await?;
    Ok(json!({"suite_id": suite_id, "org_id": org_id, "granted": true, "changed": changed}))
}

/// `suite revoke`: revokes the grant. Accepted jobs are still scored.
pub async fn suite_revoke(url: &str, suite: &str, org: &str) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let org_id = org_id(org)?;
    let mut db = pool(url)?.acquire().await?;
    ensure_suite_exists(&mut db, &suite_id).await?;
    let changed = publish::revoke(&mut db, &org_id, &suite_id).await?;
    Ok(json!({"suite_id": suite_id, "org_id": org_id, "granted": false, "changed": changed}))
}

/// `suite retire`: opens the commitments of versions, which cannot be undone. Versions that share items
/// retire together, because each would give away the answers of the other.
pub async fn suite_retire(url: &str, suite: &str, versions: &[String], yes: bool) -> Result<Value> {
    let suite_id = suite_id(suite)?;
    let mut transaction = pool(url)?.begin().await?;
    let state = lock_suite(&mut transaction, &suite_id).await?;
    let mut retired = Vec::new();
    let mut n_answers = 0;
    for version in versions {
        let suite = NamedVersion {
            suite_id: suite_id.clone(),
            version: version.clone(),
        };
        let opened = commitment::retire(&mut transaction, &suite, true)
            .await?
            .map_err(|reason| not_retired(&suite, reason))?;
        n_answers += opened.n_answers;
        retired.push(json!({
            "version": version,
            "n_answers": opened.n_answers,
            "suite_commitment": hex::encode(opened.commitment),
        }));
    }
    let shared = commitment::shared_answers(&mut transaction, &suite_id, versions).await?;
    if let Some(shared) = shared.first() {
        return Err(refused(format!(
            "version {} of {suite_id} has not retired and has {} of these items with the same answers; \
             retire it with the same command, --version {}, or wait for its close",
            shared.version, shared.n_items, shared.version
        )));
    }
    if !yes {
        return Err(refused(format!(
            "this makes the items and the {n_answers} answers of {suite_id}, version {}, its salt and the seed of its sealed items \
             public for good: anyone reads them without a key, whatever `access` the suite has and whoever may sign up; \
             the suite then accepts no submissions to it; repeat the command with --yes",
            versions.join(" and ")
        )));
    }
    if let Some(owner) = state.and_then(|state| state.org_id) {
        let changes: Vec<Change> = versions
            .iter()
            .map(|version| {
                Change::suite(AuditType::SuiteRetired, &suite_id)
                    .field("version", (), version)
                    .field("open_answers", (), true)
            })
            .collect();
        store::audit::record(&mut transaction, &owner, &Actor::OPERATOR, &changes).await?;
    }
    transaction.commit().await?;
    Ok(json!({"suite_id": suite_id, "retired": retired}))
}

fn not_retired(suite: &NamedVersion, reason: NotRetired) -> CommandError {
    let NamedVersion { suite_id, version } = suite;
    refused(match reason {
        NotRetired::Missing => format!("there is no version {version} of {suite_id}"),
        NotRetired::Removed => format!("the items of version {version} of {suite_id} were removed"),
        NotRetired::Before => format!("version {version} of {suite_id} has retired before"),
        NotRetired::Closes { closes_at } => format!(
            "version {version} of {suite_id} closes at {closes_at}; its answers stay hidden until then"
        ),
        NotRetired::BoardNotFinal => {
            format!("the board of version {version} of {suite_id} is not final; wait for its close")
        }
    })
}

async fn ensure_suite_exists(db: &mut store::PgConnection, suite_id: &SuiteId) -> Result<()> {
    if publish::is_published(db, suite_id).await? {
        return Ok(());
    }
    Err(refused(format!(
        "there is no suite {suite_id}; publish it first"
    )))
}

/// `model publish`: stores a file as a version of a model. Publishing the same content again changes
/// nothing.
pub async fn model_publish(url: &str, path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("{} cannot be read: {error}", path.display())))?;
    let file: ModelFile = serde_json::from_str(&text)
        .map_err(|error| refused(format!("{}: {error}", path.display())))?;
    let errors: Vec<String> = file
        .field_errors()
        .into_iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    if !errors.is_empty() {
        return Err(refused(errors.join("; ")));
    }
    let pool = pool(url)?;
    let card = ServedVersion {
        file,
        package: None,
    };
    let is_new = store::catalog::insert(&pool, &card).await?;
    let ServedVersion { file, .. } = &card;
    if !is_new
        && store::catalog::version(&pool, &file.id, &file.version)
            .await?
            .as_ref()
            != Some(&card)
    {
        return Err(content_differs(&file.id, &file.version));
    }
    Ok(json!({"id": file.id, "version": file.version, "published": is_new}))
}
