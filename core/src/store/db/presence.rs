//! The live API process count. Each holds a shared advisory lock on its own connection,
//! so that PostgreSQL notices its end, whatever the cause.

use sqlx::PgExecutor;

use crate::model::error::Result;

/// The advisory lock that every API process shares: the letters "assa", and 1.
const CLASS: i32 = 0x6173_7361;
const OBJECT: i32 = 1;

/// Acquires the lock, which the connection holds until it closes.
pub async fn mark(db: impl PgExecutor<'_>) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_lock_shared($1, $2)", CLASS, OBJECT)
        .execute(db)
        .await?;
    Ok(())
}

/// Counts the connections that hold the lock in this database.
pub async fn count(db: impl PgExecutor<'_>) -> Result<i64> {
    let count = sqlx::query_scalar!(
        r#"
        select count(*) as "count!"
        from pg_locks
        where locktype = 'advisory'
          and granted
          and classid = $1::int::oid
          and objid = $2::int::oid
          and objsubid = 2
          and database = (select oid from pg_database where datname = current_database())
        "#,
        CLASS,
        OBJECT
    )
    .fetch_one(db)
    .await?;
    Ok(count)
}
