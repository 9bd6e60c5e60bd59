//! Published suites, without their answers.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use assay_eval::Metric;
use serde_json::value::RawValue;
use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::baselines::SuiteBaseline;
use crate::model::ceiling::Ceiling;
use crate::model::error::{Error, Result};
use crate::model::error_details::SuiteAccess;
use crate::model::ids::OrgId;
use crate::model::skill::SuiteSkill;
use crate::model::slices::{StoredSlices, SuiteSlices};
use crate::model::suite::{
    Allowance, BoardMode, LadderGrid, OpenedFile, Suite, SuiteAverage, SuiteId, SuiteSequence,
};
use crate::model::suite_items::{PageExtent, SuiteItem};
use crate::model::timestamp::Timestamp;
use assay_eval::prediction::PredictionRules;
use assay_eval::suite::SequencePaths;
use assay_eval::{DisclosurePolicy, Ladder, QuantileLevels};

/// One suite version.
#[derive(Debug, Clone)]
pub struct SuiteRow {
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The row's version.
    pub version: String,
    /// The metric's name.
    pub metric: String,
    /// Number of items, open and sealed.
    pub n_items: i32,
    /// `true` if single items' scores may be read.
    pub per_item_feedback: bool,
    /// The description for users.
    pub description: String,
    /// The disclosure policy.
    pub release: String,
    /// The submissions that an organization may make a day. `None` if unlimited.
    pub max_submissions_per_day: Option<i32>,
    /// The submissions that an organization may make for good. `None` if unlimited.
    pub max_submissions: Option<i32>,
    /// The condition under which organizations may submit.
    pub access: SuiteAccess,
    /// The bounds of one item's loss.
    pub clip: Option<Vec<f64>>,
    /// A ladder's grid: its start, step and level count.
    pub ladder_start: Option<f64>,
    #[expect(missing_docs, reason = "see ladder_start")]
    pub ladder_step: Option<f64>,
    #[expect(missing_docs, reason = "see ladder_start")]
    pub ladder_levels: Option<i32>,
    /// Sealed item count.
    pub n_sealed: i32,
    /// The time at which the suite and its board close.
    pub closes_at: Option<Timestamp>,
    /// The times at which the board shows figures.
    pub board: BoardMode,
    /// The events' path in an item's input, if the suite is about sequences.
    pub sequence_events: Option<String>,
    /// The options' path in an item's input, if it has some.
    pub sequence_options: Option<String>,
    /// The group field of items that are not independent, or `none`.
    pub cluster: Option<String>,
    /// `true` if the field is in the lines of answers.
    pub cluster_is_hidden: bool,
    /// Number of clusters, open and sealed.
    pub n_clusters: Option<i32>,
    /// The slices, by field. Those of hidden fields are left out.
    pub slices: Json<Vec<StoredSlices>>,
    /// The baselines, in their order.
    pub baselines: Vec<Json<SuiteBaseline>>,
    /// The disclosed ceiling of the open items, if there is a retest.
    pub ceiling: Option<Json<Ceiling>>,
    /// The average that a value is.
    pub average: SuiteAverage,
    /// The options of each answer, in their order; empty if the suite names none.
    pub labels: Vec<String>,
    /// The levels of predicted quantiles; empty unless predictions are quantiles.
    pub quantiles: Vec<f64>,
    /// The baseline of the skill.
    pub skill: Option<Json<SuiteSkill>>,
    /// The commitment to the items and answers, in lower-case hex.
    pub suite_commitment: String,
    /// `true` if the version has retired: its answers are public.
    pub is_retired: bool,
}

/// Converts the columns with a sequence's places.
pub(in crate::store) fn sequence_paths(
    events: Option<String>,
    options: Option<String>,
) -> Option<SequencePaths> {
    Some(SequencePaths {
        events: events?,
        options,
    })
}

/// Converts a ladder grid's columns, which are null together.
pub(in crate::store) fn ladder(
    start: Option<f64>,
    step: Option<f64>,
    levels: Option<i32>,
) -> Option<Ladder> {
    Some(Ladder {
        start: start?,
        step: step?,
        levels: levels?.unsigned_abs(),
    })
}

/// Converts the column with the levels of predicted quantiles, which is empty without them.
pub(in crate::store) fn quantile_levels(values: &[f64]) -> Result<Option<QuantileLevels>> {
    let levels = (!values.is_empty()).then(|| QuantileLevels::published(values));
    Ok(levels.transpose()?)
}

impl SuiteRow {
    /// Returns the suite as its callers see it. `hfm_sha` is the build that scores it.
    pub fn into_suite(self, hfm_sha: &str) -> Suite {
        let ladder = self.ladder().map(LadderGrid::from);
        let SuiteRow {
            suite_id,
            version,
            metric,
            n_items,
            per_item_feedback,
            description,
            release,
            max_submissions_per_day,
            max_submissions,
            access,
            clip,
            ladder_start: _,
            ladder_step: _,
            ladder_levels: _,
            n_sealed,
            closes_at,
            board,
            sequence_events,
            sequence_options,
            cluster,
            cluster_is_hidden,
            n_clusters,
            slices: Json(slices),
            baselines,
            ceiling,
            average,
            labels,
            quantiles,
            skill,
            suite_commitment,
            is_retired: _,
        } = self;
        Suite {
            suite_id,
            version,
            lower_is_better: metric.parse::<Metric>().is_ok_and(Metric::lower_is_better),
            metric,
            n_items: i64::from(n_items),
            per_item_feedback,
            description,
            hfm_sha: hfm_sha.to_owned(),
            release,
            max_submissions_per_day: max_submissions_per_day.map(i64::from),
            max_submissions: max_submissions.map(i64::from),
            access,
            clip: clip.and_then(|clip| clip.try_into().ok()),
            ladder,
            n_sealed: i64::from(n_sealed),
            closes_at,
            board,
            sequence: sequence_events.map(|events| SuiteSequence {
                events,
                options: sequence_options,
            }),
            suite_commitment: Some(suite_commitment),
            cluster,
            cluster_is_hidden,
            n_clusters: n_clusters.map(i64::from),
            slices: slices.into_iter().map(SuiteSlices::from).collect(),
            baselines: baselines.into_iter().map(|Json(one)| one).collect(),
            ceiling: ceiling.map(|Json(ceiling)| ceiling),
            average,
            labels,
            quantiles,
            skill: skill.map(|Json(skill)| skill),
        }
    }

    /// Returns the rules for predictions.
    pub fn prediction_rules(&self) -> Result<PredictionRules> {
        Ok(PredictionRules::published(&self.metric, &self.quantiles)?)
    }

    /// Returns `true` if not every organization may submit to the version.
    pub fn is_restricted(&self) -> bool {
        self.is_retired || self.access != SuiteAccess::Everyone
    }

    /// Returns the version's ladder grid.
    pub fn ladder(&self) -> Option<Ladder> {
        ladder(self.ladder_start, self.ladder_step, self.ladder_levels)
    }

    /// Returns the sequence's places in an item's input, if the suite is about sequences.
    pub fn sequence(&self) -> Option<SequencePaths> {
        sequence_paths(self.sequence_events.clone(), self.sequence_options.clone())
    }

    /// Returns the version's allowance, if it counts or shares submissions.
    pub fn allowance(&self) -> Result<Option<Allowance<'_>>> {
        let Self {
            suite_id,
            version,
            max_submissions,
            max_submissions_per_day,
            board,
            ..
        } = self;
        let is_shared = match DisclosurePolicy::published(&self.release)? {
            DisclosurePolicy::Ladder(_) | DisclosurePolicy::Sealed(_) => true,
            DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_) => {
                max_submissions.is_some()
                    || max_submissions_per_day.is_some()
                    // A board shows the submission count.
                    || *board != BoardMode::Off
            }
        };
        let max_submissions = *max_submissions;
        let max_submissions_per_day = *max_submissions_per_day;
        Ok(is_shared.then_some(Allowance {
            suite_id,
            suite_version: version,
            max_submissions,
            max_submissions_per_day,
        }))
    }
}

/// Returns `true` if the organization may submit to a suite with this access.
pub async fn may_submit(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    access: SuiteAccess,
) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"
        select case $3::text
            when 'everyone' then true
            when 'verified_domain' then exists(
                select from domain_claims
                where org_id = $1
                  and verified_at is not null
            )
            else exists(select from suite_grants where org_id = $1 and suite_id = $2)
        end as "may!"
        "#,
        org_id.as_str(),
        suite_id.as_str(),
        access.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(may)
}

/// Selects [`SuiteRow`]s. The first argument is `select`, with `distinct` if needed, the second one follows the joined tables.
macro_rules! select_suites {
    ($select:literal, $rest:literal $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            SuiteRow,
            $select + r#"
                s.suite_id as "suite_id: SuiteId",
                version,
                metric,
                n_items,
                per_item_feedback,
                description,
                release,
                max_submissions_per_day,
                max_submissions,
                access as "access: SuiteAccess",
                clip,
                ladder_start,
                ladder_step,
                ladder_levels,
                n_sealed,
                closes_at as "closes_at: Timestamp",
                board as "board: BoardMode",
                sequence_events,
                sequence_options,
                cluster,
                cluster_is_hidden,
                n_clusters,
                slices as "slices: Json<Vec<StoredSlices>>",
                array(
                    select jsonb_build_object(
                        'name', b.name,
                        'kind', b.kind,
                        'url', b.url,
                        'value', b.value,
                        'stderr', b.stderr,
                        'ci95', b.ci95,
                        'n_missing', b.n_missing,
                        'sealed', (
                            select jsonb_build_object(
                                'value', v.value,
                                'stderr', v.stderr,
                                'ci95', v.ci95,
                                'n_missing', v.n_missing
                            )
                            from closed_baseline_scores v
                            where v.content_id = b.content_id
                              and v.place = b.place
                        )
                    )
                    from suite_baselines b
                    where b.content_id = s.content_id
                    order by b.place
                ) as "baselines!: Vec<Json<SuiteBaseline>>",
                ceiling as "ceiling: Json<Ceiling>",
                average as "average: SuiteAverage",
                labels,
                quantiles,
                skill as "skill: Json<SuiteSkill>",
                encode(c.commitment, 'hex') as "suite_commitment!",
                c.retired_at is not null as "is_retired!"
            from suites s
            join suite_commitments c on c.suite_id = s.suite_id and c.suite_version = s.version
            "# + $rest
            $(, $argument)*
        )
    };
}

/// Returns the current version of each suite, by id.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<SuiteRow>> {
    let rows = select_suites!(
        "select distinct on (s.suite_id)",
        "
        order by s.suite_id, s.published_at desc
        "
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns suites in their current versions, by id.
pub async fn find_all(
    db: impl PgExecutor<'_>,
    suite_ids: &[SuiteId],
) -> Result<HashMap<SuiteId, Arc<SuiteRow>>> {
    let suite_ids: Vec<&str> = suite_ids.iter().map(SuiteId::as_str).collect();
    let rows = select_suites!(
        "select distinct on (s.suite_id)",
        "
        where s.suite_id = any($1)
        order by s.suite_id, s.published_at desc
        ",
        &suite_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    let by_id = |row: SuiteRow| (row.suite_id.clone(), Arc::new(row));
    Ok(rows.into_iter().map(by_id).collect())
}

/// Returns a suite in the given version, or in its current one.
pub async fn find(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: Option<&str>,
) -> Result<Option<SuiteRow>> {
    let row = select_suites!(
        "select",
        "
        where s.suite_id = $1
          and ($2::text is null or s.version = $2)
        order by s.published_at desc
        limit 1
        ",
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Measures the page with at most `limit` items and `bytes_max` bytes that begins at a version's given
/// ordinal. It has at least one item, unless the version ends there.
pub async fn items_extent(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    from: i32,
    limit: u32,
    bytes_max: u32,
) -> Result<PageExtent> {
    page_extent(
        db,
        OpenedFile::Items,
        suite_id,
        version,
        from,
        (limit, bytes_max),
    )
    .await
}

/// Does the same for one of a version's opened files, or for its items. `max` has the number and the bytes.
pub(in crate::store) async fn page_extent(
    db: impl PgExecutor<'_>,
    file: OpenedFile,
    suite_id: &SuiteId,
    version: &str,
    from: i32,
    max: (u32, u32),
) -> Result<PageExtent> {
    let (items_max, bytes_max) = max;
    let row = sqlx::query!(
        r#"
        select
            items as "items!",
            bytes as "bytes!"
        from page_extent($1, $2, $3, $4, $5, $6)
        "#,
        file.as_str(),
        suite_id.as_str(),
        version,
        from,
        i32::try_from(items_max).unwrap_or(i32::MAX),
        i64::from(bytes_max)
    )
    .fetch_one(db)
    .await?;
    Ok(PageExtent {
        items: row.items.unsigned_abs(),
        bytes: row.bytes.unsigned_abs(),
    })
}

/// Returns at most `limit` of a version's items, from the given ordinal on.
pub async fn items(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    from: i32,
    limit: u32,
) -> Result<Vec<SuiteItem>> {
    let rows = sqlx::query!(
        r#"
        select
            item_id,
            input as "input: Json<Box<RawValue>>",
            groups as "groups: Json<BTreeMap<String, String>>"
        from suite_items
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and ordinal >= $3
        order by ordinal
        limit $4
        "#,
        suite_id.as_str(),
        version,
        from,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| SuiteItem {
            item_id: row.item_id,
            input: row.input.0,
            groups: row.groups.map(|groups| groups.0).unwrap_or_default(),
        })
        .collect())
}

/// Returns at most `limit` of a version's item ids, from the given ordinal on.
pub async fn item_ids(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    from: i32,
    limit: u32,
) -> Result<Vec<String>> {
    let ids = sqlx::query_scalar!(
        "
        select item_id
        from suite_items
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and ordinal >= $3
        order by ordinal
        limit $4
        ",
        suite_id.as_str(),
        version,
        from,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(ids)
}

/// Returns the clusters of a version's open items with these places among them, which begin with a
/// multiple of [`CLUSTERS_PER_ROW`](super::publish::CLUSTERS_PER_ROW).
pub async fn clusters(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    places: Range<u64>,
) -> Result<Vec<u32>> {
    let place = |place: u64| i32::try_from(place).map_err(Error::internal);
    let rows = sqlx::query_scalar!(
        "
        select clusters
        from suite_clusters
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and first >= $3
          and first < $4
        order by first
        ",
        suite_id.as_str(),
        version,
        place(places.start)?,
        place(places.end)?
    )
    .fetch_all(db)
    .await?;
    let clusters: Vec<u32> = rows
        .iter()
        .flat_map(|row| row.as_chunks().0)
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect();
    if clusters.len() as u64 != places.end - places.start {
        return Err(Error::internal(
            "a suite was published without the clusters of all items",
        ));
    }
    Ok(clusters)
}
