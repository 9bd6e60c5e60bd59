//! The commands that publish suites and models, and that grant access to suites.

use std::collections::HashMap;
use std::path::Path;

use assay_core::model::board::{entry_name, entry_url};
use assay_core::model::catalog::ModelFile;
use assay_core::model::ceiling::Ceiling;
use assay_core::model::item_sequence;
use assay_core::model::public_name::NameKeys;
use assay_core::model::published_model::ServedVersion;
use assay_core::model::random;
use assay_core::model::skill::SuiteSkill;
use assay_core::model::slices::{StoredSlice, StoredSlices};
use assay_core::model::suite::{SuiteId, SuiteVersion};
use assay_core::store::commitment::{self, NotRetired};
use assay_core::store::publish::ItemColumns;
use assay_core::store::{self, publish};
use assay_core::{Error, Timestamp};
use assay_eval::clusters::Clusters;
use assay_eval::slices::Slice;
use assay_eval::suite::{
    BadSuite, Baseline, CatalogLine, ClusterKey, FolderFloor, FolderItem, FolderReport,
    FolderSlices, Groups, RetestLine, SuiteFolder, baselines_sha256,
};
use assay_eval::{DisclosurePolicy, Ladder, QuantileLevels};
use serde_json::{Value, json};

use crate::admin::commands::{org_id, pool};
use crate::admin::error::{CommandError, Result, refused};
use crate::admin::suite_audit::Audit;

/// Number of items that one statement stores.
const BATCH: usize = 5_000;

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
    let read = read_suite(folder)?;
    let audit = Audit::new(&read)?;
    let warnings = read.lint().map_err(bad_suite)?;
    let SuiteFolder {
        suite_id,
        version,
        metric,
        per_item_feedback,
        description,
        protection,
        quantiles,
        sequence,
        cluster,
        average,
        cluster_is_hidden,
        n_clusters,
        slices,
        slice_min,
        labels,
        skill,
        baselines,
        items,
        retest,
        floor,
        catalog,
        warnings: _,
        content_sha256,
    } = &read;
    // `SuiteFolder::read` has validated both.
    let suite_id: &SuiteId = &suite_id.parse().map_err(Error::internal)?;
    let closes_at: Option<Timestamp> = protection
        .closes_at
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(Error::internal)?;
    let too_many = || refused("a suite may not have more than 2,147,483,647 items");
    let n_items = i32::try_from(items.len()).map_err(|_| too_many())?;
    let n_sealed = i32::try_from(items.iter().filter(|item| item.is_sealed).count())
        .map_err(|_| too_many())?;
    let slices = stored_slices(slices, &audit);
    let ceiling = retest.as_ref().map(|retest| retest.open);
    let ceiling = ceiling.or(floor.as_ref().map(|floor| floor.open));
    let ceiling = ceiling
        .map(|ceiling| protection.policy.disclose_ceiling(ceiling, audit.ladder()))
        .transpose()
        .map_err(Error::from)?
        .map(Ceiling::from);
    let pool = pool(url)?;
    let mut transaction = pool.begin().await?;
    let metric = metric.to_string();
    let release = protection.policy.to_string();
    let skill = skill.as_ref().map(SuiteSkill::from);
    let quantiles: Vec<f64> = quantiles.iter().flat_map(QuantileLevels::values).collect();
    let new = publish::NewSuite {
        suite_id,
        version,
        metric: &metric,
        per_item_feedback: *per_item_feedback,
        description,
        release: &release,
        max_submissions_per_day: protection.max_submissions_per_day,
        max_submissions: protection.max_submissions,
        access: protection.access.into(),
        clip: protection.clip,
        ladder: audit.ladder(),
        n_sealed,
        closes_at,
        board: protection.board.into(),
        sequence: sequence.as_ref(),
        cluster: cluster.as_ref().map(ClusterKey::as_str),
        average: *average,
        cluster_is_hidden: *cluster_is_hidden,
        n_clusters: n_clusters
            .map(i32::try_from)
            .transpose()
            .map_err(Error::internal)?,
        slices: &slices,
        slice_min: i32::try_from(*slice_min).map_err(Error::internal)?,
        labels,
        skill: skill.as_ref(),
        ceiling: ceiling.as_ref(),
        quantiles: &quantiles,
        scorer_min: read.scorer_min(),
        n_items,
        content_sha256,
    };
    let is_new = publish::insert(&mut transaction, &new).await?;
    if is_new {
        if let Some(closes_at) = closes_at
            && closes_at <= store::now(&mut *transaction).await?
        {
            return Err(refused(format!(
                "closes_at: {closes_at} has passed; no job could be marked as final or enter the board"
            )));
        }
        for (batch, items) in items.chunks(BATCH).enumerate() {
            let first = i32::try_from(batch * BATCH).map_err(Error::internal)?;
            publish::insert_items(&mut transaction, suite_id, version, first, &columns(items))
                .await?;
        }
        if n_clusters.is_some() {
            let open = items.iter().filter(|item| !item.is_sealed);
            let labels = open.filter_map(|item| item.cluster);
            let clusters = Clusters::from_labels(labels);
            publish::insert_clusters(
                &mut transaction,
                suite_id,
                version,
                clusters.item_clusters(),
            )
            .await?;
        }
        publish::insert_hidden_groups(&mut transaction, &new).await?;
        if let Some(retest) = &retest {
            insert_retest(&mut transaction, &new, &retest.lines).await?;
        }
        if let Some(floor) = &floor {
            insert_floors(&mut transaction, &new, floor).await?;
        }
        if let Some(catalog) = &catalog {
            insert_catalog(&mut transaction, &new, &catalog.lines).await?;
        }
        publish::insert_board(&mut transaction, &new).await?;
        let suite = SuiteVersion {
            suite_id: suite_id.clone(),
            version: version.clone(),
        };
        insert_baselines(&mut transaction, &new, baselines, protection.policy).await?;
        let opening = read.opening(random::bytes().map_err(Error::from)?);
        let baselines_sha256 = baselines_sha256(&opening.salt, baselines);
        let catalog_sha256 = catalog.as_ref().map(|catalog| catalog.sha256);
        commitment::insert(
            &mut transaction,
            &suite,
            &opening,
            baselines_sha256,
            catalog_sha256,
        )
        .await?;
        store::event::insert_suite_published(&mut *transaction, suite_id, version).await?;
        transaction.commit().await?;
    } else if publish::content_sha256(&mut transaction, suite_id, version)
        .await?
        .as_deref()
        != Some(content_sha256)
    {
        return Err(content_differs(suite_id.as_str(), version));
    }
    let disclosure = audit.summary();
    Ok(json!({
        "suite_id": suite_id, "version": version, "metric": metric, "n_items": n_items, "n_sealed": n_sealed, "published": is_new,
        "n_clusters": n_clusters, "n_baselines": baselines.len(), "ceiling": ceiling, "n_slices": slices.iter().map(|field| field.groups.len()).sum::<usize>(), "warnings": warnings,
        "disclosure": disclosure,
    }))
}

/// Stores the baselines, with the figures that the policy discloses. Under a ladder, each has a value
/// of its own on the grid.
async fn insert_baselines(
    db: &mut store::PgConnection,
    suite: &publish::NewSuite<'_>,
    baselines: &[Baseline],
    policy: DisclosurePolicy,
) -> Result<()> {
    for (place, baseline) in baselines.iter().enumerate() {
        let figures = baseline.score.figures.clone();
        let disclosed = policy.disclose_own(figures, suite.ladder, &[]);
        let disclosed = disclosed.map_err(Error::from)?;
        let (suite_id, version) = (suite.suite_id, suite.version);
        store::baselines::insert(db, suite_id, version, place, baseline, &disclosed).await?;
    }
    Ok(())
}

/// Stores the retest answers in batches, like the items.
async fn insert_retest(
    db: &mut store::PgConnection,
    suite: &publish::NewSuite<'_>,
    lines: &[RetestLine],
) -> Result<()> {
    let (suite_id, version) = (suite.suite_id, suite.version);
    for (batch, lines) in lines.chunks(BATCH).enumerate() {
        let first = i32::try_from(batch * BATCH).map_err(Error::internal)?;
        let item_ids: Vec<&str> = lines.iter().map(|line| line.item_id.as_str()).collect();
        let answers: Vec<&str> = lines.iter().map(|line| line.answers.get()).collect();
        publish::insert_retest(db, suite_id, version, first, &item_ids, &answers).await?;
    }
    Ok(())
}

/// Stores the noise floors for open and for sealed items.
async fn insert_floors(
    db: &mut store::PgConnection,
    suite: &publish::NewSuite<'_>,
    floor: &FolderFloor,
) -> Result<()> {
    let (suite_id, version) = (suite.suite_id, suite.version);
    publish::insert_floor(db, suite_id, version, false, floor.open.value).await?;
    if let Some(sealed) = &floor.sealed {
        publish::insert_floor(db, suite_id, version, true, sealed.value).await?;
    }
    Ok(())
}

/// Stores the catalog in batches, like the items.
async fn insert_catalog(
    db: &mut store::PgConnection,
    suite: &publish::NewSuite<'_>,
    lines: &[CatalogLine],
) -> Result<()> {
    let (suite_id, version) = (suite.suite_id, suite.version);
    for (batch, lines) in lines.chunks(BATCH).enumerate() {
        let first = i32::try_from(batch * BATCH).map_err(Error::internal)?;
        let ids: Vec<&str> = lines.iter().map(|line| line.id.as_str()).collect();
        let popularity: Vec<f64> = lines.iter().map(|line| line.popularity).collect();
        publish::insert_catalog(db, suite_id, version, first, &ids, &popularity).await?;
    }
    Ok(())
}

/// Checks the baselines' names and pages like a board entry's.
fn check_baselines(suite: &mut SuiteFolder) -> Result<()> {
    let mut shown: HashMap<String, String> = HashMap::new();
    for baseline in &mut suite.baselines {
        let bad = |reason: String| {
            refused(format!(
                "suite.toml: baselines: {:?}: {reason}",
                baseline.name
            ))
        };
        let name = entry_name(&baseline.name).map_err(|error| bad(error.message))?;
        let url = baseline.url.as_deref().map(entry_url).transpose();
        let url = url.map_err(|error| bad(format!("url {}", error.message)))?;
        let keys = NameKeys::of(&name);
        for key in [keys.folded, keys.shown] {
            if let Some(other) = shown.insert(key, name.clone())
                && other != name
            {
                return Err(bad(format!("looks the same as the name {other:?}")));
            }
        }
        baseline.name = name;
        baseline.url = url;
    }
    Ok(())
}

/// Returns the slices with their grids, if the policy is a ladder.
fn stored_slices(fields: &[FolderSlices], audit: &Audit<'_>) -> Vec<StoredSlices> {
    let grids = audit.slice_ladders();
    let stored = |(at, field): (usize, &FolderSlices)| {
        let slice = |(code, slice): (usize, &Slice)| StoredSlice {
            group: slice.group.clone(),
            n: slice.n as i64,
            ladder: grids.as_ref().map(|grids| {
                let Ladder {
                    start,
                    step,
                    levels,
                } = grids[at][code];
                (start, step, levels)
            }),
        };
        StoredSlices {
            field: field.field.clone(),
            is_hidden: field.is_hidden,
            groups: field.slices.iter().enumerate().map(slice).collect(),
        }
    };
    fields.iter().enumerate().map(stored).collect()
}

fn columns(items: &[FolderItem]) -> ItemColumns<'_> {
    let mut columns = ItemColumns::default();
    for item in items {
        columns.item_ids.push(&item.item_id);
        columns.inputs.push(item.input.get());
        columns
            .groups
            .push(item.groups.as_ref().map(Groups::to_json));
        columns.answers.push(item.answer.get());
        columns.n_people.push(item.n.map(u32::cast_signed));
        columns
            .skill_groups
            .push(item.skill_group.map(u32::cast_signed));
        columns.sealed.push(item.is_sealed);
        let hidden = item.hidden_groups.as_ref();
        columns.hidden_groups.push(hidden.map(Groups::to_json));
        columns.clusters.push(item.cluster.map(u32::cast_signed));
        let slices = Some(item.slices.as_slice());
        columns
            .slices
            .push(slices.filter(|slices| !slices.is_empty()));
    }
    columns
}

/// `suite audit`: reports the share of a folder's answers that callers could compute, under its own
/// disclosure policy and under others. It publishes nothing, and needs no database.
pub fn suite_audit(folder: &Path) -> Result<Value> {
    let suite = read_suite(folder)?;
    let mut report = Audit::new(&suite)?.report();
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
    let mut suite = SuiteFolder::read(folder).map_err(bad_suite)?;
    check_baselines(&mut suite)?;
    if let Some(paths) = &suite.sequence {
        let check = |item: &FolderItem| {
            item_sequence::from_item(&item.item_id, item.input.get(), paths).map(drop)
        };
        suite.check_items(check).map_err(bad_suite)?;
    }
    Ok(suite)
}

fn suite_id(value: &str) -> Result<SuiteId> {
    value
        .parse()
        .map_err(|_| refused(format!("{value:?} is not the id of a suite")))
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
    let mut retired = Vec::new();
    let mut n_answers = 0;
    for version in versions {
        let suite = SuiteVersion {
            suite_id: suite_id.clone(),
            version: version.clone(),
        };
        let opened = commitment::retire(&mut transaction, &suite)
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
    transaction.commit().await?;
    Ok(json!({"suite_id": suite_id, "retired": retired}))
}

fn not_retired(suite: &SuiteVersion, reason: NotRetired) -> CommandError {
    let SuiteVersion { suite_id, version } = suite;
    refused(match reason {
        NotRetired::Missing => format!("there is no version {version} of {suite_id}"),
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
