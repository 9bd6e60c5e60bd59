//! Publishing suites. Only the operator's role has the privileges.

use crate::model::ceiling::Ceiling;
use crate::model::error::{Error, Result};
use crate::model::error_details::SuiteAccess;
use crate::model::ids::OrgId;
use crate::model::skill::SuiteSkill;
use crate::model::slices::StoredSlices;
use crate::model::suite::{BoardMode, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use assay_eval::clusters::Average;
use assay_eval::suite::SequencePaths;
use assay_eval::{Clip, Ladder};
use sqlx::types::Json;

/// A suite version's columns, without its items.
pub struct NewSuite<'a> {
    /// The suite's id.
    pub suite_id: &'a SuiteId,
    /// The new version.
    pub version: &'a str,
    /// The metric's name.
    pub metric: &'a str,
    /// `true` if single items' scores may be read.
    pub per_item_feedback: bool,
    /// The description for users.
    pub description: &'a str,
    /// The disclosure policy.
    pub release: &'a str,
    /// The submissions that an organization may make a day. `None` if unlimited.
    pub max_submissions_per_day: Option<i32>,
    /// The submissions that an organization may make for good. `None` if unlimited.
    pub max_submissions: Option<i32>,
    /// The condition under which organizations may submit.
    pub access: SuiteAccess,
    /// The bounds of one item's loss.
    pub clip: Option<Clip>,
    /// The grid, if the disclosure policy is a ladder.
    pub ladder: Option<Ladder>,
    /// Sealed item count.
    pub n_sealed: i32,
    /// The time at which the suite and its board close.
    pub closes_at: Option<Timestamp>,
    /// The times at which the board shows figures.
    pub board: BoardMode,
    /// The sequence's places in an item's input, if the suite is about sequences.
    pub sequence: Option<&'a SequencePaths>,
    /// The group field of items that are not independent, or `none`. `None` if the suite states
    /// nothing.
    pub cluster: Option<&'a str>,
    /// The unit that has equal weights in a value.
    pub average: Average,
    /// `true` if the field is in the lines of answers.
    pub cluster_is_hidden: bool,
    /// Number of clusters, open and sealed.
    pub n_clusters: Option<i32>,
    /// The slices, by field.
    pub slices: &'a [StoredSlices],
    /// A slice's smallest item count.
    pub slice_min: i32,
    /// The options of each answer, in their order; empty if the suite names none.
    pub labels: &'a [String],
    /// The baseline of the skill.
    pub skill: Option<&'a SuiteSkill>,
    /// The disclosed ceiling of the open items.
    pub ceiling: Option<&'a Ceiling>,
    /// The levels of predicted quantiles; empty unless predictions are quantiles.
    pub quantiles: &'a [f64],
    /// The least version of the scorer that a worker needs.
    pub scorer_min: i32,
    /// Number of items, open and sealed.
    pub n_items: i32,
    /// The SHA-256 over everything that is published.
    pub content_sha256: &'a [u8],
}

/// Stores the suite's row. Returns `false` if this version exists already.
pub async fn insert(db: &mut PgConnection, new: &NewSuite<'_>) -> Result<bool> {
    let NewSuite {
        suite_id,
        version,
        metric,
        per_item_feedback,
        description,
        release,
        max_submissions_per_day,
        max_submissions,
        access,
        clip,
        ladder,
        n_sealed,
        closes_at,
        board,
        sequence,
        cluster,
        average,
        cluster_is_hidden,
        n_clusters,
        slices,
        slice_min,
        labels,
        quantiles,
        skill,
        ceiling,
        scorer_min,
        n_items,
        content_sha256,
    } = new;
    let readable = |field: &StoredSlices| StoredSlices {
        groups: if field.is_hidden {
            Vec::new()
        } else {
            field.groups.clone()
        },
        ..field.clone()
    };
    let readable: Vec<StoredSlices> = slices.iter().map(readable).collect();
    let done = sqlx::query!(
        "
        insert into suites (
            suite_id,
            version,
            metric,
            per_item_feedback,
            description,
            n_items,
            content_sha256,
            release,
            max_submissions_per_day,
            max_submissions,
            access,
            clip,
            ladder_start,
            ladder_step,
            ladder_levels,
            n_sealed,
            closes_at,
            sequence_events,
            sequence_options,
            board,
            cluster,
            cluster_is_hidden,
            n_clusters,
            slices,
            slice_min,
            average,
            ceiling,
            scorer_min,
            labels,
            quantiles,
            skill
        )
        values (
            $1,
            $2,
            $3,
            $4,
            $5,
            $6,
            $7,
            $8,
            $9,
            $10,
            $11,
            $12,
            $13,
            $14,
            $15,
            $16,
            $17,
            $18,
            $19,
            $20,
            $21,
            $22,
            $23,
            $24,
            $25,
            $26,
            $27,
            $28,
            $29,
            $30,
            $31
        )
        on conflict do nothing
        ",
        suite_id.as_str(),
        version,
        metric,
        per_item_feedback,
        description,
        n_items,
        content_sha256,
        release,
        *max_submissions_per_day,
        *max_submissions,
        access.as_str(),
        clip.map(|clip| vec![clip.low, clip.high]) as _,
        ladder.map(|ladder| ladder.start),
        ladder.map(|ladder| ladder.step),
        ladder.map(|ladder| i32::try_from(ladder.levels).unwrap_or(i32::MAX)),
        n_sealed,
        *closes_at as Option<Timestamp>,
        sequence.map(|paths| paths.events.as_str()),
        sequence.and_then(|paths| paths.options.as_deref()),
        board.as_str(),
        *cluster,
        cluster_is_hidden,
        *n_clusters,
        Json(readable) as _,
        slice_min,
        average.as_str(),
        ceiling.map(Json) as _,
        scorer_min,
        labels,
        quantiles,
        skill.map(Json) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Stores the retest: each item's answers as a JSON array, in the order of the published file.
pub async fn insert_retest(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    first: i32,
    item_ids: &[&str],
    answers: &[&str],
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_retest (suite_id, version, ordinal, item_id, answers)
        select
            $1,
            $2,
            $3 + (b.place - 1)::integer,
            b.item_id,
            b.answers::json
        from unnest($4::text[], $5::text[]) with ordinality as b(item_id, answers, place)
        ",
        suite_id.as_str(),
        version,
        first,
        item_ids as &[&str],
        answers as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores the exact noise floor of the open or of the sealed items.
pub async fn insert_floor(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    is_sealed: bool,
    value: f64,
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_floors (suite_id, version, is_sealed, value)
        values ($1, $2, $3, $4)
        ",
        suite_id.as_str(),
        version,
        is_sealed,
        value
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores ids of the catalog with their popularity, in the order of the published file.
pub async fn insert_catalog(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    first: i32,
    ids: &[&str],
    popularity: &[f64],
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_catalog (suite_id, version, ordinal, id, popularity)
        select
            $1,
            $2,
            $3 + (b.place - 1)::integer,
            b.id,
            b.popularity
        from unnest($4::text[], $5::double precision[]) with ordinality as b(id, popularity, place)
        ",
        suite_id.as_str(),
        version,
        first,
        ids as &[&str],
        popularity
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores the slices by hidden fields, where only workers can read them.
pub async fn insert_hidden_groups(db: &mut PgConnection, new: &NewSuite<'_>) -> Result<()> {
    for StoredSlices { field, groups, .. } in new.slices.iter().filter(|field| field.is_hidden) {
        sqlx::query!(
            "
            insert into suite_hidden_groups (suite_id, version, field, groups)
            values ($1, $2, $3, $4)
            ",
            new.suite_id.as_str(),
            new.version,
            field,
            Json(groups) as _
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

/// Creates a new version's board, if it has one, and closes earlier versions' live
/// boards: they accept no entries, because jobs are scored on the new version.
pub async fn insert_board(db: &mut PgConnection, new: &NewSuite<'_>) -> Result<()> {
    sqlx::query!(
        "
        update boards
        set closes_at = clock_timestamp()
        where suite_id = $1
          and mode = 'live'
          and (closes_at is null or closes_at > clock_timestamp())
        ",
        new.suite_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    if new.board == BoardMode::Off {
        return Ok(());
    }
    sqlx::query!(
        "
        insert into boards (suite_id, suite_version, mode, closes_at)
        values ($1, $2, $3, $4)
        ",
        new.suite_id.as_str(),
        new.version,
        new.board.as_str(),
        new.closes_at as Option<Timestamp>
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns this version's published content's SHA-256, if it exists.
pub async fn content_sha256(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Option<Vec<u8>>> {
    let found = sqlx::query_scalar!(
        "
        select content_sha256
        from suites
        where suite_id = $1
          and version = $2
        ",
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// A batch of items with their answers. Equal indices belong together. `inputs`, `answers` and the
/// groups are JSON.
#[derive(Default)]
#[expect(missing_docs, reason = "one field per column")]
pub struct ItemColumns<'a> {
    pub item_ids: Vec<&'a str>,
    pub inputs: Vec<&'a str>,
    pub groups: Vec<Option<String>>,
    pub answers: Vec<&'a str>,
    pub n_people: Vec<Option<i32>>,
    pub skill_groups: Vec<Option<i32>>,
    pub sealed: Vec<bool>,
    pub hidden_groups: Vec<Option<String>>,
    pub clusters: Vec<Option<i32>>,
    pub slices: Vec<Option<&'a [u8]>>,
}

/// Stores an item batch, from the given ordinal on.
pub async fn insert_items(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    first: i32,
    columns: &ItemColumns<'_>,
) -> Result<()> {
    let ItemColumns {
        item_ids,
        inputs,
        groups,
        answers,
        n_people,
        skill_groups,
        sealed,
        hidden_groups,
        clusters,
        slices,
    } = columns;
    sqlx::query!(
        "
        with batch as (
            select
                $3 + (b.place - 1)::integer as ordinal,
                b.item_id,
                b.input,
                b.groups,
                b.answer,
                b.sealed,
                b.hidden_groups,
                b.cluster,
                b.slices,
                b.n,
                b.skill_group
            from unnest(
                $4::text[],
                $5::text[],
                $6::text[],
                $7::text[],
                $8::boolean[],
                $9::text[],
                $10::integer[],
                $11::bytea[],
                $12::integer[],
                $13::integer[]
            )
                with ordinality
                as b(item_id, input, groups, answer, sealed, hidden_groups, cluster, slices, n, skill_group, place)
        ), items as (
            insert into suite_items (suite_id, version, ordinal, item_id, input, groups)
            select
                $1,
                $2,
                ordinal,
                item_id,
                input::json,
                groups::json
            from batch
        )
        insert into suite_answers (
            suite_id,
            version,
            ordinal,
            item_id,
            answer,
            sealed,
            groups,
            cluster,
            slices,
            n,
            skill_group
        )
        select
            $1,
            $2,
            ordinal,
            item_id,
            answer::json,
            sealed,
            hidden_groups::json,
            cluster,
            slices,
            n,
            skill_group
        from batch
        ",
        suite_id.as_str(),
        version,
        first,
        item_ids as &[&str],
        inputs as &[&str],
        groups as &[Option<String>],
        answers as &[&str],
        sealed,
        hidden_groups as &[Option<String>],
        clusters as &[Option<i32>],
        slices as &[Option<&[u8]>],
        n_people as &[Option<i32>],
        skill_groups as &[Option<i32>]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Items whose clusters are in one row.
pub const CLUSTERS_PER_ROW: usize = 1 << 16;

/// Stores the clusters of a version's open items, in their order.
pub async fn insert_clusters(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    item_clusters: &[u32],
) -> Result<()> {
    for (row, clusters) in item_clusters.chunks(CLUSTERS_PER_ROW).enumerate() {
        let first = i32::try_from(row * CLUSTERS_PER_ROW).map_err(Error::internal)?;
        let bytes: Vec<u8> = clusters
            .iter()
            .flat_map(|cluster| cluster.to_le_bytes())
            .collect();
        sqlx::query!(
            "
            insert into suite_clusters (suite_id, version, first, clusters)
            values ($1, $2, $3, $4)
            ",
            suite_id.as_str(),
            version,
            first,
            bytes
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

/// Returns `true` if the suite is published in any version.
pub async fn is_published(db: &mut PgConnection, suite_id: &SuiteId) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from suites where suite_id = $1) as "found!""#,
        suite_id.as_str()
    );
    Ok(found.fetch_one(db).await?)
}

/// Grants an organization submissions to a suite with `access = "granted"`. Returns `false` if it
/// had the grant before.
pub async fn grant(db: &mut PgConnection, org_id: &OrgId, suite_id: &SuiteId) -> Result<bool> {
    let done = sqlx::query!(
        "
        insert into suite_grants (org_id, suite_id)
        values ($1, $2)
        on conflict do nothing
        ",
        org_id.as_str(),
        suite_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Revokes the grant, so that further submissions are rejected. Returns `false` if there was none.
pub async fn revoke(db: &mut PgConnection, org_id: &OrgId, suite_id: &SuiteId) -> Result<bool> {
    let done = sqlx::query!(
        "delete from suite_grants where org_id = $1 and suite_id = $2",
        org_id.as_str(),
        suite_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}
