//! The database itself: connections, failover, notifications, and the statements and errors that
//! have no own subject. All other folders import from this one, and it imports from none.

pub mod combined_requests;
pub mod combined_statements;
pub mod doctor;
pub mod notifications;
mod pool;
pub mod presence;
mod primary;
mod primary_pool;
mod task_connections;

pub use pool::{
    PoolProfile, RESPONSE_TIMEOUT, acquire_within, connect, disconnect, pool, pool_with_task,
    within_response_timeout,
};
pub use primary_pool::PrimaryPool;
pub use sqlx::{Connection, PgConnection, PgPool, Postgres, Transaction};
pub use task_connections::TaskConnections;

use std::borrow::Cow;

use crate::model::error::{Code, Error, Result};
use crate::model::timestamp::Timestamp;

/// Acquires an advisory lock that is released with the connection. Returns `false` if another
/// connection holds it.
pub(super) async fn try_lock(db: &mut PgConnection, key: i64) -> Result<bool> {
    let locked = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, key)
        .fetch_one(db)
        .await?;
    Ok(locked)
}

/// Locks a name until the transaction ends, for a rule about rows that may not exist yet.
/// Transactions that lock several names must lock them in the same order.
pub async fn lock_name(db: &mut PgConnection, name: &str) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended($1, 0))",
        name
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the database clock's time at this statement.
pub async fn now(db: impl sqlx::PgExecutor<'_>) -> Result<Timestamp> {
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!: Timestamp""#)
        .fetch_one(db)
        .await?;
    Ok(now)
}

/// Returns the unique constraint's name that a statement violated, if that is the error.
pub fn unique_violation(error: &sqlx::Error) -> Option<&str> {
    error
        .as_database_error()
        .filter(|database| database.is_unique_violation())
        .and_then(|database| database.constraint())
}

/// Returns `true` if the database aborted a transaction after a deadlock. The transaction can
/// be retried.
pub fn is_deadlock(error: &Error) -> bool {
    sql_state(error).is_some_and(|state| state == "40P01")
}

/// Returns `true` if a statement failed because the database is unavailable. Otherwise the request
/// or another transaction's lock is the cause.
pub(super) fn is_connection_error(error: &Error) -> bool {
    let is_lock_conflict =
        sql_state(error).is_some_and(|state| state.starts_with("40") || state == "55P03");
    error.code == Code::Unavailable && !is_lock_conflict
}

/// Returns a failed statement's SQLSTATE.
fn sql_state(error: &Error) -> Option<Cow<'_, str>> {
    let cause = error.cause.as_ref()?.downcast_ref::<sqlx::Error>()?;
    cause.as_database_error()?.code()
}
