//! Plans. They are changed by the operator's commands alone.

use sqlx::PgExecutor;

use crate::org::{PlanChange, PlanRow};
use crate::{OrgId, Result};

/// Whether there is a plan of this name.
pub async fn exists(db: impl PgExecutor<'_>, plan: &str) -> Result<bool> {
    let found = sqlx::query_scalar!(r#"select exists(select from plans where plan = $1) as "found!""#, plan).fetch_one(db).await?;
    Ok(found)
}

/// The names of all plans.
pub async fn names(db: impl PgExecutor<'_>) -> Result<Vec<String>> {
    let names = sqlx::query_scalar!("select plan from plans order by requests_per_minute, plan").fetch_all(db).await?;
    Ok(names)
}

/// Changes a plan; what is not given stays. `None` when there is no such plan.
pub async fn update(db: impl PgExecutor<'_>, plan: &str, change: &PlanChange) -> Result<Option<PlanRow>> {
    let PlanChange { requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max } = change;
    let row = sqlx::query_as!(
        PlanRow,
        "update plans set requests_per_minute = coalesce($2, requests_per_minute), eval_items_per_month = coalesce($3, eval_items_per_month),
                          concurrent_jobs = coalesce($4, concurrent_jobs), upload_bytes_max = coalesce($5, upload_bytes_max)
         where plan = $1
         returning plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max",
        plan,
        *requests_per_minute,
        *eval_items_per_month,
        *concurrent_jobs,
        *upload_bytes_max
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Makes a plan, or changes all of it when somebody else has just made it.
pub async fn insert(db: impl PgExecutor<'_>, plan: &PlanRow) -> Result<()> {
    let PlanRow { plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max } = plan;
    sqlx::query!(
        "insert into plans (plan, requests_per_minute, eval_items_per_month, concurrent_jobs, upload_bytes_max) values ($1, $2, $3, $4, $5)
         on conflict (plan) do update set requests_per_minute = excluded.requests_per_minute,
             eval_items_per_month = excluded.eval_items_per_month, concurrent_jobs = excluded.concurrent_jobs,
             upload_bytes_max = excluded.upload_bytes_max",
        plan,
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs,
        upload_bytes_max
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Puts an organization on a plan, and returns its name. `None` when there is no such organization, or it was deleted.
pub async fn set(db: impl PgExecutor<'_>, org_id: &OrgId, plan: &str) -> Result<Option<String>> {
    let name = sqlx::query_scalar!("update orgs set plan = $2 where id = $1 and deleted_at is null returning name", org_id.as_str(), plan)
        .fetch_optional(db)
        .await?;
    Ok(name)
}
