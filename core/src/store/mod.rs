//! Every SQL statement of the platform, one function each.
//!
//! What lives here: SQL, and nothing else knows sqlx's queries. A statement on a tenant's table has the organization as
//! the function's second parameter and in its `where`. The statements of the dispatcher and of the workers act for all
//! organizations; they live in `dispatch` and `work` only.
//! What may not: decisions. A function returns what it found; the operation says what that means.

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

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
pub use sqlx::{PgConnection, PgPool};

use crate::{Code, Error, Result};

/// How long a request waits for a connection before it is told that the service is not available.
const ACQUIRE: Duration = Duration::from_millis(1500);

/// How long the server lets statements and transactions of a process last: one that hangs, or whose process is frozen,
/// must not hold its locks for ever.
pub struct Bounds(&'static [(&'static str, &'static str)]);

impl Bounds {
    /// Requests are short.
    pub const REQUESTS: Self = Self(&[("statement_timeout", "10s"), ("lock_timeout", "2s"), ("idle_in_transaction_session_timeout", "5s")]);
    /// Workers read whole suites.
    pub const WORK: Self = Self(&[("statement_timeout", "10min"), ("idle_in_transaction_session_timeout", "10s")]);
    /// The operator knows how long.
    pub const OPERATOR: Self = Self(&[]);
}

/// Opens a pool. It connects lazily: a database that is away now is no reason not to start.
pub fn pool(url: &str, connections: u32, application: &str, bounds: Bounds) -> Result<PgPool> {
    // The cause of a bad address is not kept: it would repeat the address, and with it the password.
    let options: PgConnectOptions = url
        .parse()
        .map_err(|_| Error::internal("the address of the database is not of the form postgres://user:password@host/database"))?;
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE)
        .connect_lazy_with(options.application_name(application).options(bounds.0.iter().copied())))
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
                // Connection exceptions, transactions in each other's way, insufficient resources, operator intervention, a
                // lock that is held: it will pass.
                ["08", "40", "53", "57", "55P03", "25P03"].iter().any(|class| state.starts_with(class))
            }
            _ => false,
        };
        if away { Self::unavailable(error) } else { Self::internal(error) }
    }
}

/// The name of the unique constraint that a statement ran into, if that is what happened.
pub fn unique_violation(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().filter(|database| database.is_unique_violation()).and_then(|database| database.constraint())
}
