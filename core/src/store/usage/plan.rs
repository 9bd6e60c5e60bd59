//! Plans. Only the operator's commands change them.

use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgExecutor};

use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::org::{DefaultLimit, PLAN_LIMITS, Plan, PlanChange};

/// Returns `true` if there is a plan with this name.
pub async fn exists(db: impl PgExecutor<'_>, plan: &str) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"select exists(select from plans where plan = $1) as "found!""#,
        plan
    )
    .fetch_one(db)
    .await?;
    Ok(found)
}

/// Returns all plans' names, by their rate limit.
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

/// Returns the limits of a plan.
pub async fn find(db: impl PgExecutor<'_>, plan: &str) -> Result<Option<Plan>> {
    let limits = sqlx::query_scalar!(
        r#"
        select row_to_json(p) as "limits!: Json<Plan>"
        from plan_limits p
        where plan = $1
        "#,
        plan
    )
    .fetch_optional(db)
    .await?;
    Ok(limits.map(|Json(plan)| plan))
}

/// Changes a plan. Returns `false` if there is no such plan.
pub async fn update(db: impl PgExecutor<'_>, plan: &str, change: &PlanChange) -> Result<bool> {
    let assignments = join(|place, column| format!("{column} = coalesce(${place}, {column})"));
    // Only constants are part of the statement.
    let statement = AssertSqlSafe(format!("update plans set {assignments} where plan = $1"));
    let mut query = sqlx::query(statement).bind(plan);
    for limit in PLAN_LIMITS {
        query = query.bind(change.get(limit.column).copied());
    }
    Ok(query.execute(db).await?.rows_affected() > 0)
}

/// Stores a plan. Replaces the plan if another process has just created it. Limits that depend on
/// others are not stored, so that they follow them.
pub async fn insert(db: impl PgExecutor<'_>, plan: &str, limits: &PlanChange) -> Result<()> {
    let columns = join(|_, column| column.to_owned());
    let values = join(|place, _| format!("${place}"));
    let replacements = join(|_, column| format!("{column} = excluded.{column}"));
    // Only constants are part of the statement.
    let statement = AssertSqlSafe(format!(
        "insert into plans (plan, {columns}) values ($1, {values})
         on conflict (plan) do update set {replacements}"
    ));
    let mut query = sqlx::query(statement).bind(plan);
    for limit in PLAN_LIMITS {
        let default = match limit.default {
            DefaultLimit::Fixed(limit) => Some(limit),
            DefaultLimit::Required | DefaultLimit::Times(..) => None,
        };
        query = query.bind(limits.get(limit.column).copied().or(default));
    }
    query.execute(db).await?;
    Ok(())
}

/// Returns a list for a statement, with an element for each limit from its parameter and its column.
/// The first parameter is the plan.
fn join(element: impl Fn(usize, &str) -> String) -> String {
    let elements = PLAN_LIMITS.iter().zip(2..);
    let elements: Vec<_> = elements
        .map(|(limit, place)| element(place, limit.column))
        .collect();
    elements.join(", ")
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
