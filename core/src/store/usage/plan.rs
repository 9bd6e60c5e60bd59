//! Plans. Only the operator's commands change them.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::org::{PlanChange, PlanRow, default_storage_bytes};

/// Returns `true` if there is a plan of this name.
pub async fn exists(db: impl PgExecutor<'_>, plan: &str) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from plans where plan = $1) as "found!""#,
        plan
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// Returns the names of all plans, by their rate limit.
pub async fn names(db: impl PgExecutor<'_>) -> Result<Vec<String>> {
    let names = sqlx::query_scalar!(
        "
        select plan
        from plans
        order by requests_per_minute, plan
        "
    )
    .fetch_all(db)
    .await?;
    Ok(names)
}

/// Changes a plan. `None` leaves a column unchanged. Returns `None` if there is no such plan.
pub async fn update(
    db: impl PgExecutor<'_>,
    plan: &str,
    change: &PlanChange,
) -> Result<Option<PlanRow>> {
    let PlanChange {
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs,
        upload_bytes_max,
        storage_bytes,
        predict_items_per_month,
        generated_events_per_month,
        embeddings_per_month,
        queue_weight,
    } = change;
    let row = sqlx::query!(
        "
        update plans
        set
            requests_per_minute = coalesce($2, requests_per_minute),
            eval_items_per_month = coalesce($3, eval_items_per_month),
            concurrent_jobs = coalesce($4, concurrent_jobs),
            upload_bytes_max = coalesce($5, upload_bytes_max),
            storage_bytes = coalesce($6, storage_bytes),
            predict_items_per_month = coalesce($7, predict_items_per_month),
            generated_events_per_month = coalesce($8, generated_events_per_month),
            embeddings_per_month = coalesce($9, embeddings_per_month),
            queue_weight = coalesce($10, queue_weight)
        where plan = $1
        returning
            plan,
            requests_per_minute,
            eval_items_per_month,
            concurrent_jobs,
            upload_bytes_max,
            storage_bytes,
            predict_items_per_month,
            generated_events_per_month,
            embeddings_per_month,
            queue_weight
        ",
        plan,
        *requests_per_minute,
        *eval_items_per_month,
        *concurrent_jobs,
        *upload_bytes_max,
        *storage_bytes,
        *predict_items_per_month,
        *generated_events_per_month,
        *embeddings_per_month,
        *queue_weight
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| PlanRow {
        plan: row.plan,
        requests_per_minute: row.requests_per_minute,
        eval_items_per_month: row.eval_items_per_month,
        concurrent_jobs: row.concurrent_jobs,
        upload_bytes_max: row.upload_bytes_max,
        storage_bytes: row
            .storage_bytes
            .unwrap_or(default_storage_bytes(row.upload_bytes_max)),
        predict_items_per_month: row
            .predict_items_per_month
            .unwrap_or(row.eval_items_per_month),
        generated_events_per_month: row
            .generated_events_per_month
            .unwrap_or(row.eval_items_per_month),
        embeddings_per_month: row.embeddings_per_month.unwrap_or(row.eval_items_per_month),
        queue_weight: row.queue_weight,
    }))
}

/// Stores a plan. Replaces the plan if another process has just created it.
pub async fn insert(db: impl PgExecutor<'_>, plan: &PlanRow) -> Result<()> {
    let PlanRow {
        plan,
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs,
        upload_bytes_max,
        storage_bytes,
        predict_items_per_month,
        generated_events_per_month,
        embeddings_per_month,
        queue_weight,
    } = plan;
    // Defaults are not stored, so that they follow the limits that they depend on.
    let storage_bytes =
        (*storage_bytes != default_storage_bytes(*upload_bytes_max)).then_some(*storage_bytes);
    let units = |units: i64| (units != *eval_items_per_month).then_some(units);
    sqlx::query!(
        "
        insert into plans (
            plan,
            requests_per_minute,
            eval_items_per_month,
            concurrent_jobs,
            upload_bytes_max,
            storage_bytes,
            predict_items_per_month,
            generated_events_per_month,
            embeddings_per_month,
            queue_weight
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (plan) do update
            set
                requests_per_minute = excluded.requests_per_minute,
                eval_items_per_month = excluded.eval_items_per_month,
                concurrent_jobs = excluded.concurrent_jobs,
                upload_bytes_max = excluded.upload_bytes_max,
                storage_bytes = excluded.storage_bytes,
                predict_items_per_month = excluded.predict_items_per_month,
                generated_events_per_month = excluded.generated_events_per_month,
                embeddings_per_month = excluded.embeddings_per_month,
                queue_weight = excluded.queue_weight
        ",
        plan,
        requests_per_minute,
        eval_items_per_month,
        concurrent_jobs,
        upload_bytes_max,
        storage_bytes,
        units(*predict_items_per_month),
        units(*generated_events_per_month),
        units(*embeddings_per_month),
        queue_weight
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Moves an organization to a plan, and returns its name and its plan before. Returns `None` if there is no such
/// organization, or if it was deleted.
pub async fn set(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    plan: &str,
) -> Result<Option<(String, String)>> {
    let row = sqlx::query!(
        "
        with before as (
            select id, plan
            from orgs
            where id = $1
              and deleted_at is null
            for no key update
        )
        update orgs o
        set plan = $2
        from before b
        where o.id = b.id
        returning o.name, b.plan as plan_before
        ",
        org_id.as_str(),
        plan
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| (row.name, row.plan_before)))
}
