//! The content of a version: what is stored of a checked folder before the version is published.

use assay_audit::Audit;
use assay_core::model::ceiling::Ceiling;
use assay_core::model::ids::OrgId;
use assay_core::model::skill::SuiteSkill;
use assay_core::model::slices::{StoredSlice, StoredSlices};
use assay_core::store::publish::{self, ItemColumns, NewContent, NewSuite};
use assay_core::store::{PgConnection, baselines, commitment};
use assay_core::{Error, Result, Timestamp};
use assay_eval::clusters::Clusters;
use assay_eval::slices::Slice;
use assay_eval::suite::{
    ClusterKey, FolderItem, FolderSlices, Groups, SuiteFolder, Visibility, baselines_sha256,
    write_answer_line, write_line,
};
use assay_eval::{Ladder, QuantileLevels};

/// Number of items that one statement stores.
const BATCH: usize = 5_000;

/// A checked folder with the figures that are stored with it.
pub struct Prepared<'f> {
    folder: &'f SuiteFolder,
    ladder: Option<Ladder>,
    closes_at: Option<Timestamp>,
    /// Number of items, open and sealed.
    pub n_items: i32,
    /// Sealed item count.
    pub n_sealed: i32,
    /// Bytes of the lines of items, answers, retest and catalog, as they are published.
    pub bytes: i64,
    /// The slices with their grids, by field.
    pub slices: Vec<StoredSlices>,
    /// The disclosed ceiling of the open items.
    pub ceiling: Option<Ceiling>,
}

/// Computes what is stored with a folder that [`read`](crate::read) has checked.
pub fn prepare<'f>(folder: &'f SuiteFolder, audit: &Audit<'f>) -> Result<Prepared<'f>> {
    let count = |n: usize| i32::try_from(n).map_err(Error::internal);
    let protection = &folder.protection;
    let retest = folder.retest.as_ref().map(|retest| retest.open);
    let ceiling = retest.or(folder.floor.as_ref().map(|floor| floor.open));
    let ceiling =
        ceiling.map(|ceiling| protection.policy.disclose_ceiling(ceiling, audit.ladder()));
    let closes_at = protection.closes_at.as_deref().map(str::parse);
    Ok(Prepared {
        folder,
        ladder: audit.ladder(),
        // The folder has validated it.
        closes_at: closes_at.transpose().map_err(Error::internal)?,
        n_items: count(folder.items.len())?,
        n_sealed: count(folder.items.iter().filter(|item| item.is_sealed).count())?,
        bytes: line_bytes(folder),
        slices: stored_slices(&folder.slices, audit),
        ceiling: ceiling.transpose()?.map(Ceiling::from),
    })
}

/// Stores the content of a version, and returns its id. `draft` has the draft's id and its organization,
/// and is `None` for the operator's content. `salt` is that of the commitment.
pub async fn store_content(
    db: &mut PgConnection,
    prepared: &Prepared<'_>,
    draft: Option<(&str, &OrgId)>,
    salt: [u8; 32],
) -> Result<i64> {
    let folder = prepared.folder;
    let content_id = insert_content(db, prepared, draft).await?;
    for (first, items) in batches(&folder.items)? {
        publish::insert_items(db, content_id, first, &columns(items)).await?;
    }
    if folder.n_clusters.is_some() {
        let open = folder.items.iter().filter(|item| !item.is_sealed);
        let clusters = Clusters::from_labels(open.filter_map(|item| item.cluster));
        publish::insert_clusters(db, content_id, clusters.item_clusters()).await?;
    }
    publish::insert_hidden_groups(db, content_id, &prepared.slices).await?;
    let retest = folder.retest.iter().flat_map(|retest| &retest.lines);
    for (first, lines) in batches(&retest.collect::<Vec<_>>())? {
        let item_ids: Vec<&str> = lines.iter().map(|line| line.item_id.as_str()).collect();
        let answers: Vec<&str> = lines.iter().map(|line| line.answers.get()).collect();
        publish::insert_retest(db, content_id, first, &item_ids, &answers).await?;
    }
    if let Some(floor) = &folder.floor {
        publish::insert_floor(db, content_id, false, floor.open.value).await?;
        if let Some(sealed) = &floor.sealed {
            publish::insert_floor(db, content_id, true, sealed.value).await?;
        }
    }
    let catalog = folder.catalog.iter().flat_map(|catalog| &catalog.lines);
    for (first, lines) in batches(&catalog.collect::<Vec<_>>())? {
        let ids: Vec<&str> = lines.iter().map(|line| line.id.as_str()).collect();
        let popularity: Vec<f64> = lines.iter().map(|line| line.popularity).collect();
        publish::insert_catalog(db, content_id, first, &ids, &popularity).await?;
    }
    for (place, baseline) in folder.baselines.iter().enumerate() {
        // Under a ladder, each has a value of its own on the grid.
        let figures = baseline.score.figures.clone();
        let policy = folder.protection.policy;
        let disclosed = policy.disclose_own(figures, prepared.ladder, &[])?;
        baselines::insert(db, content_id, place, baseline, &disclosed).await?;
    }
    let catalog_sha256 = folder.catalog.as_ref().map(|catalog| catalog.sha256);
    let baselines_sha256 = baselines_sha256(&salt, &folder.baselines);
    let opening = folder.opening(salt);
    commitment::insert_opening(db, content_id, &opening, baselines_sha256, catalog_sha256).await?;
    Ok(content_id)
}

/// Stores the row of the content with the row that publication inserts.
async fn insert_content(
    db: &mut PgConnection,
    prepared: &Prepared<'_>,
    draft: Option<(&str, &OrgId)>,
) -> Result<i64> {
    let Prepared {
        folder,
        ladder,
        closes_at,
        n_items,
        n_sealed,
        bytes,
        slices,
        ceiling,
    } = prepared;
    let protection = &folder.protection;
    let sequence = folder.sequence.as_ref();
    let quantiles: Vec<f64> = folder
        .quantiles
        .iter()
        .flat_map(QuantileLevels::values)
        .collect();
    let skill = folder.skill.as_ref().map(SuiteSkill::from);
    let n_clusters = folder.n_clusters.map(i32::try_from).transpose();
    let version = NewSuite {
        suite_id: &folder.suite_id,
        version: &folder.version,
        metric: &folder.metric.to_string(),
        per_item_feedback: folder.per_item_feedback,
        description: folder.metadata.description.as_deref().unwrap_or_default(),
        n_items: *n_items,
        release: &protection.policy.to_string(),
        max_submissions_per_day: protection.max_submissions_per_day,
        max_submissions: protection.max_submissions,
        access: protection.access.into(),
        clip: protection.clip.map(|clip| [clip.low, clip.high]),
        ladder_start: ladder.map(|ladder| ladder.start),
        ladder_step: ladder.map(|ladder| ladder.step),
        ladder_levels: ladder.map(|ladder| ladder.levels),
        n_sealed: *n_sealed,
        closes_at: *closes_at,
        board: protection.board.into(),
        sequence_events: sequence.map(|paths| paths.events.as_str()),
        sequence_options: sequence.and_then(|paths| paths.options.as_deref()),
        cluster: folder.cluster.as_ref().map(ClusterKey::as_str),
        cluster_is_hidden: folder.cluster_is_hidden,
        n_clusters: n_clusters.map_err(Error::internal)?,
        average: folder.average.as_str(),
        slices: &slices.iter().map(without_hidden).collect::<Vec<_>>(),
        slice_min: i32::try_from(folder.slice_min).map_err(Error::internal)?,
        labels: &folder.labels,
        quantiles: &quantiles,
        skill: skill.as_ref(),
        ceiling: ceiling.as_ref(),
        scorer_min: folder.scorer_min(),
    };
    let content = NewContent {
        draft,
        bytes: *bytes,
        content_sha256: &folder.content_sha256,
        visibility: folder.visibility.map(Visibility::as_str),
        names_access: folder.access.is_some(),
        metadata: &folder.metadata,
        version: &version,
    };
    publish::insert_content(db, &content).await
}

/// Returns the batches of lines, each with the place of its first line.
fn batches<T>(lines: &[T]) -> Result<Vec<(i32, &[T])>> {
    let batches = lines.chunks(BATCH).enumerate();
    batches
        .map(|(batch, lines)| {
            let first = i32::try_from(batch * BATCH).map_err(Error::internal)?;
            Ok((first, lines))
        })
        .collect()
}

/// Returns how many bytes the lines have in the published items, answers, retest and catalog.
fn line_bytes(folder: &SuiteFolder) -> i64 {
    let mut line = Vec::new();
    let mut bytes = 0;
    let mut count = |write: &dyn Fn(&mut Vec<u8>)| {
        line.clear();
        write(&mut line);
        bytes += line.len() as i64;
    };
    for item in &folder.items {
        let (item_id, input, answer) = (&item.item_id, item.input.get(), item.answer.get());
        let groups = item.groups.as_ref().map(Groups::to_json);
        count(&|line| write_line(item_id, "input", input, groups.as_deref(), line));
        let groups = item.hidden_groups.as_ref().map(Groups::to_json);
        count(&|line| write_answer_line(item_id, answer, item.n, groups.as_deref(), line));
    }
    for retest in folder.retest.iter().flat_map(|retest| &retest.lines) {
        let answers = retest.answers.get();
        count(&|line| write_line(&retest.item_id, "answers", answers, None, line));
    }
    for id in folder.catalog.iter().flat_map(|catalog| &catalog.lines) {
        count(&|line| id.write(line));
    }
    bytes
}

/// Returns a field's slices without the groups of a hidden field, which are as secret as the answers.
fn without_hidden(field: &StoredSlices) -> StoredSlices {
    StoredSlices {
        groups: if field.is_hidden {
            Vec::new()
        } else {
            field.groups.clone()
        },
        ..field.clone()
    }
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
