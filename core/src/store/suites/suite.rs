//! Published suites, without their answers.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use assay_eval::Metric;
use serde_json::value::RawValue;
use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};

use crate::model::baselines::SuiteBaseline;
use crate::model::ceiling::Ceiling;
use crate::model::error::{Error, Result};
use crate::model::error_details::SuiteAccess;
use crate::model::ids::OrgId;
use crate::model::skill::SuiteSkill;
use crate::model::slices::{StoredSlices, SuiteSlices};
use crate::model::suite::{
    Allowance, BoardMode, LadderGrid, OpenedFile, Suite, SuiteAverage, SuiteErratum, SuiteId,
    SuiteOwner, SuiteSequence, SuiteStatus, SuiteText, SuiteVersion, SuiteVisibility,
};
use crate::model::suite_items::{PageExtent, SuiteItem};
use crate::model::timestamp::Timestamp;
use assay_eval::prediction::PredictionRules;
use assay_eval::suite::SequencePaths;
use assay_eval::{DisclosurePolicy, Ladder, QuantileLevels};

/// One suite version, as an organization sees it, or a caller without a credential.
#[derive(Debug, Clone)]
pub struct SuiteRow {
    /// The organization that sees it.
    pub seen_by: Option<OrgId>,
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The row's version.
    pub version: String,
    /// The content of the version.
    pub content_id: i64,
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
    /// The organization that published the suite. `None` if the operator did.
    pub owner: Option<Json<SuiteOwner>>,
    /// The callers who can see the suite.
    pub visibility: SuiteVisibility,
    /// The texts that hold for all versions.
    pub metadata: Json<SuiteText>,
    /// The notes about errors.
    pub errata: Json<Vec<SuiteErratum>>,
    /// `true` while the operator has suspended the suite.
    pub is_suspended: bool,
    /// `true` if the operator has deleted the version's items and answers.
    pub is_removed: bool,
    /// The time of the version's publication.
    pub published_at: Timestamp,
    /// The time of the suite's last change.
    pub updated_at: Timestamp,
    /// `true` if `access` lets the organization submit.
    pub can_submit: bool,
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
        let status = self.status();
        let SuiteRow {
            seen_by,
            suite_id,
            version,
            content_id: _,
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
            owner,
            visibility,
            metadata: Json(metadata),
            errata: Json(errata),
            is_suspended: _,
            is_removed: _,
            published_at,
            updated_at,
            can_submit,
        } = self;
        let SuiteText {
            title,
            description: changed_description,
            license,
            citation,
            links,
            tags,
            contact,
        } = metadata;
        Suite {
            title: title.unwrap_or_else(|| suite_id.to_string()),
            suite_id,
            version,
            lower_is_better: metric.parse::<Metric>().is_ok_and(Metric::lower_is_better),
            metric,
            n_items: i64::from(n_items),
            per_item_feedback,
            description: changed_description.unwrap_or(description),
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
            owner: owner.map(|Json(owner)| owner),
            visibility,
            status,
            license,
            citation,
            links,
            tags,
            contact: contact.filter(|_| seen_by.is_some()),
            published_at,
            updated_at,
            can_submit: can_submit && status == SuiteStatus::Active,
            errata,
        }
    }

    /// Returns the version's state.
    pub const fn status(&self) -> SuiteStatus {
        SuiteStatus::new(self.is_removed, self.is_suspended, self.is_retired)
    }

    /// Returns the rules for predictions.
    pub fn prediction_rules(&self) -> Result<PredictionRules> {
        Ok(PredictionRules::published(&self.metric, &self.quantiles)?)
    }

    /// Returns `true` if the organization may not submit to the version.
    pub fn is_closed_to_caller(&self) -> bool {
        self.status() != SuiteStatus::Active || !self.can_submit
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

/// Selects [`SuiteRow`]s. The first argument is `select`, with `distinct` if needed, the second one the relation `w`, whose column
/// `seen_by` is an organization or null, and the third one follows the joined tables.
macro_rules! select_suites {
    ($select:literal, $seen_by:literal, $rest:literal $(, $argument:expr)* $(,)?) => {
        sqlx::query_as!(
            SuiteRow,
            $select + r#"
                w.seen_by as "seen_by?: OrgId",
                s.suite_id as "suite_id: SuiteId",
                version,
                content_id,
                metric,
                n_items,
                per_item_feedback,
                description,
                release,
                max_submissions_per_day,
                max_submissions,
                o.access as "access!: SuiteAccess",
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
                c.retired_at is not null as "is_retired!",
                o.owner as "owner?: Json<SuiteOwner>",
                o.visibility as "visibility!: SuiteVisibility",
                o.metadata as "metadata!: Json<SuiteText>",
                o.errata as "errata!: Json<Vec<SuiteErratum>>",
                o.suspended_at is not null as "is_suspended!",
                s.removed_at is not null as "is_removed!",
                s.published_at as "published_at: Timestamp",
                o.updated_at as "updated_at!: Timestamp",
                o.can_submit as "can_submit!"
            from "# + $seen_by + r#"
            cross join lateral visible_suites(w.seen_by) o
            join suites s on s.suite_id = o.suite_id
            join suite_commitments c on c.suite_id = s.suite_id and c.suite_version = s.version
            "# + $rest
            $(, $argument)*
        )
    };
}

/// The suites that a page lists: those that the organization sees, by id, after an id, and perhaps those of
/// one publisher.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// The organization.
    pub org_id: &'a OrgId,
    /// The publisher's handle. `None`: all publishers.
    pub handle: Option<&'a str>,
    /// The id after which the page begins.
    pub after: Option<&'a str>,
}

/// Measures the page with less than `rows` suites and at most `bytes_max` bytes of JSON, approximately. It has
/// at least one suite, unless none follows. Returns also whether further suites follow.
pub async fn list_extent(
    db: impl PgExecutor<'_>,
    wanted: Listed<'_>,
    rows: i64,
    bytes_max: u32,
) -> Result<(PageExtent, bool)> {
    let Listed {
        org_id,
        handle,
        after,
    } = wanted;
    let extent = sqlx::query!(
        r#"
        with listed as (
            select distinct on (s.suite_id)
                s.suite_id,
                1536
                    + octet_length(s.description)
                    + octet_length(s.slices::text)
                    + octet_length(array_to_json(s.labels)::text)
                    + octet_length(array_to_json(s.quantiles)::text)
                    + octet_length(o.metadata::text)
                    + octet_length(o.errata::text)
                    + 768 * (select count(*) from suite_baselines b where b.content_id = s.content_id) as bytes
            from visible_suites($1) o
            join suites s on s.suite_id = o.suite_id
            where ($2::text is null or o.owner ->> 'handle' = $2)
              and ($3::text is null or s.suite_id > $3)
            order by s.suite_id, s.published_at desc
            limit $4
        ), fitting as (
            select
                bytes,
                n = 1 or (n < $4 and total <= $5::bigint) as fits
            from (
                select
                    bytes,
                    row_number() over by_id as n,
                    sum(bytes) over by_id as total
                from listed
                window by_id as (order by suite_id)
            ) summed
        )
        select
            count(*) filter (where fits) as "items!",
            coalesce(sum(bytes) filter (where fits), 0)::bigint as "bytes!",
            coalesce(bool_or(not fits), false) as "has_next!"
        from fitting
        "#,
        org_id.as_str(),
        handle,
        after,
        rows,
        i64::from(bytes_max)
    )
    .fetch_one(db)
    .await?;
    let page = PageExtent {
        items: u32::try_from(extent.items).unwrap_or(u32::MAX),
        bytes: extent.bytes.unsigned_abs(),
    };
    Ok((page, extent.has_next))
}

/// Returns the first `limit` suites of a page, each in its current version.
pub async fn list(
    db: impl PgExecutor<'_>,
    wanted: Listed<'_>,
    limit: u32,
) -> Result<Vec<SuiteRow>> {
    let Listed {
        org_id,
        handle,
        after,
    } = wanted;
    let rows = select_suites!(
        "select distinct on (s.suite_id)",
        "(select $1::text as seen_by) w",
        "
        where ($2::text is null or o.owner ->> 'handle' = $2)
          and ($3::text is null or s.suite_id > $3)
        order by s.suite_id, s.published_at desc
        limit $4
        ",
        org_id.as_str(),
        handle,
        after,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// Returns suites in their current versions, each for the organization that looks it up and sees it.
pub async fn find_all(
    db: impl PgExecutor<'_>,
    wanted: &[(OrgId, SuiteId)],
) -> Result<HashMap<(OrgId, SuiteId), Arc<SuiteRow>>> {
    let (org_ids, suite_ids): (Vec<&str>, Vec<&str>) = wanted
        .iter()
        .map(|(org_id, suite_id)| (org_id.as_str(), suite_id.as_str()))
        .unzip();
    let rows = select_suites!(
        "select distinct on (w.seen_by, s.suite_id)",
        "unnest($1::text[], $2::text[]) as w (seen_by, wanted_id)",
        "
        where s.suite_id = w.wanted_id
        order by w.seen_by, s.suite_id, s.published_at desc
        ",
        &org_ids as &[&str],
        &suite_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    let by_caller = |row: SuiteRow| {
        let key = (row.seen_by.clone()?, row.suite_id.clone());
        Some((key, Arc::new(row)))
    };
    Ok(rows.into_iter().filter_map(by_caller).collect())
}

/// Returns a suite that the organization, or a caller without a credential, sees: in the given version, or in
/// its current one.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
    version: Option<&str>,
) -> Result<Option<SuiteRow>> {
    let row = select_suites!(
        "select",
        "(select $1::text as seen_by) w",
        "
        where s.suite_id = $2
          and ($3::text is null or s.version = $3)
        order by s.published_at desc
        limit 1
        ",
        org_id.map(OrgId::as_str),
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Counts a suite's versions and its errata's bytes. `None` if the organization, or a caller without a credential, does not see the
/// suite.
pub async fn versions_extent(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
) -> Result<Option<(u64, u64)>> {
    let row = sqlx::query!(
        r#"
        select
            (select count(*) from suites s where s.suite_id = o.suite_id) as "versions!",
            octet_length(o.errata::text) as "errata!"
        from visible_suites($1) o
        where o.suite_id = $2
        "#,
        org_id.map(OrgId::as_str),
        suite_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        (
            row.versions.unsigned_abs(),
            row.errata.unsigned_abs().into(),
        )
    }))
}

/// Returns a suite's newest versions, or only one, if the organization, or a caller without a credential, sees it.
pub async fn versions(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
    only: Option<&str>,
    limit: i64,
) -> Result<Vec<SuiteVersion>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: who sees a suite also sees that a version is going to retire */
        select
            s.suite_id as "suite_id: SuiteId",
            s.version,
            s.n_items,
            s.release,
            s.closes_at as "closes_at: Timestamp",
            s.published_at as "published_at: Timestamp",
            encode(c.commitment, 'hex') as "suite_commitment!",
            s.removed_at is not null as "is_removed!",
            o.suspended_at is not null as "is_suspended!",
            c.retired_at is not null as "is_retired!",
            exists(
                select from suite_retirements r
                where r.suite_id = s.suite_id
                  and r.suite_version = s.version
                  and r.outcome is null
            ) as "is_retiring!",
            (
                select coalesce(jsonb_agg(e.erratum order by e.place), '[]')
                from jsonb_array_elements(o.errata) with ordinality e (erratum, place)
                where e.erratum ->> 'version' = s.version
            ) as "errata!: Json<Vec<SuiteErratum>>"
        from visible_suites($1) o
        join suites s on s.suite_id = o.suite_id
        join suite_commitments c on c.suite_id = s.suite_id and c.suite_version = s.version
        where o.suite_id = $2
          and ($3::text is null or s.version = $3)
        order by s.published_at desc
        limit $4
        "#,
        org_id.map(OrgId::as_str),
        suite_id.as_str(),
        only,
        limit
    )
    .fetch_all(db)
    .await?;
    let versions = rows.into_iter().map(|row| SuiteVersion {
        suite_id: row.suite_id,
        status: match SuiteStatus::new(row.is_removed, row.is_suspended, row.is_retired) {
            SuiteStatus::Active if row.is_retiring => SuiteStatus::Retiring,
            status => status,
        },
        n_items: row.n_items.into(),
        release: row.release,
        closes_at: row.closes_at,
        suite_commitment: row.suite_commitment,
        published_at: row.published_at,
        errata: row.errata.0,
        version: row.version,
    });
    Ok(versions.collect())
}

/// Measures the page with at most `limit` items and `bytes_max` bytes that begins at a content's given
/// ordinal. It has at least one item, unless the content ends there.
pub async fn items_extent(
    db: impl PgExecutor<'_>,
    content_id: i64,
    from: i32,
    limit: u32,
    bytes_max: u32,
) -> Result<PageExtent> {
    extent(
        db,
        OpenedFile::Items,
        None,
        Some(content_id),
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
    extent(db, file, Some((suite_id, version)), None, from, max).await
}

async fn extent(
    db: impl PgExecutor<'_>,
    file: OpenedFile,
    suite: Option<(&SuiteId, &str)>,
    content_id: Option<i64>,
    from: i32,
    max: (u32, u32),
) -> Result<PageExtent> {
    let (items_max, bytes_max) = max;
    let (suite_id, version) = suite.unzip();
    let row = sqlx::query!(
        r#"
        select
            items as "items!",
            bytes as "bytes!"
        from page_extent($1, $2, $3, $4, $5, $6, $7)
        "#,
        file.as_str(),
        suite_id.map(SuiteId::as_str),
        version,
        content_id,
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

/// Returns at most `limit` of a content's items, from the given ordinal on. None if its version was removed.
pub async fn items(
    db: impl PgExecutor<'_>,
    content_id: i64,
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
        where content_id = $1
          and ordinal >= $2
          and not exists (select from suites s where s.content_id = $1 and s.removed_at is not null)
        order by ordinal
        limit $3
        "#,
        content_id,
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

/// Returns the content of a published version.
pub async fn content_id(db: impl PgExecutor<'_>, suite_id: &SuiteId, version: &str) -> Result<i64> {
    let content_id = sqlx::query_scalar!(
        "select content_id from suites where suite_id = $1 and version = $2",
        suite_id.as_str(),
        version
    );
    Ok(content_id.fetch_one(db).await?)
}

/// Returns an error if the operator has removed a version. What was read of its content before is complete
/// otherwise.
pub async fn ensure_not_removed(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<()> {
    let is_removed = sqlx::query_scalar!(
        r#"
        select exists(
            select from suites
            where suite_id = $1
              and version = $2
              and removed_at is not null
        ) as "is_removed!"
        "#,
        suite_id.as_str(),
        version
    );
    if is_removed.fetch_one(db).await? {
        return Err(Error::suite_removed());
    }
    Ok(())
}

/// Returns at most `limit` of a version's item ids, from the given ordinal on. None if the version was removed.
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
        where content_id = (
                select content_id
                from suites
                where suite_id = $1
                  and version = $2
                  and removed_at is null
            )
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
///
/// # Errors
/// 409 if the version was removed.
pub async fn clusters(
    db: &PgPool,
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
        ensure_not_removed(db, suite_id, version).await?;
        return Err(Error::internal(
            "a suite was published without the clusters of all items",
        ));
    }
    Ok(clusters)
}
