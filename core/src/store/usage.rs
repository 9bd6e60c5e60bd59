//! What an organization used in a month, and the ledger that says why.

use sqlx::PgExecutor;

use super::PgConnection;
use crate::{JobId, OrgId, Result, Timestamp};

/// Charges a job to the month in which it was accepted, with its row of the ledger. `false`, and nothing is written,
/// when the month's maximum does not suffice.
pub async fn charge(db: &mut PgConnection, org_id: &OrgId, job_id: &JobId, eval_items: i64, at: Timestamp, max: i64) -> Result<bool> {
    let charged = sqlx::query!(
        "with charged as (
             insert into usage as u (org_id, period_start, eval_items)
             select $1, date_trunc('month', $4::timestamptz, 'UTC'), $3::bigint where $3 <= $5::bigint
             on conflict (org_id, period_start) do update set eval_items = u.eval_items + excluded.eval_items
                 where u.eval_items + excluded.eval_items <= $5
             returning period_start
         )
         insert into usage_ledger (org_id, job_id, kind, eval_items, period_start)
         select $1, $2, 'charge', $3, period_start from charged",
        org_id.as_str(),
        job_id.as_str(),
        eval_items,
        at as Timestamp,
        max
    )
    .execute(db)
    .await?;
    Ok(charged.rows_affected() == 1)
}

/// The first moment of the month after the given one, UTC.
pub async fn next_month(db: impl PgExecutor<'_>, at: Timestamp) -> Result<Timestamp> {
    let next = sqlx::query_scalar!(
        r#"select (date_trunc('month', $1::timestamptz at time zone 'UTC') + interval '1 month') at time zone 'UTC' as "next!: Timestamp""#,
        at as Timestamp
    )
    .fetch_one(db)
    .await?;
    Ok(next)
}
