//! The log of the operator's commands.

use sqlx::PgExecutor;

use crate::model::error::Result;

/// Records a command's start, and returns its log entry's number.
pub async fn log_start(
    db: impl PgExecutor<'_>,
    command: &str,
    target: Option<&str>,
) -> Result<i64> {
    let id = sqlx::query_scalar!(
        "
        insert into operator_log (command, target)
        values ($1, $2)
        returning id
        ",
        command,
        target
    );
    Ok(id.fetch_one(db).await?)
}

/// Records a command's end. `target` is the command's object, if it was not known at the
/// start.
pub async fn log_end(
    db: impl PgExecutor<'_>,
    entry: i64,
    target: Option<&str>,
    outcome: &str,
) -> Result<()> {
    sqlx::query!(
        "
        update operator_log
        set
            finished_at = clock_timestamp(),
            outcome = $3,
            target = coalesce(target, $2)
        where id = $1
        ",
        entry,
        target,
        outcome
    )
    .execute(db)
    .await?;
    Ok(())
}
