//! Board computation by workers. An attempt at a computation holds the board by a lease,
//! and its number is the fencing token for all its writes.

use std::time::Duration;

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::baselines::VsBaseline;
use crate::model::error::Result;
use crate::model::ids::{EntryId, JobId, OrgId, ReceiptId, UploadId};
use crate::model::receipt::nonce;
use crate::model::slices::FieldSlices;
use crate::model::suite::{BoardMode, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::PgConnection;
use assay_eval::SCORER;

/// The time for which an attempt holds a board after its last write.
pub const LEASE: Duration = Duration::from_secs(30);

/// The wait after an attempt that failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The shortest time between a live board's computations.
const LIVE_INTERVAL: Duration = Duration::from_secs(60);

/// A board that a worker has claimed for a computation.
#[derive(Debug, Clone)]
pub struct BoardClaim {
    /// The id of the suite.
    pub suite_id: SuiteId,
    /// The version of the suite.
    pub suite_version: String,
    /// The attempt's number, which fences its writes.
    pub attempt: i32,
    /// `true` if the board has closed: the computation has all entries that were accepted.
    pub is_closed: bool,
}

/// Claims a board that is due: one that has closed and is not final, a live one with changes, or a
/// final one from which an entry was withdrawn or removed.
pub async fn claim(db: impl PgExecutor<'_>) -> Result<Option<BoardClaim>> {
    let claim = sqlx::query_as!(
        BoardClaim,
        r#"
        /* all tenants: a board has the entries of every organization */
        with due as (
            select
                b.suite_id,
                b.suite_version
            from boards b
            left join board_computations c
                on c.suite_id = b.suite_id
                and c.suite_version = b.suite_version
                and c.computation = b.computation
            where coalesce(b.lease_until <= clock_timestamp(), true)
              and not exists (
                  select from suites s
                  where s.suite_id = b.suite_id
                    and s.version = b.suite_version
                    and (s.scorer_min > $4 or s.removed_at is not null)
              )
              and (
                  (b.closes_at <= clock_timestamp() and not b.is_final)
                  or (
                      (
                          b.closes_at <= clock_timestamp()
                          or (
                              b.mode = $1
                              and coalesce(c.as_of < now() - $2::float8 * interval '1 second', true)
                          )
                      )
                      and exists (
                          select from board_entries e
                          where e.suite_id = b.suite_id
                            and e.suite_version = b.suite_version
                            and e.revision > e.computed_revision
                      )
                  )
              )
            order by b.closes_at, b.suite_id, b.suite_version
            limit 1
            -- Waits for entries that are being stored, so that the computation sees them.
            for update of b skip locked
        )
        update boards b
        set
            attempt = b.attempt + 1,
            lease_until = clock_timestamp() + $3::float8 * interval '1 second'
        from due
        where b.suite_id = due.suite_id
          and b.suite_version = due.suite_version
        returning
            b.suite_id as "suite_id: SuiteId",
            b.suite_version,
            b.attempt,
            coalesce(b.closes_at <= clock_timestamp(), false) as "is_closed!"
        "#,
        BoardMode::Live as BoardMode,
        LIVE_INTERVAL.as_secs_f64(),
        LEASE.as_secs_f64(),
        SCORER
    )
    .fetch_optional(db)
    .await?;
    Ok(claim)
}

/// Renews an attempt's lease. Returns `false` if the attempt no longer holds the board. In a
/// transaction, it fences the other writes.
pub async fn renew(db: impl PgExecutor<'_>, claim: &BoardClaim) -> Result<bool> {
    set_lease(db, claim, LEASE).await
}

/// Ends an attempt that failed, so that another one begins soon.
pub async fn release(db: impl PgExecutor<'_>, claim: &BoardClaim) -> Result<bool> {
    set_lease(db, claim, RETRY_DELAY).await
}

async fn set_lease(
    db: impl PgExecutor<'_>,
    claim: &BoardClaim,
    duration: Duration,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        update boards
        set lease_until = clock_timestamp() + $4::float8 * interval '1 second'
        where suite_id = $1
          and suite_version = $2
          and attempt = $3
        ",
        claim.suite_id.as_str(),
        claim.suite_version,
        claim.attempt,
        duration.as_secs_f64()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A board entry, and its predictions' place.
#[derive(Debug, Clone)]
pub struct BoardEntry {
    /// The id of the entry.
    pub id: EntryId,
    /// The entry's organization.
    pub org_id: OrgId,
    /// The id of the job.
    pub job_id: JobId,
    /// The object key for inline predictions that are not stored with the job.
    pub input_key: Option<String>,
    /// The upload, if the predictions are not inline.
    pub upload_id: Option<UploadId>,
    /// The place among all entries by which the tests are stored, if they are.
    pub position: Option<i32>,
    /// The name, by which entries are ordered without regard to case.
    pub name: String,
    /// The entry's time.
    pub entered_at: Timestamp,
    /// `true` if the entry takes part in the tests: not withdrawn before the close. A removed one does, so that it can
    /// be restored.
    pub is_tested: bool,
    /// `true` if the entry was removed, so that the board leaves it out.
    pub is_removed: bool,
    /// `true` if the entry was withdrawn.
    pub is_withdrawn: bool,
    /// The entry's latest change number.
    pub revision: i32,
}

/// Returns a board's entries, in the order in which they were entered.
pub async fn entries(db: impl PgExecutor<'_>, claim: &BoardClaim) -> Result<Vec<BoardEntry>> {
    let entries = sqlx::query_as!(
        BoardEntry,
        r#"
        /* all tenants: a board has the entries of every organization */
        select
            e.id as "id: EntryId",
            e.org_id as "org_id: OrgId",
            e.job_id as "job_id: JobId",
            j.input_key,
            j.upload_id as "upload_id: UploadId",
            e.position,
            e.name,
            e.entered_at as "entered_at: Timestamp",
            (e.withdrawn_at is null or coalesce(e.withdrawn_at >= b.closes_at, false)) as "is_tested!",
            e.removed_at is not null as "is_removed!",
            e.withdrawn_at is not null as "is_withdrawn!",
            e.revision
        from board_entries e
        join boards b on b.suite_id = e.suite_id and b.suite_version = e.suite_version
        join jobs j on j.id = e.job_id
        where e.suite_id = $1
          and e.suite_version = $2
        order by e.entered_at, e.id
        "#,
        claim.suite_id.as_str(),
        claim.suite_version
    )
    .fetch_all(db)
    .await?;
    Ok(entries)
}

/// Predictions that are stored with their job.
pub struct StoredBody {
    /// The id of the job.
    pub job_id: JobId,
    /// The predictions.
    pub body: Vec<u8>,
}

/// Returns the predictions that are stored with these jobs.
pub async fn bodies(db: impl PgExecutor<'_>, job_ids: &[&str]) -> Result<Vec<StoredBody>> {
    let bodies = sqlx::query_as!(
        StoredBody,
        r#"
        /* all tenants: a board has the entries of every organization */
        select
            job_id as "job_id: JobId",
            body as "body!"
        from stored_predictions
        where job_id = any($1)
          and body is not null
        "#,
        job_ids as &[&str]
    )
    .fetch_all(db)
    .await?;
    Ok(bodies)
}

/// An entry's figures, and its pairs' tests with earlier entries.
#[derive(Debug, Clone)]
pub struct EntryPairs {
    /// The id of the entry.
    pub entry_id: EntryId,
    /// The place among all entries.
    pub position: i32,
    /// The figure that the board shows.
    pub value: f64,
    /// Its 95 % confidence interval, if the board shows one.
    pub ci95: Option<Vec<f64>>,
    /// The item count without a prediction.
    pub n_missing: i32,
    /// The test results against each of the suite's baselines, as in `evidence`.
    pub vs_baselines: Vec<u8>,
    /// The test results for each earlier position, 32-bit floats, little-endian.
    pub evidence: Vec<u8>,
}

/// Stores an entry's tests, with the slices that the board shows. They never change: storing them again changes nothing.
pub async fn insert_pairs(
    db: &mut PgConnection,
    claim: &BoardClaim,
    pairs: &EntryPairs,
    slices: &[FieldSlices],
) -> Result<()> {
    sqlx::query!(
        "
        /* all tenants: a board has the entries of every organization */
        with placed as (
            update board_entries
            set position = $4
            where id = $1
        )
        insert into board_pairs (
            entry_id,
            suite_id,
            suite_version,
            position,
            value,
            ci95,
            n_missing,
            evidence,
            slices,
            vs_baselines
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ",
        pairs.entry_id.as_str(),
        claim.suite_id.as_str(),
        claim.suite_version,
        pairs.position,
        pairs.value,
        pairs.ci95.as_deref(),
        pairs.n_missing,
        pairs.evidence,
        Json(slices) as _,
        pairs.vs_baselines
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the tests for all entries on a board, by position.
pub async fn pairs(db: impl PgExecutor<'_>, claim: &BoardClaim) -> Result<Vec<EntryPairs>> {
    let pairs = sqlx::query_as!(
        EntryPairs,
        r#"
        select
            entry_id as "entry_id: EntryId",
            position,
            value,
            ci95,
            n_missing,
            vs_baselines,
            evidence
        from board_pairs
        where suite_id = $1
          and suite_version = $2
        order by position
        "#,
        claim.suite_id.as_str(),
        claim.suite_version
    )
    .fetch_all(db)
    .await?;
    Ok(pairs)
}

/// Counts in an entry's cap group: the organizations that share an allowance.
pub struct GroupCounts {
    /// The id of the entry.
    pub entry_id: EntryId,
    /// Submissions to the suite's version until now, or until the board's close.
    pub n_submissions: i32,
    /// Withdrawn and removed entries on the board.
    pub n_withdrawn: i32,
}

/// Counts the submissions and the withdrawn entries in each entry's cap group.
pub async fn group_counts(db: impl PgExecutor<'_>, claim: &BoardClaim) -> Result<Vec<GroupCounts>> {
    let counts = sqlx::query_as!(
        GroupCounts,
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        with held as (
            select
                e.id,
                h.holder,
                (e.withdrawn_at is not null or e.removed_at is not null) as is_gone
            from board_entries e
            cross join unnest(e.holders) as h(holder)
            where e.suite_id = $1
              and e.suite_version = $2
        ), submitted as (
            select
                h.id,
                count(distinct (d.job_id, d.kind, d.compared_to)) as n
            from held h
            join suite_disclosures d on d.holder = h.holder and d.suite_id = $1
            join jobs j on j.id = d.job_id
            join boards b on b.suite_id = $1 and b.suite_version = $2
            where d.suite_version = $2
              and d.kind <> 'final'
              and d.created_at <= coalesce(b.closes_at, 'infinity')
              and j.status = 'succeeded'
            group by h.id
        ), withdrawn as (
            select
                h.id,
                count(distinct g.id) as n
            from held h
            join held g on g.holder = h.holder and g.is_gone
            group by h.id
        )
        select
            e.id as "entry_id: EntryId",
            coalesce(s.n, 0)::integer as "n_submissions!",
            coalesce(w.n, 0)::integer as "n_withdrawn!"
        from board_entries e
        left join submitted s on s.id = e.id
        left join withdrawn w on w.id = e.id
        where e.suite_id = $1
          and e.suite_version = $2
        "#,
        claim.suite_id.as_str(),
        claim.suite_version
    )
    .fetch_all(db)
    .await?;
    Ok(counts)
}

/// A computed board's row.
#[derive(Debug, Clone, PartialEq)]
pub struct ComputedRow {
    /// The id of the entry.
    pub entry_id: EntryId,
    /// The tier, from 1.
    pub tier: i32,
    /// The best rank that the tests do not exclude.
    pub rank_low: i32,
    /// The worst rank that the tests do not exclude.
    pub rank_high: i32,
    /// The figure that the board shows.
    pub value: f64,
    /// Its 95 % confidence interval, if the board shows one.
    pub ci95: Option<[f64; 2]>,
    /// The item count without a prediction.
    pub n_missing: i32,
    /// The cap group's submissions.
    pub n_submissions: i32,
    /// The cap group's withdrawn and removed entries.
    pub n_withdrawn: i32,
    /// The results against the suite's baselines.
    pub vs_baselines: Vec<VsBaseline>,
}

/// Stores a computation with its rows in order, and shows it from now on. `seen` are the changes
/// that it has, and `n_items` and `n_clusters` are the counts in the tests. Returns `false`, and writes
/// nothing, if the attempt no longer holds the board.
pub async fn finish(
    db: &mut PgConnection,
    claim: &BoardClaim,
    seen: &[(&EntryId, i32)],
    (n_items, n_clusters): (i32, Option<i32>),
    rows: &[ComputedRow],
) -> Result<bool> {
    let computation = sqlx::query_scalar!(
        r#"
        update boards
        set
            computation = coalesce(computation, 0) + 1,
            is_final = $4,
            lease_until = null
        where suite_id = $1
          and suite_version = $2
          and attempt = $3
        returning computation as "computation!"
        "#,
        claim.suite_id.as_str(),
        claim.suite_version,
        claim.attempt,
        claim.is_closed
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(computation) = computation else {
        return Ok(false);
    };
    sqlx::query!(
        "
        insert into board_computations (
            suite_id,
            suite_version,
            computation,
            as_of,
            n_entries,
            n_items,
            n_clusters
        )
        values ($1, $2, $3, clock_timestamp(), $4, $5, $6)
        ",
        claim.suite_id.as_str(),
        claim.suite_version,
        computation,
        i32::try_from(rows.len()).unwrap_or(i32::MAX),
        n_items,
        n_clusters
    )
    .execute(&mut *db)
    .await?;
    insert_rows(db, claim, computation, rows).await?;
    sqlx::query!(
        "
        delete from board_computations
        where suite_id = $1
          and suite_version = $2
          and computation < $3 - 1
        ",
        claim.suite_id.as_str(),
        claim.suite_version,
        computation
    )
    .execute(&mut *db)
    .await?;
    let (ids, revisions): (Vec<&str>, Vec<i32>) = seen
        .iter()
        .map(|(entry_id, revision)| (entry_id.as_str(), *revision))
        .unzip();
    sqlx::query!(
        "
        /* all tenants: a board has the entries of every organization */
        update board_entries e
        set computed_revision = s.revision
        from unnest($1::text[], $2::integer[]) as s(id, revision)
        where e.id = s.id
          and e.computed_revision <> s.revision
        ",
        &ids as &[&str],
        &revisions
    )
    .execute(db)
    .await?;
    Ok(true)
}

async fn insert_rows(
    db: &mut PgConnection,
    claim: &BoardClaim,
    computation: i32,
    rows: &[ComputedRow],
) -> Result<()> {
    let integers = |of: fn(&ComputedRow) -> i32| rows.iter().map(of).collect::<Vec<_>>();
    let entry_ids: Vec<&str> = rows.iter().map(|row| row.entry_id.as_str()).collect();
    let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
    let vs_baselines: Vec<Json<&[VsBaseline]>> = rows
        .iter()
        .map(|row| Json(row.vs_baselines.as_slice()))
        .collect();
    let end = |of: usize| -> Vec<Option<f64>> {
        rows.iter()
            .map(|row| row.ci95.map(|ends| ends[of]))
            .collect()
    };
    sqlx::query!(
        "
        insert into board_rows (
            suite_id,
            suite_version,
            computation,
            place,
            entry_id,
            tier,
            rank_low,
            rank_high,
            value,
            ci95,
            n_missing,
            n_submissions,
            n_withdrawn,
            slices,
            vs_baselines
        )
        select
            $1,
            $2,
            $3,
            r.place,
            r.entry_id,
            r.tier,
            r.rank_low,
            r.rank_high,
            r.value,
            case when r.ci_low is not null then array[r.ci_low, r.ci_high] end,
            r.n_missing,
            r.n_submissions,
            r.n_withdrawn,
            p.slices,
            r.vs_baselines
        from unnest(
            $4::text[],
            $5::integer[],
            $6::integer[],
            $7::integer[],
            $8::float8[],
            $9::float8[],
            $10::float8[],
            $11::integer[],
            $12::integer[],
            $13::integer[],
            $14::jsonb[]
        ) with ordinality as r(
            entry_id,
            tier,
            rank_low,
            rank_high,
            value,
            ci_low,
            ci_high,
            n_missing,
            n_submissions,
            n_withdrawn,
            vs_baselines,
            place
        )
        join board_pairs p on p.entry_id = r.entry_id
        ",
        claim.suite_id.as_str(),
        claim.suite_version,
        computation,
        &entry_ids as &[&str],
        &integers(|row| row.tier),
        &integers(|row| row.rank_low),
        &integers(|row| row.rank_high),
        &values,
        &end(0) as &[Option<f64>],
        &end(1) as &[Option<f64>],
        &integers(|row| row.n_missing),
        &integers(|row| row.n_submissions),
        &integers(|row| row.n_withdrawn),
        &vs_baselines as &[Json<&[VsBaseline]>]
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Notes the versions that closed a minute ago, with a final board if they have one: their figures
/// do not change any more, and all have receipts.
async fn note_closes_as_stated(db: &mut PgConnection) -> Result<()> {
    sqlx::query!(
        "
        update suite_commitments c
        set close_stated = true
        from suites s
        where not c.close_stated
          and s.suite_id = c.suite_id
          and s.version = c.suite_version
          and s.closes_at <= clock_timestamp() - interval '1 minute'
          and not exists (
              select from boards b
              where b.suite_id = c.suite_id
                and b.suite_version = c.suite_version
                and not b.is_final
          )
        "
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The most receipts that one statement states.
const RECEIPTS_PER_STATEMENT: i64 = 500;

/// States the figures that the close of suites has disclosed: final jobs' sealed figures, and
/// entries' figures on the boards of suites with a ladder. Returns the receipt count. Each exists
/// once, however often and in however many processes this runs.
pub async fn state_disclosed_figures(db: &mut PgConnection) -> Result<u64> {
    let jobs = sqlx::query!(
        r#"
        /* all tenants: workers state the figures of every organization */
        select
            p.job_id as "job_id!",
            p.figures as "figures!",
            p.value as "value!"
        from (
            select
                j.id as job_id,
                'sealed' as figures,
                r.value
            from suite_commitments c
            join suites s on s.suite_id = c.suite_id and s.version = c.suite_version
            join sealed_results r on r.suite_id = s.suite_id and r.suite_version = s.version
            join jobs j on j.id = r.job_id
            where not c.close_stated
              and s.closes_at <= clock_timestamp()
              and s.n_sealed > 0
              and j.final_at is not null
            union all
            select
                e.job_id,
                'board' as figures,
                w.value
            from suite_commitments c
            join suites s on s.suite_id = c.suite_id and s.version = c.suite_version
            join boards b on b.suite_id = s.suite_id and b.suite_version = s.version
            join board_rows w
                on w.suite_id = b.suite_id
                and w.suite_version = b.suite_version
                and w.computation = b.computation
            join board_entries e on e.id = w.entry_id
            where not c.close_stated
              and b.is_final
              and s.ladder_step is not null
        ) p
        where exists (
              select from receipts r
              where r.job_id = p.job_id
                and r.figures in ('all', 'open')
          )
          and not exists (
              select from receipts r
              where r.job_id = p.job_id
                and r.figures = p.figures
          )
        limit $1
        "#,
        RECEIPTS_PER_STATEMENT
    )
    .fetch_all(&mut *db)
    .await?;
    if jobs.is_empty() {
        note_closes_as_stated(db).await?;
        return Ok(0);
    }
    let job_ids: Vec<&str> = jobs.iter().map(|job| job.job_id.as_str()).collect();
    let figures: Vec<&str> = jobs.iter().map(|job| job.figures.as_str()).collect();
    let values: Vec<f64> = jobs.iter().map(|job| job.value).collect();
    let mut ids = Vec::with_capacity(jobs.len());
    let mut nonces = Vec::with_capacity(jobs.len());
    for _ in &jobs {
        ids.push(String::from(ReceiptId::random()?));
        nonces.push(nonce()?);
    }
    let done = sqlx::query!(
        r#"
        /* all tenants: workers state the figures of every organization */
        insert into receipts (
            id,
            org_id,
            job_id,
            suite_id,
            suite_version,
            figures,
            payload,
            predictions_sha256,
            submission_number,
            issued_at
        )
        select
            g.id,
            j.org_id,
            j.id,
            j.suite_id,
            j.suite_version,
            g.figures,
            receipt_payload(
                g.id,
                j.org_id,
                j.id,
                s.salt,
                c.commitment,
                r.predictions_sha256,
                r.submission_number,
                j.result || case g.figures
                    when 'sealed' then jsonb_build_object(
                        'value', d.value,
                        'ci95', to_jsonb(d.ci95),
                        'ci_method', d.ci_method,
                        'n', d.n,
                        'n_missing', d.n_missing,
                        'n_clusters', d.n_clusters
                    )
                    else jsonb_build_object('value', g.value, 'ci95', null, 'ci_method', null)
                end,
                g.figures,
                'this_submission',
                j.finished_at,
                t.now,
                g.nonce,
                nullif(u.cluster, 'none'),
                u.average
            ),
            r.predictions_sha256,
            r.submission_number,
            t.now
        from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[])
            as g(id, job_id, figures, nonce, value)
        join jobs j on j.id = g.job_id
        join receipts r on r.job_id = g.job_id and r.figures in ('all', 'open')
        join receipt_salts s
            on s.org_id = j.org_id
            and s.suite_id = j.suite_id
            and s.suite_version = j.suite_version
        join suite_commitments c on c.suite_id = j.suite_id and c.suite_version = j.suite_version
        join suites u on u.suite_id = j.suite_id and u.version = j.suite_version
        left join sealed_results d on d.job_id = j.id
        cross join (select clock_timestamp() as now) t
        on conflict (job_id, figures) do nothing
        "#,
        &ids,
        &job_ids as &[&str],
        &figures as &[&str],
        &nonces,
        &values
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected())
}
