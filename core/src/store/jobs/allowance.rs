//! Allowances: the submissions, the ladder and the final jobs that a suite's version permits.
//!
//! An allowance is held by an organization, by all organizations in one registrable domain, and by
//! all organizations on the plan `free` that one user created. A use by one counts for all.
//! The checks live here rather than in the operations because they are exact only while the
//! allowance rows are locked, in the submission's transaction.

use sqlx::PgExecutor;

use super::allowance_holders::holders;
use super::work::{Claim, SuccessfulAttempt, succeed_all};
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::suite::{Allowance, SuiteId};
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, PgPool};
use assay_eval::score::Figures;
use assay_eval::{DisclosurePolicy, Ladder};

/// An allowance's used part, for the holder that has used most.
struct Used {
    /// Submissions and comparisons for the suite, in any version, on the current day (UTC).
    today: i64,
    /// Submissions and comparisons for the version.
    in_all: i64,
    /// The next day's start (UTC).
    resets_at: Timestamp,
}

/// Returns the current holders of the organization's allowances, and those when the job was
/// submitted, so that joining or leaving other organizations gains nothing.
pub async fn holders_since_submission(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Vec<String>> {
    let mut all = holders(db, org_id).await?;
    all.extend(holders_of_job(db, org_id, job_id).await?);
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Returns the holders of the organization's allowances when the job was submitted.
async fn holders_of_job(
    db: &mut PgConnection,
    org_id: &OrgId,
    job_id: &JobId,
) -> Result<Vec<String>> {
    let holders = sqlx::query_scalar!(
        "
        select holder
        from suite_disclosures
        where org_id = $1
          and job_id = $2
          and kind = 'submission'
        ",
        org_id.as_str(),
        job_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(holders)
}

/// Locks the holders' allowances for a suite's version until the transaction ends.
pub async fn lock(
    db: &mut PgConnection,
    holders: &[String],
    suite_id: &SuiteId,
    suite_version: &str,
) -> Result<()> {
    // In a fixed order, so that two transactions that share several allowances do not deadlock.
    sqlx::query!(
        "
        insert into suite_allowances as a (holder, suite_id, suite_version)
        select distinct
            holder,
            $2,
            $3
        from unnest($1::text[]) as h(holder)
        order by holder
        on conflict (holder, suite_id, suite_version) do update
            set used_at = clock_timestamp()
        ",
        holders,
        suite_id.as_str(),
        suite_version
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Counts how often the holders' allowances were used at the given time. The allowances must be
/// locked by an earlier statement: a statement that waits for a lock sees the snapshot from before
/// the wait.
///
/// Reads the current day's uses, and the version's if `in_all` is set. The limits bound
/// both.
async fn used(
    db: &mut PgConnection,
    holders: &[String],
    suite_id: &SuiteId,
    suite_version: &str,
    at: Timestamp,
    in_all: bool,
) -> Result<Used> {
    let used = sqlx::query_as!(
        Used,
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        with used as (
            select
                count(*) filter (
                    where d.created_at >= date_trunc('day', $4::timestamptz, 'UTC')
                ) as today,
                count(*) filter (where d.suite_version = $3) as in_all
            from suite_disclosures d
            join jobs j on j.id = d.job_id
            where d.holder = any($1)
              and d.suite_id = $2
              -- Final jobs have a limit of their own; jobs without a result use nothing.
              and d.kind <> 'final'
              and j.status not in ('failed', 'cancelled')
              and (d.created_at >= date_trunc('day', $4, 'UTC') or ($5 and d.suite_version = $3))
            group by d.holder
        )
        select
            coalesce(max(today), 0) as "today!",
            coalesce(max(in_all), 0) as "in_all!",
            (
                date_trunc('day', $4 at time zone 'UTC') + interval '1 day'
            ) at time zone 'UTC' as "resets_at!: Timestamp"
        from used
        "#,
        holders,
        suite_id.as_str(),
        suite_version,
        at as Timestamp,
        in_all
    )
    .fetch_one(db)
    .await?;
    Ok(used)
}

/// The used part of a suite's daily limit.
pub struct DailyUse {
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The current version's limit.
    pub max_submissions_per_day: i32,
    /// Submissions and comparisons on the current day (UTC), by the holder that has used most.
    pub today: i64,
}

/// Returns how far the holders use the daily limits for the suites that have one and that the organization
/// sees, by id. It counts as [`permit`] does.
pub async fn daily_uses(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    holders: &[String],
) -> Result<Vec<DailyUse>> {
    let uses = sqlx::query_as!(
        DailyUse,
        r#"
        /* all tenants: all organizations that share an allowance count towards it */
        select
            c.suite_id as "suite_id: SuiteId",
            c.max_submissions_per_day as "max_submissions_per_day!",
            coalesce(u.today, 0) as "today!"
        from (
            select distinct on (s.suite_id)
                s.suite_id,
                s.max_submissions_per_day
            from visible_suites($1) v
            join suites s on s.suite_id = v.suite_id
            order by s.suite_id, s.published_at desc
        ) c
        left join lateral (
            select count(*) as today
            from suite_disclosures d
            join jobs j on j.id = d.job_id
            where d.holder = any($2)
              and d.suite_id = c.suite_id
              and d.kind <> 'final'
              and j.status not in ('failed', 'cancelled')
              and d.created_at >= date_trunc('day', now(), 'UTC')
            group by d.holder
            order by 1 desc
            limit 1
        ) u on true
        where c.max_submissions_per_day is not null
        order by c.suite_id
        "#,
        org_id.as_str(),
        holders
    )
    .fetch_all(db)
    .await?;
    Ok(uses)
}

/// An allowance's use.
#[derive(Debug, Clone, Copy)]
pub enum Use<'a> {
    /// The submission that created this job.
    Submission(&'a JobId),
    /// The comparison of a job with another job or a baseline, see [`Compared`].
    Comparison(&'a Compared),
    /// Marking this job as final.
    Final(&'a JobId),
}

/// A comparison, with one form for each pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    job_id: JobId,
    /// The other job's id, or `baseline:` and the baseline's name.
    to: String,
}

impl Compared {
    /// Returns the comparison of two jobs, in either order.
    pub fn jobs(one: &JobId, other: &JobId) -> Self {
        let (first, second) = if one.as_str() < other.as_str() {
            (one, other)
        } else {
            (other, one)
        };
        Self {
            job_id: first.clone(),
            to: second.to_string(),
        }
    }

    /// Returns the comparison of a job with a baseline of its suite.
    pub fn with_baseline(job_id: &JobId, name: &str) -> Self {
        Self {
            job_id: job_id.clone(),
            to: format!("baseline:{name}"),
        }
    }
}

/// Records a use by the organization for each holder. Idempotent.
pub async fn record(
    db: &mut PgConnection,
    org_id: &OrgId,
    holders: &[String],
    used: Use<'_>,
    suite_id: &SuiteId,
    suite_version: &str,
    at: Timestamp,
) -> Result<()> {
    let (kind, job_id, compared_to) = match used {
        Use::Submission(job_id) => ("submission", job_id, ""),
        Use::Comparison(compared) => ("comparison", &compared.job_id, compared.to.as_str()),
        Use::Final(job_id) => ("final", job_id, ""),
    };
    sqlx::query!(
        "
        insert into suite_disclosures (
            org_id,
            holder,
            kind,
            job_id,
            compared_to,
            suite_id,
            suite_version,
            created_at
        )
        select
            $1,
            holder,
            $3,
            $4,
            $5,
            $6,
            $7,
            $8
        from unnest($2::text[]) as h(holder)
        on conflict do nothing
        ",
        org_id.as_str(),
        holders,
        kind,
        job_id.as_str(),
        compared_to,
        suite_id.as_str(),
        suite_version,
        at as Timestamp
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns `true` if the organization made this comparison before. A repeated one discloses nothing
/// new.
pub async fn has_compared(
    db: &mut PgConnection,
    org_id: &OrgId,
    compared: &Compared,
) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"
        select exists(
            select from suite_disclosures
            where org_id = $1
              and kind = 'comparison'
              and job_id = $2
              and compared_to = $3
        ) as "found!"
        "#,
        org_id.as_str(),
        compared.job_id.as_str(),
        compared.to
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// The decision about one more submission.
pub enum Decision {
    /// It is permitted. Carries the allowance's holders.
    Granted(Vec<String>),
    /// The day's submissions are used up.
    DayUsedUp {
        /// Submissions per day.
        max: i64,
        /// The next day's start (UTC).
        resets_at: Timestamp,
    },
    /// The version's submissions are used up for good.
    UsedUp {
        /// Submissions for the version.
        max: i64,
    },
}

/// Locks the organization's allowances and decides whether they permit one more submission or
/// comparison.
pub async fn permit(
    db: &mut PgConnection,
    org_id: &OrgId,
    allowance: &Allowance<'_>,
    at: Timestamp,
) -> Result<Decision> {
    let holders = holders(db, org_id).await?;
    lock(db, &holders, allowance.suite_id, allowance.suite_version).await?;
    decide(db, holders, allowance, at).await
}

/// Decides whether the holders' allowances permit one more submission or comparison. Exact
/// only while they are locked.
async fn decide(
    db: &mut PgConnection,
    holders: Vec<String>,
    allowance: &Allowance<'_>,
    at: Timestamp,
) -> Result<Decision> {
    let Allowance {
        suite_id,
        suite_version,
        max_submissions,
        max_submissions_per_day,
    } = *allowance;
    if max_submissions.is_none() && max_submissions_per_day.is_none() {
        return Ok(Decision::Granted(holders));
    }
    let Used {
        today,
        in_all,
        resets_at,
    } = used(
        db,
        &holders,
        suite_id,
        suite_version,
        at,
        max_submissions.is_some(),
    )
    .await?;
    if let Some(max) = max_submissions.map(i64::from)
        && in_all >= max
    {
        return Ok(Decision::UsedUp { max });
    }
    if let Some(max) = max_submissions_per_day.map(i64::from)
        && today >= max
    {
        return Ok(Decision::DayUsedUp { max, resets_at });
    }
    Ok(Decision::Granted(holders))
}

/// Finishes a job with the figures that the ladder discloses, and raises the level for all who
/// share it. Returns `false`, and writes nothing, if the attempt is no longer the job's current
/// one. Jobs that share a ladder finish one after another.
pub async fn succeed_on_ladder(
    pool: &PgPool,
    claim: &Claim,
    ladder: Ladder,
    policy: DisclosurePolicy,
    figures: Figures,
    mut attempt: SuccessfulAttempt,
) -> Result<bool> {
    let mut transaction = pool.begin().await?;
    let mut level = lock_level(&mut transaction, claim).await?;
    let figures = policy.disclose(figures, Some((ladder, &mut level)))?;
    attempt.result = attempt.result.with_figures(figures);
    let done = succeed_all(&mut *transaction, &[attempt]).await? == [true];
    if done {
        raise_level(
            &mut transaction,
            claim,
            i32::try_from(level).unwrap_or(i32::MAX),
        )
        .await?;
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(done)
}

/// Locks the ladders of all who hold the job's allowance, and returns their highest level.
async fn lock_level(db: &mut PgConnection, claim: &Claim) -> Result<u32> {
    let suite = claim.suite()?;
    let levels = sqlx::query_scalar!(
        "
        insert into suite_allowances as a (holder, suite_id, suite_version)
        select
            holder,
            $2,
            $3
        from unnest($1::text[]) as h(holder)
        order by holder
        on conflict (holder, suite_id, suite_version) do update
            set level = a.level
        returning level
        ",
        &claim.holders,
        suite.suite_id.as_str(),
        suite.version
    )
    .fetch_all(db)
    .await?;
    let highest = levels.into_iter().max();
    Ok(highest
        .and_then(|level| u32::try_from(level).ok())
        .unwrap_or(0))
}

async fn raise_level(db: &mut PgConnection, claim: &Claim, level: i32) -> Result<()> {
    let suite = claim.suite()?;
    sqlx::query!(
        "
        update suite_allowances
        set level = $4
        where holder = any($1)
          and suite_id = $2
          and suite_version = $3
          and level < $4
        ",
        &claim.holders,
        suite.suite_id.as_str(),
        suite.version,
        level
    )
    .execute(db)
    .await?;
    Ok(())
}
