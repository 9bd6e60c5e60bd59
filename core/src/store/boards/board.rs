//! Boards and their entries, as the API reads and changes them. `board_computation` computes them.
//!
//! An entry change locks its board's row in share mode, and then compares the database's
//! clock with the close. The first attempt to compute a closed board locks the row exclusively. So
//! the computation sees each change that was accepted, and none is accepted afterwards.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::baselines::VsBaseline;
use crate::model::board::{
    BoardRow, BoardStatus, BoardVisibility, ENTRIES_MAX, Entry, Moderator, Removal,
};
use crate::model::email_domain::MISSES_MAX;
use crate::model::error::Result;
use crate::model::error_details::EntryRefusal;
use crate::model::ids::{EntryId, JobId, OrgId, ReceiptId};
use crate::model::job::{JobStatus, JobType};
use crate::model::public_name::NameKeys;
use crate::model::slices::FieldSlices;
use crate::model::suite::{BoardMode, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, allowance};

/// Returns [`Entry`] rows. The columns are between the beginning of a statement and its rest.
macro_rules! query_entries {
    ($start:literal, $rest:literal, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            Entry,
            $start + r#"
                id as "id: EntryId",
                org_id as "org_id: OrgId",
                job_id as "job_id: JobId",
                suite_id as "suite_id: SuiteId",
                suite_version,
                name,
                url,
                entered_by,
                entered_at as "entered_at: Timestamp",
                withdrawn_at as "withdrawn_at: Timestamp",
                removed_at as "removed_at: Timestamp",
                removed_reason,
                removed_by as "removed_by: Moderator",
                by_publisher
            "# + $rest,
            $($argument),+
        )
    };
}

/// A job to be entered on the board of its suite.
pub struct NewEntry<'a> {
    /// The id of the entry.
    pub id: &'a EntryId,
    /// The id of the job.
    pub job_id: &'a JobId,
    /// The validated name.
    pub name: &'a str,
    /// The validated URL.
    pub url: Option<&'a str>,
    /// The user's or the key's id.
    pub entered_by: &'a str,
}

/// The result when a job is entered.
pub enum Entered {
    /// The job has entered the board.
    Done(Box<Entry>),
    /// The organization has no such eval.
    Missing,
    /// The job was scored on another version than the current one.
    OtherVersion {
        /// The job's version.
        suite_version: String,
        /// The current version.
        current_version: String,
    },
    /// The job cannot enter, or not under this name.
    Refused(EntryRefusal),
}

/// Enters a job on its suite's board. The transaction must be rolled back unless the result is
/// [`Entered::Done`].
pub async fn enter(db: &mut PgConnection, org_id: &OrgId, new: NewEntry<'_>) -> Result<Entered> {
    let job = sqlx::query!(
        r#"
        select
            j.status as "status: JobStatus",
            j.final_at is not null as "is_final!",
            s.suite_id as "suite_id: SuiteId",
            s.version,
            s.n_sealed > 0 as "is_sealed!",
            s.board as "board: BoardMode",
            (j.result ->> 'by_publisher')::boolean as by_publisher,
            (
                select c.version
                from suites c
                where c.suite_id = s.suite_id
                order by c.published_at desc
                limit 1
            ) as "current_version!"
        from jobs j
        join suites s on s.suite_id = j.suite_id and s.version = j.suite_version
        where j.org_id = $1
          and j.id = $2
          and j.type = $3
        "#,
        org_id.as_str(),
        new.job_id.as_str(),
        JobType::Eval as JobType
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(job) = job else {
        return Ok(Entered::Missing);
    };
    let (suite_id, version) = (&job.suite_id, &job.version);
    if job.board == BoardMode::Off {
        return Ok(Entered::Refused(EntryRefusal::NoBoard));
    }
    if *version != job.current_version {
        return Ok(Entered::OtherVersion {
            suite_version: job.version,
            current_version: job.current_version,
        });
    }
    if job.status != JobStatus::Succeeded {
        let status = job.status.to_string();
        return Ok(Entered::Refused(EntryRefusal::NotSucceeded { status }));
    }
    if job.is_sealed && !job.is_final {
        return Ok(Entered::Refused(EntryRefusal::NotFinal));
    }
    let holders = allowance::holders_since_submission(db, org_id, new.job_id).await?;
    allowance::lock(db, &holders, suite_id, version).await?;
    // A repeated request gets this response even if the board has closed meanwhile.
    if let Some(entry_id) = entry_of_job(db, org_id, new.job_id).await? {
        return Ok(Entered::Refused(EntryRefusal::Entered { entry_id }));
    }
    if let Some(closes_at) = lock_and_find_close(db, suite_id, version).await? {
        return Ok(Entered::Refused(EntryRefusal::BoardClosed { closes_at }));
    }
    if max_entries_in_group(db, &holders, suite_id, version).await? >= ENTRIES_MAX {
        let max = ENTRIES_MAX;
        return Ok(Entered::Refused(EntryRefusal::MaxEntries { max }));
    }
    let keys = NameKeys::of(new.name);
    if is_name_taken(db, suite_id, version, &keys).await? {
        return Ok(Entered::Refused(EntryRefusal::NameTaken));
    }
    let entry = query_entries!(
        "
        insert into board_entries (
            id,
            org_id,
            suite_id,
            suite_version,
            job_id,
            name,
            name_key,
            name_shown,
            url,
            entered_by,
            entered_at,
            holders,
            by_publisher
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp(), $11, $12)
        returning
        ",
        "",
        new.id.as_str(),
        org_id.as_str(),
        suite_id.as_str(),
        version,
        new.job_id.as_str(),
        new.name,
        keys.folded,
        keys.shown,
        new.url,
        new.entered_by,
        &holders,
        job.by_publisher
    )
    .fetch_one(db)
    .await?;
    Ok(Entered::Done(Box::new(entry)))
}

/// Returns `true` if people may take the name for another entry's or a baseline's. The lock on the board keeps
/// entries away that are added at the same time.
async fn is_name_taken(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    keys: &NameKeys,
) -> Result<bool> {
    let is_taken = sqlx::query_scalar!(
        r#"
        /* all tenants: no two entries of a board have names that look the same */
        select exists(
            select
            from board_entries
            where suite_id = $1
              and suite_version = $2
              and (name_key in ($3, $4) or name_shown in ($3, $4))
        ) or exists(
            select
            from suite_baselines
            where content_id = (select content_id from suites where suite_id = $1 and version = $2)
              and (name_key in ($3, $4) or name_shown in ($3, $4))
        ) as "is_taken!"
        "#,
        suite_id.as_str(),
        version,
        keys.folded,
        keys.shown
    )
    .fetch_one(db)
    .await?;
    Ok(is_taken)
}

async fn entry_of_job(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Option<EntryId>> {
    let entry_id = sqlx::query_scalar!(
        r#"
        select id as "id: EntryId"
        from board_entries
        where org_id = $1
          and job_id = $2
        "#,
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(entry_id)
}

/// Locks the board against its close and against other entries until the transaction ends. Returns the close time if
/// it has passed.
pub(super) async fn lock_and_find_close(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Option<Timestamp>> {
    let closes_at = sqlx::query_scalar!(
        r#"
        select closes_at as "closes_at: Timestamp"
        from boards
        where suite_id = $1
          and suite_version = $2
        for no key update
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_one(&mut *db)
    .await?;
    // Its own statement: the time after the wait for the lock decides.
    let is_closed = sqlx::query_scalar!(
        r#"select coalesce($1::timestamptz <= clock_timestamp(), false) as "is_closed!""#,
        closes_at as Option<Timestamp>
    )
    .fetch_one(db)
    .await?;
    Ok(closes_at.filter(|_| is_closed))
}

/// Returns the entry count for the holder that has most.
async fn max_entries_in_group(
    db: &mut PgConnection,
    holders: &[String],
    suite_id: &SuiteId,
    version: &str,
) -> Result<i64> {
    let most = sqlx::query_scalar!(
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        select count(*) as "entries!"
        from board_entries e
        cross join unnest(e.holders) as h(holder)
        where e.suite_id = $2
          and e.suite_version = $3
          and h.holder = any($1)
        group by h.holder
        order by 1 desc
        limit 1
        "#,
        holders,
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(most.unwrap_or(0))
}

/// Returns the organization's entry.
pub async fn find_entry(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    entry_id: &EntryId,
) -> Result<Option<Entry>> {
    let entry = query_entries!(
        "select",
        "
        from board_entries
        where org_id = $1
          and id = $2
        ",
        org_id.as_str(),
        entry_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(entry)
}

/// Withdraws an entry. Returns the entry, and whether this call withdrew it; `None` if the
/// organization has no such entry.
pub async fn withdraw(
    db: &mut PgConnection,
    org_id: &OrgId,
    entry_id: &EntryId,
) -> Result<Option<(Entry, bool)>> {
    let Some(entry) = find_entry(&mut *db, org_id, entry_id).await? else {
        return Ok(None);
    };
    lock_and_find_close(db, &entry.suite_id, &entry.suite_version).await?;
    let changed = sqlx::query!(
        "
        update board_entries
        set
            withdrawn_at = clock_timestamp(),
            -- Otherwise the refusal of the same name would reveal the entry.
            name_key = id,
            name_shown = id,
            revision = revision + 1
        where org_id = $1
          and id = $2
          and withdrawn_at is null
        ",
        org_id.as_str(),
        entry_id.as_str()
    )
    .execute(&mut *db)
    .await?;
    let is_changed = changed.rows_affected() == 1;
    let entry = find_entry(db, org_id, entry_id).await?;
    Ok(entry.map(|entry| (entry, is_changed)))
}

/// Returns the organization's entries, the newest first: at most `limit`, before the given time, and
/// for the suite if one is named.
pub async fn list_entries(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: Option<&SuiteId>,
    before: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<Entry>> {
    let entries = query_entries!(
        "select",
        "
        from board_entries
        where org_id = $1
          and ($2::text is null or suite_id = $2)
          and entered_at < coalesce($3::timestamptz, 'infinity')
        order by entered_at desc
        limit $4
        ",
        org_id.as_str(),
        suite_id.map(SuiteId::as_str),
        before as Option<Timestamp>,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(entries)
}

/// A board without its rows.
pub struct BoardHead {
    /// The version of the suite.
    pub suite_version: String,
    /// The metric of the suite.
    pub metric: String,
    /// The disclosure policy of the suite.
    pub release: String,
    /// The times at which the board shows figures.
    pub mode: BoardMode,
    /// The state of the board.
    pub status: BoardStatus,
    /// The time from which the board accepts no entries.
    pub closes_at: Option<Timestamp>,
    /// The callers that can read the board.
    pub visibility: BoardVisibility,
    /// The computation's number. `None` if it is not stored, or before the first one.
    pub computation: Option<i32>,
    /// The time of the computation.
    pub as_of: Option<Timestamp>,
    /// The number of entries in the tests.
    pub n_entries: i32,
    /// The number of items in the tests.
    pub n_items: Option<i32>,
    /// The number of clusters in the tests, if the items are in clusters.
    pub n_clusters: Option<i32>,
    /// `true` if the items are in clusters.
    pub is_clustered: bool,
    /// Removed entries.
    pub n_removed: i64,
}

/// Returns a suite version's board, or its current version's, with the given computation
/// or the shown one. `None` if the version has no board, or if neither its suite nor its board is visible to the
/// organization, or to a caller without a credential.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
    version: Option<&str>,
    computation: Option<i32>,
) -> Result<Option<BoardHead>> {
    let row = sqlx::query!(
        r#"
        /* all tenants: a board shows the number of removed entries of every organization */
        select
            b.suite_version,
            s.metric,
            s.release,
            b.mode as "mode: BoardMode",
            b.closes_at as "closes_at: Timestamp",
            coalesce(b.closes_at <= clock_timestamp(), false) as "is_closed!",
            b.is_final,
            b.is_public,
            c.computation as "computation?",
            c.as_of as "as_of?: Timestamp",
            coalesce(c.n_entries, 0) as "n_entries!",
            c.n_items as "n_items?",
            c.n_clusters as "n_clusters?",
            s.n_clusters is not null as "is_clustered!",
            (
                select count(*)
                from board_entries e
                where e.suite_id = b.suite_id
                  and e.suite_version = b.suite_version
                  and e.removed_at is not null
            ) as "n_removed!"
        from (
            select
                suite_id,
                version,
                metric,
                release,
                n_clusters
            from suites
            where suite_id = $2
              and ($3::text is null or version = $3)
            order by published_at desc
            limit 1
        ) s
        join boards b on b.suite_id = s.suite_id and b.suite_version = s.version
        left join board_computations c
            on c.suite_id = b.suite_id
            and c.suite_version = b.suite_version
            and c.computation = coalesce($4, b.computation)
        where (
                b.is_public
                and not exists (
                    select from suite_owners o
                    where o.suite_id = b.suite_id
                      and o.suspended_at is not null
                )
            )
           or exists (select from visible_suites($1) v where v.suite_id = b.suite_id)
        "#,
        org_id.map(OrgId::as_str),
        suite_id.as_str(),
        version,
        computation
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| BoardHead {
        suite_version: row.suite_version,
        metric: row.metric,
        release: row.release,
        mode: row.mode,
        status: match (row.is_closed, row.is_final) {
            (false, _) => BoardStatus::Open,
            (true, false) => BoardStatus::Computing,
            (true, true) => BoardStatus::Final,
        },
        closes_at: row.closes_at,
        visibility: if row.is_public {
            BoardVisibility::Public
        } else {
            BoardVisibility::Credential
        },
        computation: row.computation,
        as_of: row.as_of,
        n_entries: row.n_entries,
        n_items: row.n_items,
        n_clusters: row.n_clusters,
        is_clustered: row.is_clustered,
        n_removed: row.n_removed,
    }))
}

/// The most removals that a board shows.
const REMOVALS_MAX: i64 = 100;

/// Returns the removals of a board's entries, the newest first, without their names.
pub async fn removals(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Vec<Removal>> {
    let removals = sqlx::query_as!(
        Removal,
        r#"
        /* all tenants: a board shows that entries of every organization were removed */
        select
            removed_at as "removed_at!: Timestamp",
            removed_reason as "reason!",
            removed_by as "by!: Moderator"
        from board_entries
        where suite_id = $1
          and suite_version = $2
          and removed_at is not null
        order by removed_at desc
        limit $3
        "#,
        suite_id.as_str(),
        version,
        REMOVALS_MAX
    )
    .fetch_all(db)
    .await?;
    Ok(removals)
}

/// The most bytes of slices and results against baselines on a page, but for its last row: many gRPC clients accept 4 MiB.
const PAGE_LISTS_BYTES_MAX: i64 = 2 << 20;

/// Returns at most `limit` rows in a computation, after the given row count.
pub async fn rows(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    computation: i32,
    after: i32,
    limit: u32,
) -> Result<Vec<BoardRow>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: a board shows the entries of every organization */
        with page as materialized (
            -- Otherwise the entries of the whole board may be joined and sorted for each page.
            select
                *,
                sum(octet_length(slices::text) + octet_length(vs_baselines::text)) over (
                    order by place
                    rows between unbounded preceding and 1 preceding
                ) as bytes_before
            from board_rows
            where suite_id = $1
              and suite_version = $2
              and computation = $3
              and place > $4
            order by place
            limit $5
        )
        select
            r.entry_id as "entry_id: EntryId",
            e.name,
            o.name as org_name,
            (
                select c.domain
                from domain_claims c
                where c.org_id = o.id
                  and c.verified_at is not null
                  and c.misses < $6
                order by c.verified_at, c.domain
                limit 1
            ) as org_domain,
            e.url,
            e.by_publisher,
            r.tier,
            r.rank_low,
            r.rank_high,
            r.value,
            r.ci95,
            r.n_missing,
            r.n_submissions,
            r.n_withdrawn,
            r.slices as "slices: Json<Vec<FieldSlices>>",
            r.vs_baselines as "vs_baselines: Json<Vec<VsBaseline>>",
            e.entered_at as "entered_at: Timestamp",
            e.withdrawn_at as "withdrawn_at: Timestamp",
            (
                select p.id
                from receipts p
                where p.job_id = e.job_id
                  and p.figures = case
                      when s.n_sealed > 0 then 'sealed'
                      when s.ladder_step is not null then 'board'
                      else 'all'
                  end
            ) as "receipt_id: ReceiptId"
        from page r
        join board_entries e on e.id = r.entry_id
        join orgs o on o.id = e.org_id
        join suites s on s.suite_id = r.suite_id and s.version = r.suite_version
        where coalesce(r.bytes_before, 0) < $7
        order by r.place
        "#,
        suite_id.as_str(),
        version,
        computation,
        after,
        i64::from(limit),
        MISSES_MAX,
        PAGE_LISTS_BYTES_MAX
    )
    .fetch_all(db)
    .await?;
    let ci95 = |ends: Vec<f64>| <[f64; 2]>::try_from(ends).ok();
    Ok(rows
        .into_iter()
        .map(|row| {
            let is_named = row.withdrawn_at.is_none();
            BoardRow {
                entry_id: row.entry_id,
                name: is_named.then_some(row.name),
                org_name: is_named.then_some(row.org_name),
                org_domain: row.org_domain.filter(|_| is_named),
                url: row.url.filter(|_| is_named),
                tier: row.tier.into(),
                rank_low: row.rank_low.into(),
                rank_high: row.rank_high.into(),
                value: row.value,
                ci95: row.ci95.and_then(ci95),
                slices: row.slices.0,
                vs_baselines: row.vs_baselines.0,
                n_missing: row.n_missing.into(),
                n_submissions: row.n_submissions.into(),
                n_withdrawn: row.n_withdrawn.into(),
                entered_at: row.entered_at,
                withdrawn_at: row.withdrawn_at,
                receipt_id: row.receipt_id.filter(|_| is_named),
                by_publisher: row.by_publisher.filter(|_| is_named),
            }
        })
        .collect())
}

/// Opens a board to callers without a credential, or closes it to them. Returns whether it was open
/// before, or `None` if the version has no board. For the operator.
pub async fn set_visibility(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    visibility: BoardVisibility,
) -> Result<Option<bool>> {
    let was_public = sqlx::query_scalar!(
        r#"
        with before as (
            select is_public
            from boards
            where suite_id = $1
              and suite_version = $2
            for update
        )
        update boards b
        set is_public = $3
        from before
        where b.suite_id = $1
          and b.suite_version = $2
        returning before.is_public as "was_public!"
        "#,
        suite_id.as_str(),
        version,
        visibility == BoardVisibility::Public
    )
    .fetch_optional(db)
    .await?;
    Ok(was_public)
}
