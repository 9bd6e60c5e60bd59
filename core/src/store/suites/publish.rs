//! Publishing suites. Only the operator's role has the privileges.

use serde::Serialize;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;

use super::commitment;
use crate::model::ceiling::Ceiling;
use crate::model::error::{Error, Result};
use crate::model::error_details::SuiteAccess;
use crate::model::ids::{GrantId, OrgId};
use crate::model::skill::SuiteSkill;
use crate::model::slices::StoredSlices;
use crate::model::suite::{BoardMode, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, event};
use assay_eval::suite::SuiteMetadata;

/// The row of `suites` that publication inserts, by column, without `content_id` and `published_at`.
#[derive(Serialize)]
pub struct NewSuite<'a> {
    /// The suite's id.
    pub suite_id: &'a str,
    /// The new version.
    pub version: &'a str,
    /// The metric's name.
    pub metric: &'a str,
    /// `true` if single items' scores may be read.
    pub per_item_feedback: bool,
    /// The description for users.
    pub description: &'a str,
    /// Number of items, open and sealed.
    pub n_items: i32,
    /// The disclosure policy.
    pub release: &'a str,
    /// The submissions that an organization may make a day. `None` if unlimited.
    pub max_submissions_per_day: Option<i32>,
    /// The submissions that an organization may make for good. `None` if unlimited.
    pub max_submissions: Option<i32>,
    /// The condition under which organizations may submit.
    pub access: SuiteAccess,
    /// The bounds of one item's loss.
    pub clip: Option<[f64; 2]>,
    /// The value of level 0, if the disclosure policy is a ladder.
    pub ladder_start: Option<f64>,
    /// The step between levels.
    pub ladder_step: Option<f64>,
    /// The number of levels above 0.
    pub ladder_levels: Option<u32>,
    /// Sealed item count.
    pub n_sealed: i32,
    /// The time at which the suite and its board close.
    pub closes_at: Option<Timestamp>,
    /// The times at which the board shows figures.
    pub board: BoardMode,
    /// The events' place in an item's input, if the suite is about sequences.
    pub sequence_events: Option<&'a str>,
    /// The options' place.
    pub sequence_options: Option<&'a str>,
    /// The group field of items that are not independent, or `none`. `None` if the suite states
    /// nothing.
    pub cluster: Option<&'a str>,
    /// `true` if the field is in the lines of answers.
    pub cluster_is_hidden: bool,
    /// Number of clusters, open and sealed.
    pub n_clusters: Option<i32>,
    /// The unit that has equal weights in a value.
    pub average: &'a str,
    /// The slices, by field. Those of hidden fields have no groups, see [`insert_hidden_groups`].
    pub slices: &'a [StoredSlices],
    /// A slice's smallest item count.
    pub slice_min: i32,
    /// The options of each answer, in their order; empty if the suite names none.
    pub labels: &'a [String],
    /// The levels of predicted quantiles; empty unless predictions are quantiles.
    pub quantiles: &'a [f64],
    /// The baseline of the skill.
    pub skill: Option<&'a SuiteSkill>,
    /// The disclosed ceiling of the open items.
    pub ceiling: Option<&'a Ceiling>,
    /// The least version of the scorer that a worker needs.
    pub scorer_min: i32,
}

/// The content of a version, without its items.
pub struct NewContent<'a> {
    /// The draft's id with its organization. `None` for the operator's content.
    pub draft: Option<(&'a str, &'a OrgId)>,
    /// Bytes in the lines of items, answers, retest and catalog.
    pub bytes: i64,
    /// The SHA-256 over everything that is published.
    pub content_sha256: &'a [u8],
    /// The visibility that the file names.
    pub visibility: Option<&'a str>,
    /// `true` if the file names `access`.
    pub names_access: bool,
    /// The texts for people.
    pub metadata: &'a SuiteMetadata,
    /// The row that publication inserts.
    pub version: &'a NewSuite<'a>,
}

/// Stores the content of a version that is not published yet, and returns its id. Its items and the
/// other rows follow.
pub async fn insert_content(db: &mut PgConnection, new: &NewContent<'_>) -> Result<i64> {
    let NewContent {
        draft,
        bytes,
        content_sha256,
        visibility,
        names_access,
        metadata,
        version,
    } = new;
    let content_id = sqlx::query_scalar!(
        "
        insert into suite_contents (
            draft_id,
            org_id,
            n_items,
            bytes,
            content_sha256,
            version,
            visibility,
            names_access,
            metadata
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        returning id
        ",
        draft.map(|(draft_id, _)| draft_id),
        draft.map(|(_, org_id)| org_id.as_str()),
        version.n_items,
        bytes,
        content_sha256,
        Json(version) as _,
        *visibility,
        names_access,
        Json(metadata) as _
    )
    .fetch_one(db)
    .await?;
    Ok(content_id)
}

/// Inserts the version with this content, its board, its public commitment and its event. Returns
/// `false` and changes nothing if the version exists already, or if its close has passed.
pub async fn insert_version(db: &mut PgConnection, content_id: i64) -> Result<bool> {
    let inserted = sqlx::query!(
        r#"
        /* all tenants: the content names its draft and the organization */
        with published as (
            insert into suites
            select v.*
            from suite_contents c
            cross join lateral jsonb_populate_record(
                null::suites,
                c.version || jsonb_build_object('content_id', c.id, 'published_at', clock_timestamp())
            ) v
            where c.id = $1
              and (v.closes_at is null or v.closes_at > clock_timestamp())
            on conflict do nothing
            returning suite_id, version, access
        ), owner as (
            -- The lock on an existing row lets the publications of a suite wait for each other.
            insert into suite_owners as o (suite_id, org_id, visibility, access, metadata, approved_at)
            select
                p.suite_id,
                c.org_id,
                coalesce(c.visibility, case when c.org_id is null then 'listed' else 'private' end),
                p.access,
                c.metadata,
                d.approved_at
            from published p
            join suite_contents c on c.id = $1
            left join drafts d on d.id = c.draft_id and d.org_id = c.org_id
            -- A later version changes only what its file names.
            on conflict (suite_id) do update
                set
                    visibility = coalesce((select c.visibility from suite_contents c where c.id = $1), o.visibility),
                    access = case
                        when o.org_id is null or (select c.names_access from suite_contents c where c.id = $1) then excluded.access
                        else o.access
                    end,
                    metadata = o.metadata || excluded.metadata,
                    approved_at = coalesce(o.approved_at, excluded.approved_at),
                    updated_at = clock_timestamp()
        )
        select
            suite_id as "suite_id!: SuiteId",
            version as "version!"
        from published
        "#,
        content_id
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(inserted) = inserted else {
        return Ok(false);
    };
    insert_board(&mut *db, content_id).await?;
    commitment::insert(&mut *db, content_id).await?;
    event::insert_suite_published(db, &inserted.suite_id, &inserted.version).await?;
    Ok(true)
}

/// Creates a new version's board, if it has one, and closes earlier versions' live
/// boards: they accept no entries, because jobs are scored on the new version.
async fn insert_board(db: &mut PgConnection, content_id: i64) -> Result<()> {
    sqlx::query!(
        "
        with new as (
            select suite_id, version, board, closes_at
            from suites
            where content_id = $1
        ), closed as (
            update boards b
            set closes_at = clock_timestamp()
            from new
            where b.suite_id = new.suite_id
              and b.mode = 'live'
              and (b.closes_at is null or b.closes_at > clock_timestamp())
        )
        insert into boards (suite_id, suite_version, mode, closes_at)
        select suite_id, version, board, closes_at
        from new
        where board <> 'off'
        ",
        content_id
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The result of publishing content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// The version is published.
    Published,
    /// The version was published before, with the same content.
    WasPublished,
    /// The version is published with other content.
    Conflict,
    /// The version's close has passed: no job could be marked as final or enter the board.
    Closed,
    /// The operator has removed the version, or the whole suite.
    Removed,
}

/// Compares content with the published version that it would be. `None` if there is none.
pub async fn published(
    db: &mut PgConnection,
    suite_id: &str,
    version: &str,
    content_sha256: &[u8],
) -> Result<Option<Publication>> {
    let is_same = sqlx::query_scalar!(
        r#"
        select
            case
                when s.removed_at is null then c.content_sha256 = $3
            end as is_same
        from suites s
        join suite_contents c on c.id = s.content_id
        where s.suite_id = $1
          and s.version = $2
        "#,
        suite_id,
        version,
        content_sha256
    )
    .fetch_optional(db)
    .await?;
    Ok(is_same.map(|is_same| match is_same {
        Some(true) => Publication::WasPublished,
        Some(false) => Publication::Conflict,
        None => Publication::Removed,
    }))
}

/// Returns `true` if the operator has removed the suite that the content belongs to. The lock on the suite
/// lets a takedown wait until the transaction ends, which then finds the new version.
async fn is_suite_removed(db: &mut PgConnection, content_id: i64) -> Result<bool> {
    let is_removed = sqlx::query_scalar!(
        r#"
        select o.removed_at is not null as "is_removed!"
        from suite_owners o
        where o.suite_id = (select c.version ->> 'suite_id' from suite_contents c where c.id = $1)
        for no key update
        "#,
        content_id
    );
    Ok(is_removed.fetch_optional(db).await?.unwrap_or(false))
}

/// Publishes stored content, in the caller's transaction.
pub async fn publish(db: &mut PgConnection, content_id: i64) -> Result<Publication> {
    if is_suite_removed(&mut *db, content_id).await? {
        return Ok(Publication::Removed);
    }
    if insert_version(&mut *db, content_id).await? {
        return Ok(Publication::Published);
    }
    let content = sqlx::query!(
        r#"
        select
            version ->> 'suite_id' as "suite_id!",
            version ->> 'version' as "version!",
            content_sha256
        from suite_contents
        where id = $1
        "#,
        content_id
    )
    .fetch_one(&mut *db)
    .await?;
    let published = published(
        db,
        &content.suite_id,
        &content.version,
        &content.content_sha256,
    );
    Ok(published.await?.unwrap_or(Publication::Closed))
}

/// Stores the retest: each item's answers as a JSON array, in the order of the published file.
pub async fn insert_retest(
    db: &mut PgConnection,
    content_id: i64,
    first: i32,
    item_ids: &[&str],
    answers: &[&str],
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_retest (content_id, ordinal, item_id, answers)
        select
            $1,
            $2 + (b.place - 1)::integer,
            b.item_id,
            b.answers::json
        from unnest($3::text[], $4::text[]) with ordinality as b(item_id, answers, place)
        ",
        content_id,
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
    content_id: i64,
    is_sealed: bool,
    value: f64,
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_floors (content_id, is_sealed, value)
        values ($1, $2, $3)
        ",
        content_id,
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
    content_id: i64,
    first: i32,
    ids: &[&str],
    popularity: &[f64],
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_catalog (content_id, ordinal, id, popularity)
        select
            $1,
            $2 + (b.place - 1)::integer,
            b.id,
            b.popularity
        from unnest($3::text[], $4::double precision[]) with ordinality as b(id, popularity, place)
        ",
        content_id,
        first,
        ids as &[&str],
        popularity
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores the slices by hidden fields, where only workers can read them.
pub async fn insert_hidden_groups(
    db: &mut PgConnection,
    content_id: i64,
    slices: &[StoredSlices],
) -> Result<()> {
    for StoredSlices { field, groups, .. } in slices.iter().filter(|field| field.is_hidden) {
        sqlx::query!(
            "
            insert into suite_hidden_groups (content_id, field, groups)
            values ($1, $2, $3)
            ",
            content_id,
            field,
            Json(groups) as _
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
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
    content_id: i64,
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
                $2 + (b.place - 1)::integer as ordinal,
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
                $3::text[],
                $4::text[],
                $5::text[],
                $6::text[],
                $7::boolean[],
                $8::text[],
                $9::integer[],
                $10::bytea[],
                $11::integer[],
                $12::integer[]
            )
                with ordinality
                as b(item_id, input, groups, answer, sealed, hidden_groups, cluster, slices, n, skill_group, place)
        ), items as (
            insert into suite_items (content_id, ordinal, item_id, input, groups)
            select
                $1,
                ordinal,
                item_id,
                input::json,
                groups::json
            from batch
        )
        insert into suite_answers (
            content_id,
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
        content_id,
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
    content_id: i64,
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
            insert into suite_clusters (content_id, first, clusters)
            values ($1, $2, $3)
            ",
            content_id,
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
    let id = GrantId::random()?;
    let done = sqlx::query!(
        "
        insert into suite_grants (id, org_id, suite_id)
        values ($3, $1, $2)
        on conflict do nothing
        ",
        org_id.as_str(),
        suite_id.as_str(),
        id.as_str()
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

/// Deletes at most `limit` rows of a content that is not published. Returns `false` once all of them, and the content, are deleted.
pub async fn delete_rows(db: &mut PgConnection, content_id: i64, limit: i64) -> Result<bool> {
    if delete_content(&mut *db, content_id, limit).await? {
        return Ok(true);
    }
    sqlx::query!("delete from suite_contents where id = $1", content_id)
        .execute(db)
        .await?;
    Ok(false)
}

/// Deletes at most `limit` rows of what belongs to a content: items, answers and all that follows from them. Returns `false` once none
/// is left.
pub async fn delete_content(db: &mut PgConnection, content_id: i64, limit: i64) -> Result<bool> {
    let done = sqlx::query!(
        "
        with answers as (
            delete from suite_answers
            where content_id = $1
              and ordinal in (select ordinal from suite_answers where content_id = $1 order by ordinal limit $2)
        )
        delete from suite_items
        where content_id = $1
          and ordinal in (select ordinal from suite_items where content_id = $1 order by ordinal limit $2)
        ",
        content_id,
        limit
    )
    .execute(&mut *db)
    .await?;
    if done.rows_affected() > 0 {
        return Ok(true);
    }
    // The order of the foreign keys.
    for table in [
        "suite_clusters",
        "suite_hidden_groups",
        "suite_retest",
        "suite_floors",
        "suite_catalog",
        "suite_baseline_scores",
        "suite_baselines",
        "suite_openings",
    ] {
        // Only constants are part of the statement.
        let statement = AssertSqlSafe(format!("delete from {table} where content_id = $1"));
        sqlx::query(statement)
            .bind(content_id)
            .execute(&mut *db)
            .await?;
    }
    Ok(false)
}
