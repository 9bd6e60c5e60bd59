//! Connection pools with bounded waits, and database error conversion.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres};
use tokio::time::{Instant, timeout};

use super::primary;
use super::primary_pool::PrimaryPool;
use crate::model::error::{BestEffort as _, Code, Error, Result};

/// The longest wait for a connection before a request fails with 503.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);

/// The longest wait of an operator's command. Nobody sends it again, so a busy machine must not fail
/// it.
const COMMAND_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection pool's server-side settings and opening behaviour.
#[derive(Clone, Copy)]
pub struct PoolProfile {
    /// PostgreSQL's settings, in the form in which it shows them. The timeouts keep a statement that
    /// hangs, or whose process is frozen, from holding its locks forever. A connection without them is
    /// not used.
    settings: &'static [(&'static str, &'static str)],
    /// Set if all connections are opened at the start, so that a request burst does not wait
    /// for connections to open.
    open_eagerly: bool,
    /// The longest wait for a connection.
    acquire_timeout: Duration,
}

/// A setting that does not have the process's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongSetting {
    /// The setting's name.
    pub name: String,
    /// The value that the process needs.
    pub wanted: String,
    /// The value in force.
    pub found: String,
}

impl fmt::Display for WrongSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            wanted,
            found,
        } = self;
        write!(f, "{name} is {found} instead of {wanted}")
    }
}

/// The longest wait for the response to a statement. The server ends requests' statements
/// after this time, so a later response never arrives: the connection is half-open, or the server
/// is frozen.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The idle time after which a connection is checked before it is used.
const IDLE_TRUSTED: Duration = Duration::from_secs(1);

/// The time limit for checking an idle connection. A connection that exceeds it is replaced.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// The time in which a connection that is returned to the pool must finish a statement whose caller
/// is gone. After that it is closed. Otherwise it would occupy its place in the pool until TCP
/// gives up, which takes a quarter of an hour.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

impl PoolProfile {
    /// For requests, which are short.
    pub const REQUESTS: Self = Self {
        settings: &[
            ("statement_timeout", "10s"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "5s"),
        ],
        open_eagerly: true,
        acquire_timeout: ACQUIRE_TIMEOUT,
    };
    /// For statements from many requests, which have arrays as parameters. Planning one costs more
    /// than executing it, and the best plan does not depend on the arrays. They find rows by
    /// their keys, so a table that was small when the plan was made is not scanned either.
    pub const COMBINED: Self = Self {
        settings: &[
            ("statement_timeout", "10s"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "5s"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            // A scan that cannot be avoided then seems expensive enough to be compiled.
            ("jit", "off"),
        ],
        open_eagerly: true,
        acquire_timeout: ACQUIRE_TIMEOUT,
    };
    /// For workers, which read whole suites.
    pub const WORK: Self = Self {
        settings: &[
            ("statement_timeout", "10min"),
            ("idle_in_transaction_session_timeout", "10s"),
            ("plan_cache_mode", "force_generic_plan"),
            ("enable_seqscan", "off"),
            // A scan that cannot be avoided then seems expensive enough to be compiled.
            ("jit", "off"),
        ],
        open_eagerly: false,
        acquire_timeout: ACQUIRE_TIMEOUT,
    };
    /// For cleanup, which reads and deletes a bounded row count.
    pub const CLEANUP: Self = Self {
        settings: &[
            ("statement_timeout", "1min"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "10s"),
        ],
        open_eagerly: false,
        acquire_timeout: ACQUIRE_TIMEOUT,
    };
    /// For the operator's commands, which have no time limits.
    pub const OPERATOR: Self = Self {
        // A command that hangs in a transaction would hold its locks, and all events.
        settings: &[("idle_in_transaction_session_timeout", "1min")],
        open_eagerly: false,
        acquire_timeout: COMMAND_ACQUIRE_TIMEOUT,
    };

    pub(super) const fn settings(&self) -> &'static [(&'static str, &'static str)] {
        self.settings
    }
}

/// Opens one connection to the pool's server, for work that outlives requests.
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
        .options(profile.settings.iter().copied());
    let mut db = timeout(profile.acquire_timeout, options.connect())
        .await
        .map_err(|_| Error::unavailable("the database does not respond"))??;
    require_writable(&mut db).await?;
    require_settings(&mut db, &profile).await?;
    Ok(db)
}

/// Closes a connection and thereby releases its advisory locks. Best effort: the server also closes
/// it when the socket closes.
pub async fn disconnect(db: PgConnection) {
    db.close()
        .await
        .best_effort("closing a database connection");
}

/// Opens a pool. It connects in the background, so that a process can start while the database is
/// unavailable.
///
/// The connection string may name several servers. The pool connects to the one that accepts
/// writes, and follows it after a failover.
///
/// The second result is the task that follows the primary, until the pool is closed. The pool needs
/// it while it is in use, so a process supervises the task.
///
/// # Errors
/// Returns an error if the connection string is malformed.
pub fn pool_with_task(
    url: &str,
    connections: u32,
    application: &str,
    profile: PoolProfile,
) -> Result<(PrimaryPool, BoxFuture<'static, ()>)> {
    let options = |server: PgConnectOptions| {
        server
            .application_name(application)
            .options(profile.settings.iter().copied())
    };
    let servers: Vec<_> = primary::parse(url)?.into_iter().map(options).collect();
    let first = servers
        .first()
        .ok_or_else(|| Error::internal("the database URL names no server"))?;
    let pool_options = PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(if profile.open_eagerly { connections } else { 0 })
        .acquire_timeout(profile.acquire_timeout)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            Box::pin(async move {
                require_writable(connection).await?;
                require_settings(connection, &profile).await
            })
        })
        .before_acquire(|connection, about| Box::pin(is_usable(connection, about.idle_for)))
        .after_release(|connection, _| {
            Box::pin(async move {
                let flushed = timeout(RELEASE_TIMEOUT, connection.flush()).await;
                flushed
                    .unwrap_or_else(|_| Err(no_response()))
                    .map(|()| true)
            })
        });
    if servers.len() < 2 {
        let pool = pool_options.connect_lazy_with(first.clone());
        let closed = pool.close_event();
        return Ok((PrimaryPool::new(pool), Box::pin(closed)));
    }
    let pool = PrimaryPool::new(
        pool_options
            .clone()
            .connect_lazy_with(primary::unknown(first)),
    );
    let follow = primary::follow(pool.clone(), pool_options, servers);
    Ok((pool, Box::pin(follow)))
}

/// Opens a pool for a command, as [`pool_with_task`] does. The task is not supervised: if it fails,
/// the command fails when it gets no connection.
///
/// # Errors
/// Returns an error if the connection string is malformed.
pub fn pool(
    url: &str,
    connections: u32,
    application: &str,
    profile: PoolProfile,
) -> Result<PgPool> {
    let (pool, follow_primary) = pool_with_task(url, connections, application, profile)?;
    tokio::spawn(follow_primary);
    Ok(pool.get())
}

/// Opens a one-connection pool to the server, for listening. It is separate so that a connection
/// that hangs does not occupy a place in the main pool.
pub(super) fn listening(options: &PgConnectOptions) -> PgPool {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .after_connect(|connection, _| require_writable(connection));
    pool.connect_lazy_with(options.clone())
}

fn no_response() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// The time at which the server last rejected a statement because it is read-only. Connections may
/// stay open while a primary is demoted.
static READ_ONLY_SINCE: Mutex<Option<Instant>> = Mutex::new(None);

/// Returns `true` if a connection can be used that was idle for this time: the server responds and
/// accepts writes.
pub(super) async fn is_usable(
    connection: &mut PgConnection,
    idle_for: Duration,
) -> Result<bool, sqlx::Error> {
    let rejected_at = *READ_ONLY_SINCE
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    // A connection whose statement was rejected is released shortly after the rejection was
    // recorded.
    let may_be_read_only = rejected_at.is_some_and(|at| idle_for + IDLE_TRUSTED > at.elapsed());
    let check = async {
        if may_be_read_only {
            primary::accepts_writes(connection).await
        } else if idle_for > IDLE_TRUSTED {
            connection.ping().await.map(|()| true)
        } else {
            Ok(true)
        }
    };
    timeout(CHECK_TIMEOUT, check)
        .await
        .unwrap_or_else(|_| Err(no_response()))
}

/// Rejects a connection to a server that does not accept writes: a host name or address that does
/// not lead to the new primary yet.
fn require_writable(connection: &mut PgConnection) -> BoxFuture<'_, Result<(), sqlx::Error>> {
    Box::pin(async move {
        match primary::accepts_writes(connection).await? {
            true => Ok(()),
            false => Err(sqlx::Error::Protocol("the server is read-only".into())),
        }
    })
}

/// Rejects a connection without its profile's settings: a pooler between the process and the server
/// has dropped them.
async fn require_settings(
    connection: &mut PgConnection,
    profile: &PoolProfile,
) -> Result<(), sqlx::Error> {
    let wrong = wrong_settings(connection, profile).await?;
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong: Vec<_> = wrong.iter().map(WrongSetting::to_string).collect();
    Err(sqlx::Error::Protocol(format!(
        "the settings of the connection are not in force: {}; a pooler must pass the startup parameter `options` on",
        wrong.join(", ")
    )))
}

/// Returns a profile's settings that a connection does not have.
pub(super) async fn wrong_settings(
    connection: &mut PgConnection,
    profile: &PoolProfile,
) -> Result<Vec<WrongSetting>, sqlx::Error> {
    let (names, wanted): (Vec<_>, Vec<_>) = profile.settings.iter().copied().unzip();
    sqlx::query_as!(
        WrongSetting,
        r#"
        select
            s.name as "name!",
            s.wanted as "wanted!",
            coalesce(current_setting(s.name, true), '') as "found!"
        from unnest($1::text[], $2::text[]) as s(name, wanted)
        where current_setting(s.name, true) is distinct from s.wanted
        "#,
        &names as &[&str],
        &wanted as &[&str]
    )
    .fetch_all(connection)
    .await
}

/// Waits for short statements for at most [`RESPONSE_TIMEOUT`], and until PostgreSQL fails over:
/// the former primary may be frozen and never respond. After that, the caller does not know whether
/// they took effect.
///
/// # Errors
/// Returns the statements' errors, and `unavailable` after the timeout or the failover.
pub async fn within_response_timeout<T>(statements: impl Future<Output = Result<T>>) -> Result<T> {
    within(RESPONSE_TIMEOUT, statements).await
}

/// Like [`within_response_timeout`], for another time limit.
pub(super) async fn within<T>(
    time_limit: Duration,
    statements: impl Future<Output = Result<T>>,
) -> Result<T> {
    let failed_over = primary::failed_over();
    tokio::select! {
        result = timeout(time_limit, statements) => {
            result.unwrap_or_else(|_| Err(Error::unavailable("the database does not respond")))
        }
        () = failed_over => Err(Error::unavailable("the database failed over")),
    }
}

/// Acquires a connection for a request that has not started. Fails with 503 if all connections are
/// in use and none is returned in time, because waiting longer would add to requests that are late
/// already.
pub async fn acquire_within(
    db: &PgPool,
    acquire_timeout: Duration,
) -> Result<PoolConnection<Postgres>> {
    // The pool opens another connection, which takes longer than the timeout for a free one.
    if db.size() < db.options().get_max_connections() {
        return Ok(db.acquire().await?);
    }
    let acquired = tokio::time::timeout(acquire_timeout, db.acquire()).await;
    Ok(acquired.map_err(|_| Error::unavailable("all database connections are in use"))??)
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let is_unavailable = match &error {
            sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::Io(_)
            | sqlx::Error::WorkerCrashed => true,
            sqlx::Error::Database(database) => {
                let state = database.code();
                let state = state.as_deref().unwrap_or_default();
                // Class 22: the data does not fit. Requests are validated before, so this is a
                // safety net that avoids a 500.
                if state.starts_with("22") {
                    return Self::new(
                        Code::ValidationFailed,
                        "A value of the request cannot be stored.",
                    )
                    .with_cause(error);
                }
                // Raised by the triggers that reject a suspended organization's rows.
                if state == "AY001" {
                    return Self::org_suspended();
                }
                if state == "25006" {
                    *READ_ONLY_SINCE
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                // Transient: connection exceptions, serialization failures and deadlocks,
                // insufficient resources, operator intervention, a lock that is held, a server that
                // was demoted.
                ["08", "40", "53", "57", "55P03", "25P03", "25006"]
                    .iter()
                    .any(|class| state.starts_with(class))
            }
            _ => false,
        };
        if is_unavailable {
            Self::unavailable(error)
        } else {
            Self::internal(error)
        }
    }
}
