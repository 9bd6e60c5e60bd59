//! Every SQL statement of the platform, one function each.
//!
//! What lives here: SQL, and nothing else knows sqlx's queries. A statement on a tenant's table has the organization as
//! the function's second parameter and in its `where`. The statements of the dispatcher, of cleanup and of the workers act for all
//! organizations; they live in `dispatch`, `work`, `cleanup` and `reconcile` only.
//! What may not: decisions. A function returns what it found; the operation says what that means.

pub mod allowance;
pub mod auth;
pub mod catalog;
pub mod cleanup;
pub mod credential;
pub mod dispatch;
pub mod email_domain;
pub mod invite;
pub mod job;
pub mod key;
pub mod member;
pub mod migrations;
pub mod notifications;
pub mod operator;
pub mod org;
pub mod plan;
pub mod presence;
mod primary;
pub mod publish;
pub mod reconcile;
pub mod session;
pub mod storage;
pub mod submission;
pub mod suite;
pub mod terms;
pub mod trace;
pub mod upload;
pub mod usage;
pub mod work;

use std::time::Duration;

use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use sqlx::pool::{PoolConnection, PoolConnectionMetadata};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _};
pub use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::time::{Instant, timeout};

use crate::model::error::{BestEffort as _, Code, Error, Result};
use crate::model::timestamp::Timestamp;

/// How long a request waits for a connection before it is told that the service is not available.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);

/// What a process's connections are for.
pub struct PoolProfile {
    /// How long the server lets statements and transactions last: one that hangs, or whose process is frozen, must not
    /// hold its locks for ever.
    times: &'static [(&'static str, &'static str)],
    /// Whether all connections are opened at the start: nobody should wait for that when many ask at once.
    open_eagerly: bool,
}

/// How long the response to a statement may take. The server ends statements of requests after this time, so a response that is
/// later does not come: the connection is half-open, or the server is frozen.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that was idle for longer is checked before it is used.
const IDLE_TRUSTED: Duration = Duration::from_secs(1);

/// How long the check of an idle connection may take. One that takes longer is replaced.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a connection that is returned to the pool may take to finish a statement whose caller has gone. It is closed
/// then: it would otherwise occupy its place in the pool until TCP gives up, which takes a quarter of an hour.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

impl PoolProfile {
    /// Requests are short.
    pub const REQUESTS: Self = Self {
        times: &[
            ("statement_timeout", "10s"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "5s"),
        ],
        open_eagerly: true,
    };
    /// Workers read whole suites.
    pub const WORK: Self = Self {
        times: &[
            ("statement_timeout", "10min"),
            ("idle_in_transaction_session_timeout", "10s"),
        ],
        open_eagerly: false,
    };
    /// Cleanup reads and deletes bounded numbers of rows.
    pub const CLEANUP: Self = Self {
        times: &[
            ("statement_timeout", "60s"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "10s"),
        ],
        open_eagerly: false,
    };
    /// The operator knows how long.
    pub const OPERATOR: Self = Self {
        times: &[],
        open_eagerly: false,
    };
}

/// Opens one connection to the server that the pool uses, for work that outlives requests.
pub async fn connect(
    pool: &PgPool,
    application: &str,
    profile: PoolProfile,
) -> Result<PgConnection> {
    let options = pool
        .connect_options()
        .as_ref()
        .clone()
        .application_name(application)
        .options(profile.times.iter().copied());
    let mut db = timeout(ACQUIRE_TIMEOUT, options.connect())
        .await
        .map_err(|_| Error::unavailable("the database does not respond"))??;
    require_writable(&mut db).await?;
    Ok(db)
}

/// Closes a connection, and with it ends its advisory locks. Best effort: the server closes it with the socket, too.
pub async fn disconnect(db: PgConnection) {
    db.close()
        .await
        .best_effort("closing a connection to the database");
}

/// Takes an advisory lock that ends with the connection. Returns `false` if another connection holds it.
async fn try_lock(db: &mut PgConnection, key: i64) -> Result<bool> {
    let locked = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, key)
        .fetch_one(db)
        .await?;
    Ok(locked)
}

/// Opens a pool. It connects in the background: a database that is away now is no reason not to start.
///
/// The connection string may name several servers; the pool connects to the one that accepts writes, and follows it.
///
/// # Errors
/// When the connection string is malformed.
pub fn pool(
    url: &str,
    connections: u32,
    application: &str,
    profile: PoolProfile,
) -> Result<PgPool> {
    let options = |server: PgConnectOptions| {
        server
            .application_name(application)
            .options(profile.times.iter().copied())
    };
    let servers: Vec<_> = primary::parse(url)?.into_iter().map(options).collect();
    let first = servers
        .first()
        .ok_or_else(|| Error::internal("the address of the database names no server"))?;
    let switch = primary::Switch::default();
    let (acquired, released) = (switch.clone(), switch.clone());
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(if profile.open_eagerly { connections } else { 0 })
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_connect(|connection, _| require_writable(connection))
        .before_acquire(move |connection, about| {
            let is_outdated = acquired.is_outdated(about.age);
            Box::pin(async move {
                if is_outdated {
                    Ok(false)
                } else {
                    is_usable(connection, about).await
                }
            })
        })
        .after_release(move |connection, about| {
            let is_outdated = released.is_outdated(about.age);
            Box::pin(async move {
                let flushed = timeout(RELEASE_TIMEOUT, connection.flush()).await;
                flushed
                    .unwrap_or_else(|_| Err(no_response()))
                    .map(|()| !is_outdated)
            })
        });
    if servers.len() < 2 {
        return Ok(pool.connect_lazy_with(first.clone()));
    }
    let pool = pool.connect_lazy_with(primary::unknown(first));
    tokio::spawn(primary::follow(pool.clone(), servers, switch));
    Ok(pool)
}

/// A connection that belongs to no pool, for listening: a pool's place is not held by one that hangs. It leads to the pool's server.
fn listening(options: &PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_connect(|connection, _| require_writable(connection));
    pool.connect_lazy_with(options.clone())
}

fn no_response() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// When a statement was last refused because the server is read-only. Connections may stay open while a primary is demoted.
static READ_ONLY_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Whether a connection that comes from the pool can be used: the server responds, and accepts writes.
async fn is_usable(
    connection: &mut PgConnection,
    about: PoolConnectionMetadata,
) -> Result<bool, sqlx::Error> {
    let refused = *READ_ONLY_SINCE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // A connection that was refused is released a little after the refusal was noted.
    let may_be_read_only =
        refused.is_some_and(|refused| about.idle_for + IDLE_TRUSTED > refused.elapsed());
    let check = async {
        if may_be_read_only {
            primary::accepts_writes(connection).await
        } else if about.idle_for > IDLE_TRUSTED {
            connection.ping().await.map(|()| true)
        } else {
            Ok(true)
        }
    };
    timeout(CHECK_TIMEOUT, check)
        .await
        .unwrap_or_else(|_| Err(no_response()))
}

/// Refuses a connection to a server that does not accept writes: a name or an address that does not lead to the new primary yet.
fn require_writable(connection: &mut PgConnection) -> BoxFuture<'_, Result<(), sqlx::Error>> {
    Box::pin(async move {
        match primary::accepts_writes(connection).await? {
            true => Ok(()),
            false => Err(sqlx::Error::Protocol("the server is read-only".into())),
        }
    })
}

/// Waits for short statements no longer than [`RESPONSE_TIMEOUT`]. What they have done by then is unknown to the caller.
///
/// # Errors
/// Theirs, and `unavailable` after that time.
pub async fn within_response_timeout<T>(statements: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(RESPONSE_TIMEOUT, statements)
        .await
        .unwrap_or_else(|_| Err(Error::unavailable("the database does not respond")))
}

/// A connection for a request that has not begun. 503 where all are at work and none comes free in this time: what waits
/// longer would only add to what is late already.
pub async fn acquire_within(
    db: &PgPool,
    acquire_timeout: Duration,
) -> Result<PoolConnection<Postgres>> {
    // Where not all are open, one is being opened, and that takes its time.
    if db.size() < db.options().get_max_connections() {
        return Ok(db.acquire().await?);
    }
    let acquired = tokio::time::timeout(acquire_timeout, db.acquire()).await;
    Ok(acquired
        .map_err(|_| Error::unavailable("all connections to the database are at work"))??)
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let away = match &error {
            sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::Io(_)
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(database) => {
                let state = database.code();
                let state = state.as_deref().unwrap_or_default();
                // Class 22: the data does not fit. Requests are checked before, so this is the last net, never a 500.
                if state.starts_with("22") {
                    return Self::new(
                        Code::ValidationFailed,
                        "A value of the request cannot be stored.",
                    )
                    .because(error);
                }
                // Raised by the triggers that reject rows of a suspended organization.
                if state == "AY001" {
                    return Self::org_suspended();
                }
                if state == "25006" {
                    *READ_ONLY_SINCE
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                // Connection exceptions, transactions in each other's way, insufficient resources, operator intervention, a
                // lock that is held, a server that was demoted: it will pass.
                ["08", "40", "53", "57", "55P03", "25P03", "25006"]
                    .iter()
                    .any(|class| state.starts_with(class))
            }
            _ => false,
        };
        if away {
            Self::unavailable(error)
        } else {
            Self::internal(error)
        }
    }
}

/// Locks a name until the transaction ends, for a rule about rows that may not exist yet. Transactions that take several such locks must
/// take them in the same order.
pub async fn lock_name(db: &mut PgConnection, name: &str) -> Result<()> {
    sqlx::query!(
        "select pg_advisory_xact_lock(hashtextextended($1, 0))",
        name
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The database's clock, at this statement.
pub async fn now(db: impl sqlx::PgExecutor<'_>) -> Result<Timestamp> {
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!: Timestamp""#)
        .fetch_one(db)
        .await?;
    Ok(now)
}

/// The name of the unique constraint that a statement ran into, if that is what happened.
pub fn unique_violation(error: &sqlx::Error) -> Option<&str> {
    error
        .as_database_error()
        .filter(|database| database.is_unique_violation())
        .and_then(|database| database.constraint())
}

/// Whether the database ended a transaction because it and another one waited for each other. It can be run again.
pub fn is_deadlock(error: &Error) -> bool {
    let cause = error
        .cause
        .as_ref()
        .and_then(|cause| cause.downcast_ref::<sqlx::Error>());
    let database = cause.and_then(sqlx::Error::as_database_error);
    database
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|state| state == "40P01")
}
