//! Suites as the operator lists, suspends, removes and reviews them.

use serde::Serialize;

use crate::model::draft::DraftFailure;
use crate::model::error::Result;
use crate::model::error_details::SuiteAccess;
use crate::model::ids::{DraftId, OrgId, SuiteId};
use crate::model::suite::{SuiteStatus, SuiteVisibility};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, publish};

/// A suite as the operator lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedSuite {
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The organization that published it. `None` for the operator's.
    pub org_id: Option<OrgId>,
    /// The callers who can see it.
    pub visibility: SuiteVisibility,
    /// The organizations that can submit.
    pub access: SuiteAccess,
    /// The state of the current version.
    pub status: SuiteStatus,
    /// The current version.
    pub version: String,
    /// The items of the current version.
    pub n_items: i32,
    /// The bytes of all versions, which count for the owner's `suite_bytes`.
    pub bytes: i64,
}

/// Returns all suites, or an organization's, by id.
pub async fn list_suites(
    db: &mut PgConnection,
    org_id: Option<&OrgId>,
) -> Result<Vec<ListedSuite>> {
    let rows = sqlx::query!(
        r#"
        select
            o.suite_id as "suite_id: SuiteId",
            o.org_id as "org_id: OrgId",
            o.visibility as "visibility: SuiteVisibility",
            o.access as "access: SuiteAccess",
            o.suspended_at is not null as "is_suspended!",
            s.removed_at is not null as "is_removed!",
            c.retired_at is not null as "is_retired!",
            s.version,
            s.n_items,
            (
                select sum(content.bytes)
                from suites v
                join suite_contents content on content.id = v.content_id
                where v.suite_id = o.suite_id
            )::bigint as "bytes!"
        from suite_owners o
        cross join lateral (
            select
                current.version,
                current.n_items,
                current.removed_at
            from suites current
            where current.suite_id = o.suite_id
            order by current.published_at desc
            limit 1
        ) s
        join suite_commitments c on c.suite_id = o.suite_id and c.suite_version = s.version
        where $1::text is null or o.org_id = $1
        order by o.suite_id
        "#,
        org_id.map(OrgId::as_str)
    )
    .fetch_all(db)
    .await?;
    let suites = rows.into_iter().map(|row| ListedSuite {
        suite_id: row.suite_id,
        org_id: row.org_id,
        visibility: row.visibility,
        access: row.access,
        status: SuiteStatus::new(row.is_removed, row.is_suspended, row.is_retired),
        version: row.version,
        n_items: row.n_items,
        bytes: row.bytes,
    });
    Ok(suites.collect())
}

/// A suite's state that the operator can change.
pub struct SuiteState {
    /// The organization that published it. `None` for the operator's.
    pub org_id: Option<OrgId>,
    /// The current version.
    pub version: String,
    /// The suspension time, if it is suspended.
    pub suspended_at: Option<Timestamp>,
    /// The time of its takedown, if all versions were removed.
    pub removed_at: Option<Timestamp>,
}

/// Locks a suite until the transaction ends. Returns `None` if there is no such suite.
pub async fn lock_suite(db: &mut PgConnection, suite_id: &SuiteId) -> Result<Option<SuiteState>> {
    let state = sqlx::query_as!(
        SuiteState,
        r#"
        select
            o.org_id as "org_id: OrgId",
            (
                select s.version
                from suites s
                where s.suite_id = o.suite_id
                order by s.published_at desc
                limit 1
            ) as "version!",
            o.suspended_at as "suspended_at: Timestamp",
            o.removed_at as "removed_at: Timestamp"
        from suite_owners o
        where o.suite_id = $1
        for no key update of o
        "#,
        suite_id.as_str()
    );
    Ok(state.fetch_optional(db).await?)
}

/// Suspends a suite that the transaction has locked, and returns its suspension time.
pub async fn suspend_suite(db: &mut PgConnection, suite_id: &SuiteId) -> Result<Timestamp> {
    let since = sqlx::query_scalar!(
        r#"
        update suite_owners
        set suspended_at = coalesce(suspended_at, clock_timestamp())
        where suite_id = $1
        returning suspended_at as "since!: Timestamp"
        "#,
        suite_id.as_str()
    );
    Ok(since.fetch_one(db).await?)
}

/// Ends a suite's suspension.
pub async fn resume_suite(db: &mut PgConnection, suite_id: &SuiteId) -> Result<()> {
    sqlx::query!(
        "update suite_owners set suspended_at = null where suite_id = $1",
        suite_id.as_str()
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A version whose content is removed.
pub struct RemovedVersion {
    /// The version.
    pub version: String,
    /// Its content.
    pub content_id: i64,
    /// The number of its items.
    pub n_items: i32,
    /// `true` if it was not removed before.
    pub is_new: bool,
}

/// Marks a version of a suite that the transaction has locked as removed, or without a version the suite
/// with all of them, for good. They accept no submissions, and their boards are final. Returns the versions, the
/// oldest first; none if there is no such version.
///
/// The content is deleted afterwards: readers that find no mark after they have read have read all.
pub async fn mark_removed(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: Option<&str>,
) -> Result<Vec<RemovedVersion>> {
    sqlx::query!(
        "
        select
        from suite_commitments
        where suite_id = $1
          and ($2::text is null or suite_version = $2)
        order by suite_version
        -- A retirement that runs stores opened answers until it commits.
        for no key update
        ",
        suite_id.as_str(),
        version
    )
    .execute(&mut *db)
    .await?;
    let versions = sqlx::query_as!(
        RemovedVersion,
        r#"
        with found as (
            select suite_id, version, content_id, n_items, published_at, removed_at is null as is_new
            from suites
            where suite_id = $1
              and ($2::text is null or version = $2)
        ), marked as (
            update suites s
            set removed_at = clock_timestamp()
            from found f
            where f.is_new
              and s.suite_id = f.suite_id
              and s.version = f.version
        ), closed as (
            -- Answers and predictions can no longer be compared. A computation that runs is fenced out.
            update boards b
            set
                closes_at = least(b.closes_at, clock_timestamp()),
                is_final = true,
                attempt = b.attempt + 1,
                lease_until = null
            from found f
            where f.is_new
              and b.suite_id = f.suite_id
              and b.suite_version = f.version
        )
        select
            version,
            content_id,
            n_items,
            is_new as "is_new!"
        from found
        order by published_at
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_all(&mut *db)
    .await?;
    if version.is_none() {
        sqlx::query!(
            "
            update suite_owners
            set
                removed_at = coalesce(removed_at, clock_timestamp()),
                updated_at = case when removed_at is null then clock_timestamp() else updated_at end
            where suite_id = $1
            ",
            suite_id.as_str()
        )
        .execute(db)
        .await?;
    }
    Ok(versions)
}

/// Deletes at most `limit` rows of a removed version's content, and of its opened answers. Returns `false` once none is left; the
/// content then counts no bytes. Its empty row, the version and the commitment stay.
pub async fn delete_removed(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    removed: &RemovedVersion,
    limit: i64,
) -> Result<bool> {
    let opened = sqlx::query!(
        "
        with retest as (
            delete from opened_retest
            where suite_id = $1
              and suite_version = $2
              and ordinal in (
                  select ordinal
                  from opened_retest
                  where suite_id = $1
                    and suite_version = $2
                  order by ordinal
                  limit $3
              )
        )
        delete from opened_answers
        where suite_id = $1
          and suite_version = $2
          and ordinal in (
              select ordinal
              from opened_answers
              where suite_id = $1
                and suite_version = $2
              order by ordinal
              limit $3
          )
        ",
        suite_id.as_str(),
        removed.version,
        limit
    )
    .execute(&mut *db)
    .await?;
    if opened.rows_affected() > 0 || publish::delete_content(db, removed.content_id, limit).await? {
        return Ok(true);
    }
    sqlx::query!(
        "
        update suite_contents
        set
            bytes = 0,
            content_sha256 = '',
            version = '{}',
            visibility = null,
            metadata = '{}'
        where id = $1
          and bytes > 0
        ",
        removed.content_id
    )
    .execute(db)
    .await?;
    Ok(false)
}

/// Marks all suites of an organization that is deleted as removed, as [`mark_removed`] does. Returns each with
/// its versions.
pub async fn mark_suites_removed(
    db: &mut PgConnection,
    org_id: &OrgId,
) -> Result<Vec<(SuiteId, Vec<RemovedVersion>)>> {
    let suite_ids = sqlx::query_scalar!(
        r#"
        select suite_id as "suite_id: SuiteId"
        from suite_owners
        where org_id = $1
        order by suite_id
        for no key update
        "#,
        org_id.as_str()
    )
    .fetch_all(&mut *db)
    .await?;
    let mut removed = Vec::with_capacity(suite_ids.len());
    for suite_id in suite_ids {
        let versions = mark_removed(&mut *db, &suite_id, None).await?;
        removed.push((suite_id, versions));
    }
    Ok(removed)
}

/// A draft that waits for the operator's review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DraftInReview {
    /// The draft's id.
    pub draft_id: DraftId,
    /// The organization.
    pub org_id: OrgId,
    /// The suite that it becomes a version of.
    pub suite_id: SuiteId,
    /// The version.
    pub version: String,
    /// The visibility that its `suite.toml` names.
    pub visibility: Option<SuiteVisibility>,
    /// The number of its items.
    pub n_items: i32,
    /// The time at which its publication was requested.
    pub requested_at: Timestamp,
}

/// Returns the drafts that wait for the operator's review, or an organization's, the oldest request first.
pub async fn drafts_in_review(
    db: &mut PgConnection,
    org_id: Option<&OrgId>,
) -> Result<Vec<DraftInReview>> {
    let drafts = sqlx::query_as!(
        DraftInReview,
        r#"
        select
            d.id as "draft_id: DraftId",
            d.org_id as "org_id: OrgId",
            d.suite_id as "suite_id: SuiteId",
            d.version,
            d.visibility as "visibility: SuiteVisibility",
            c.n_items,
            d.publish_requested_at as "requested_at!: Timestamp"
        from drafts d
        join suite_contents c on c.id = d.content_id
        where d.status = 'in_review'
          and ($1::text is null or d.org_id = $1)
        order by d.publish_requested_at
        "#,
        org_id.map(OrgId::as_str)
    );
    Ok(drafts.fetch_all(db).await?)
}

/// Ends the review of a draft: it is published, or, with a reason, has failed. Returns its organization and suite. Returns `None`, and changes
/// nothing, if no such draft is in review.
pub async fn end_review(
    db: &mut PgConnection,
    draft_id: &DraftId,
    rejection: Option<&str>,
) -> Result<Option<(OrgId, SuiteId)>> {
    let ended = sqlx::query!(
        r#"
        /* all tenants: the operator names a draft by its id alone */
        update drafts
        set
            status = case when $2::text is null then 'publishing' else 'failed' end,
            publish_requested_at = clock_timestamp(),
            approved_at = case when $2::text is null then clock_timestamp() end,
            error_code = case when $2::text is not null then $3 end,
            error_message = $2
        where id = $1
          and status = 'in_review'
        returning
            org_id as "org_id: OrgId",
            suite_id as "suite_id: SuiteId"
        "#,
        draft_id.as_str(),
        rejection,
        DraftFailure::Rejected.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(ended.map(|row| (row.org_id, row.suite_id)))
}
