//! The queue as the dispatcher reads it: the jobs that occupy workers, and each organization's first
//! waiting jobs.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgExecutor;

use super::leases::LEASE_DURATION;
use crate::model::error::Result;
use crate::model::ids::{JobId, OrgId};
use crate::model::queue::CHOICES_PER_OLDEST;
use crate::model::timestamp::Timestamp;

/// The time for which a job that has ended counts against its organization, since its start.
const COUNTED_AFTER_START: Duration = Duration::from_secs(60);

/// The waiting job count per organization among which the next one is chosen, the oldest
/// first. It bounds a choice's cost, whatever the backlog's length.
const CANDIDATES_PER_ORG: i64 = 50;

/// The workers' slots, and each organization's jobs that occupy them.
#[derive(Debug, Clone, PartialEq)]
pub struct Busy {
    /// The slots on workers whose lease has not expired.
    pub slots: u32,
    /// `true` if jobs wait for a notification.
    pub others_wait: bool,
    /// The jobs that workers run or were notified about.
    pub jobs: Vec<BusyJobs>,
}

/// The jobs of an organization that workers run or were notified about.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyJobs {
    /// The organization.
    pub org_id: OrgId,
    /// The cost of all, in items.
    pub cost: i64,
    /// The cost of all without the part that running jobs have done, in items.
    pub remaining_cost: i64,
    /// The cost for jobs that workers were notified about and do not run yet.
    pub notified_cost: i64,
    /// Running jobs with their own predictions, which are small.
    pub running_small: i64,
    /// Other running jobs.
    pub running_large: i64,
    /// Small jobs that workers were notified about and do not run yet.
    pub notified_small: i64,
    /// Other jobs that workers were notified about and do not run yet.
    pub notified_large: i64,
    /// Jobs that cost more than a given item count.
    pub long: i64,
}

/// Returns the workers' slots, and the jobs that occupy them. Jobs that cost more than
/// `cost_of_short_jobs_max` items are long.
pub async fn busy(db: impl PgExecutor<'_>, cost_of_short_jobs_max: i64) -> Result<Busy> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: the dispatcher serves every organization */
        with busy as (
            select
                org_id,
                cost,
                cost * (1 - progress) as remaining_cost,
                false as is_notified,
                type = 'eval' and input_key is null and upload_id is null as is_small
            from jobs
            where status = 'running'
            union all
            select
                org_id,
                cost,
                cost,
                true,
                type = 'eval' and input_key is null and upload_id is null
            from jobs
            where status = 'queued'
              and dispatched_at > '-infinity'
        ), of_org as (
            select
                org_id,
                sum(cost)::bigint as cost,
                sum(remaining_cost)::bigint as remaining_cost,
                coalesce(sum(cost) filter (where is_notified), 0)::bigint as notified_cost,
                count(*) filter (where is_small and not is_notified) as running_small,
                count(*) filter (where not is_small and not is_notified) as running_large,
                count(*) filter (where is_small and is_notified) as notified_small,
                count(*) filter (where not is_small and is_notified) as notified_large,
                count(*) filter (where cost > $2) as long
            from busy
            group by org_id
        )
        select
            w.slots as "slots!",
            w.others_wait as "others_wait!",
            o.org_id as "org_id?: OrgId",
            coalesce(o.cost, 0) as "cost!",
            coalesce(o.remaining_cost, 0) as "remaining_cost!",
            coalesce(o.notified_cost, 0) as "notified_cost!",
            coalesce(o.running_small, 0) as "running_small!",
            coalesce(o.running_large, 0) as "running_large!",
            coalesce(o.notified_small, 0) as "notified_small!",
            coalesce(o.notified_large, 0) as "notified_large!",
            coalesce(o.long, 0) as "long!"
        from (
            select
                (
                    select coalesce(sum(slots), 0)
                    from workers
                    where seen_at > now() - $1::float8 * interval '1 second'
                )::bigint as slots,
                exists(
                    select from jobs
                    where status = 'queued'
                      and dispatched_at is null
                      and available_at <= now()
                      and org_id <> all(
                          array(select o.id from orgs o where o.suspended_at is not null)
                      )
                ) as others_wait
        ) w
        left join of_org o on true
        "#,
        LEASE_DURATION.as_secs_f64(),
        cost_of_short_jobs_max
    )
    .fetch_all(db)
    .await?;
    Ok(Busy {
        slots: rows
            .first()
            .map_or(0, |row| u32::try_from(row.slots).unwrap_or(u32::MAX)),
        others_wait: rows.first().is_some_and(|row| row.others_wait),
        jobs: rows
            .into_iter()
            .filter_map(|row| {
                Some(BusyJobs {
                    org_id: row.org_id?,
                    cost: row.cost,
                    remaining_cost: row.remaining_cost,
                    notified_cost: row.notified_cost,
                    running_small: row.running_small,
                    running_large: row.running_large,
                    notified_small: row.notified_small,
                    notified_large: row.notified_large,
                    long: row.long,
                })
            })
            .collect(),
    })
}

/// Returns the cost of each organization's jobs that started in the last 60 s and have ended.
pub async fn recent_costs(db: impl PgExecutor<'_>) -> Result<HashMap<OrgId, i64>> {
    let rows = sqlx::query!(
        r#"
        /* all tenants: the dispatcher serves every organization */
        select
            org_id as "org_id: OrgId",
            sum(cost)::bigint as "cost!"
        from job_attempts
        where started_at > now() - $1::float8 * interval '1 second'
          and ended_at is not null
        group by org_id
        "#,
        COUNTED_AFTER_START.as_secs_f64()
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| (row.org_id, row.cost)).collect())
}

impl BusyJobs {
    /// Returns the job count.
    pub const fn jobs(&self) -> i64 {
        self.running_small + self.running_large + self.notified_small + self.notified_large
    }
}

/// An organization's waiting jobs that may be the next ones.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingOrg {
    /// The organization.
    pub org_id: OrgId,
    /// The organization plan's weight.
    pub weight: u32,
    /// The cost of jobs that count against it.
    pub active_cost: i64,
    /// Its jobs, the oldest first.
    pub jobs: Vec<WaitingJob>,
}

/// A job that waits for a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingJob {
    /// The job's id.
    pub job_id: JobId,
    /// The items that it costs.
    pub cost: i64,
    /// The submission's time.
    pub created_at: Timestamp,
    /// `true` if it has its own predictions. Scoring such a job takes less than a millisecond.
    pub is_small: bool,
}

/// Returns the waiting jobs among which the next `choices_max` jobs are, if none may cost more than
/// `cost_max`: the oldest jobs from as many organizations as could get a choice. While many
/// organizations wait, each one's jobs are limited to four times its share of the choices.
/// `active_costs` is the cost of the jobs that count against each organization.
pub async fn waiting(
    db: impl PgExecutor<'_>,
    active_costs: &HashMap<OrgId, i64>,
    choices_max: usize,
    cost_max: i64,
) -> Result<Vec<WaitingOrg>> {
    let (org_ids, costs): (Vec<&str>, Vec<i64>) = active_costs
        .iter()
        .map(|(org_id, cost)| (org_id.as_str(), *cost))
        .unzip();
    let rows = sqlx::query!(
        r#"
        /* all tenants: the dispatcher serves every organization */
        with recursive waiting as (
            -- Each step finds the first job of the next organization in the index, and skips the
            -- others.
            (
                select org_id, cost, created_at
                from jobs
                where status = 'queued'
                  and dispatched_at is null
                  and available_at <= now()
                  and cost <= $4
                order by org_id, created_at
                limit 1
            )
            union all
            select j.*
            from waiting w
            cross join lateral (
                select j.org_id, j.cost, j.created_at
                from jobs j
                where j.status = 'queued'
                  and j.dispatched_at is null
                  and j.available_at <= now()
                  and j.cost <= $4
                  and j.org_id > w.org_id
                order by j.org_id, j.created_at
                limit 1
            ) j
        ), firsts as (
            select
                w.org_id,
                p.queue_weight,
                coalesce(a.cost, 0) as active_cost,
                (coalesce(a.cost, 0) + w.cost)::float8 / p.queue_weight as sort_key,
                w.created_at
            from waiting w
            join orgs o on o.id = w.org_id
            join plan_limits p on p.plan = o.plan
            left join unnest($1::text[], $2::bigint[]) as a(org_id, cost) on a.org_id = w.org_id
            where o.suspended_at is null
        ), candidates as (
            -- The first job of another organization comes after as many others in both orders.
            (
                select *
                from firsts
                order by sort_key, created_at
                limit $3
            )
            union
            (
                select *
                from firsts
                order by created_at
                limit $3 / $6::bigint + 1
            )
        )
        select
            c.org_id as "org_id!: OrgId",
            c.queue_weight as "queue_weight!",
            c.active_cost as "active_cost!",
            j.id as "job_id: JobId",
            j.cost,
            j.created_at as "created_at: Timestamp",
            j.type = 'eval' and j.input_key is null and j.upload_id is null as "is_small!"
        from candidates c
        cross join lateral (
            select *
            from jobs j
            where j.org_id = c.org_id
              and j.status = 'queued'
              and j.dispatched_at is null
              and j.available_at <= now()
              and j.cost <= $4
            order by j.created_at
            limit least($3, $5, 4 * $3 / (select count(*) from candidates) + 1)
        ) j
        order by c.org_id, j.created_at
        "#,
        &org_ids as &[&str],
        &costs,
        i64::try_from(choices_max).unwrap_or(i64::MAX),
        cost_max,
        CANDIDATES_PER_ORG,
        i64::from(CHOICES_PER_OLDEST)
    )
    .fetch_all(db)
    .await?;
    let mut orgs: Vec<WaitingOrg> = Vec::new();
    for row in rows {
        let job = WaitingJob {
            job_id: row.job_id,
            cost: row.cost,
            created_at: row.created_at,
            is_small: row.is_small,
        };
        match orgs.last_mut() {
            Some(org) if org.org_id == row.org_id => org.jobs.push(job),
            _ => orgs.push(WaitingOrg {
                org_id: row.org_id,
                weight: row.queue_weight.unsigned_abs(),
                active_cost: row.active_cost,
                jobs: vec![job],
            }),
        }
    }
    Ok(orgs)
}

/// Records that notifications can be sent: workers leave choosing jobs to the dispatcher.
pub async fn record_notifier(db: impl PgExecutor<'_>) -> Result<()> {
    sqlx::query!("update queue_snapshots set notified_at = now()")
        .execute(db)
        .await?;
    Ok(())
}
