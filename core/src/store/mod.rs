//! Every SQL statement of the platform, one function each.
//!
//! What lives here: SQL, and nothing else knows sqlx's queries. A statement on a tenant's table has the organization as
//! the function's second parameter and in its `where`. The statements of the dispatcher and of the workers act for all
//! organizations; they live in `dispatch` and `work` only.
//! What may not: decisions. A function returns what it found; the operation says what that means.

pub mod allowance;
pub mod auth;
pub mod credential;
pub mod dispatch;
pub mod domain;
pub mod invite;
pub mod job;
pub mod key;
pub mod member;
pub mod model;
pub mod notifications;
pub mod operator;
pub mod org;
pub mod plan;
pub mod publish;
pub mod schema;
pub mod submission;
pub mod suite;
pub mod terms;
pub mod trace;
pub mod upload;
pub mod usage;
pub mod work;

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Postgres};
pub use sqlx::{PgConnection, PgPool};

use crate::{Code, Error, Result, Timestamp};

/// How long a request waits for a connection before it is told that the service is not available.
const ACQUIRE: Duration = Duration::from_millis(1500);

/// What a process's connections are for.
pub struct Bounds {
    /// How long the server lets statements and transactions last: one that hangs, or whose process is frozen, must not
    /// hold its locks for ever.
    times: &'static [(&'static str, &'static str)],
    /// Whether all connections are opened at the start: nobody should wait for that when many ask at once.
    at_once: bool,
}

/// After how long without work a connection is asked whether it still is one. One that was at work just now is.
const DOUBT: Duration = Duration::from_secs(1);

impl Bounds {
    /// Requests are short.
    pub const REQUESTS: Self = Self {
        times: &[("statement_timeout", "10s"), ("lock_timeout", "2s"), ("idle_in_transaction_session_timeout", "5s")],
        at_once: true,
    };
    /// Workers read whole suites.
    pub const WORK: Self =
        Self { times: &[("statement_timeout", "10min"), ("idle_in_transaction_session_timeout", "10s")], at_once: false };
    /// The operator knows how long.
    pub const OPERATOR: Self = Self { times: &[], at_once: false };
}

/// Opens a pool. It connects in the background: a database that is away now is no reason not to start.
pub fn pool(url: &str, connections: u32, application: &str, bounds: Bounds) -> Result<PgPool> {
    // The cause of a bad address is not kept: it would repeat the address, and with it the password.
    let options: PgConnectOptions = url
        .parse()
        .map_err(|_| Error::internal("the address of the database is not of the form postgres://user:password@host/database"))?;
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(if bounds.at_once { connections } else { 0 })
        .acquire_timeout(ACQUIRE)
        .test_before_acquire(false)
        .before_acquire(|connection, about| {
            Box::pin(async move { if about.idle_for > DOUBT { connection.ping().await.map(|()| true) } else { Ok(true) } })
        })
        .connect_lazy_with(options.application_name(application).options(bounds.times.iter().copied())))
}

/// A connection for a request that has not begun. 503 where all are at work and none comes free in this time: what waits
/// longer would only add to what is late already.
pub async fn soon(db: &PgPool, patience: Duration) -> Result<PoolConnection<Postgres>> {
    // Where not all are open, one is being opened, and that takes its time.
    if db.size() < db.options().get_max_connections() {
        return Ok(db.acquire().await?);
    }
    let acquired = tokio::time::timeout(patience, db.acquire()).await;
    Ok(acquired.map_err(|_| Error::unavailable("all connections to the database are at work"))??)
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let away = match &error {
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(database) => {
                let state = database.code();
                let state = state.as_deref().unwrap_or_default();
                // Class 22: the data does not fit. Requests are checked before, so this is the last net, never a 500.
                if state.starts_with("22") {
                    return Self::new(Code::ValidationFailed, "A value of the request cannot be stored.").because(error);
                }
                // Raised by the triggers that reject rows of a suspended organization.
                if state == "AY001" {
                    return Self::org_suspended();
                }
                // Connection exceptions, transactions in each other's way, insufficient resources, operator intervention, a
                // lock that is held: it will pass.
                ["08", "40", "53", "57", "55P03", "25P03"].iter().any(|class| state.starts_with(class))
            }
            _ => false,
        };
        if away { Self::unavailable(error) } else { Self::internal(error) }
    }
}

/// The database's clock, at this statement.
pub async fn now(db: impl sqlx::PgExecutor<'_>) -> Result<Timestamp> {
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!: Timestamp""#).fetch_one(db).await?;
    Ok(now)
}

/// The name of the unique constraint that a statement ran into, if that is what happened.
pub fn unique_violation(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().filter(|database| database.is_unique_violation()).and_then(|database| database.constraint())
}

/// Whether the database ended a transaction because it and another one waited for each other. It can be run again.
pub fn is_deadlock(error: &Error) -> bool {
    let cause = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<sqlx::Error>());
    let database = cause.and_then(sqlx::Error::as_database_error);
    database.and_then(sqlx::error::DatabaseError::code).is_some_and(|state| state == "40P01")
}
