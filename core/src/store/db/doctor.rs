//! PostgreSQL's state that an installation depends on, for `assay-api doctor`. It changes nothing
//! that stays.

use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::time::timeout;

pub use super::pool::WrongSetting;
use super::pool::{PoolProfile, wrong_settings};
use super::{PgConnection, primary};
use crate::model::error::{Error, Result};
use crate::model::random;
use crate::model::timestamp::Timestamp;

/// The longest wait for a connection, and for a notification.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Times that two connections are asked for their server process.
const SESSION_CHECKS: usize = 20;

/// A server, and a connection's role and database.
#[derive(Debug, Clone)]
pub struct Server {
    /// The version's number, such as 170002.
    pub version: i32,
    /// The version, such as 17.2.
    pub version_text: String,
    /// `true` if the server is a standby, or the connection only reads.
    pub is_read_only: bool,
    /// The login role.
    pub role: String,
    /// `true` if the role is a superuser, may create roles or databases, or bypasses row security.
    pub is_privileged: bool,
    /// Assay's roles that the role is a member of.
    pub assay_roles: Vec<String>,
    /// Server settings with which acknowledged jobs can be lost.
    pub unsafe_settings: Vec<String>,
    /// `true` if autovacuum runs.
    pub has_autovacuum: bool,
    /// The connection count that roles without special rights can open in all.
    pub connections_max: i32,
    /// The open connection count.
    pub connections: i64,
    /// The database's encoding.
    pub encoding: String,
    /// `true` if the collation is the one with which the indexes were built.
    pub collation_is_current: bool,
    /// The indexes that are not valid.
    pub invalid_indexes: Vec<String>,
    /// The oldest transaction's age that the role sees, in seconds.
    pub oldest_transaction_seconds: f64,
    /// The server's time.
    pub now: Timestamp,
}

/// An open connection to the primary, as a process with this profile opens it.
pub struct Examination {
    url: String,
    profile: PoolProfile,
    db: PgConnection,
    server: PgConnectOptions,
}

impl Examination {
    /// Connects.
    ///
    /// # Errors
    /// If no server responds in time, or refuses the role.
    pub async fn connect(url: &str, profile: PoolProfile) -> Result<Self> {
        let (db, server) = open(url, &profile).await?;
        Ok(Self {
            url: url.to_owned(),
            profile,
            db,
            server,
        })
    }

    /// Returns the server's state.
    pub async fn server(&mut self) -> Result<Server> {
        let server = sqlx::query_as!(
            Server,
            r#"
            select
                current_setting('server_version_num')::integer as "version!",
                current_setting('server_version') as "version_text!",
                (pg_is_in_recovery() or current_setting('transaction_read_only')::boolean) as "is_read_only!",
                current_user::text as "role!",
                (
                    select rolsuper or rolcreaterole or rolcreatedb or rolbypassrls or rolreplication
                    from pg_roles
                    where rolname = current_user
                ) as "is_privileged!",
                array(
                    select rolname::text
                    from pg_roles
                    where starts_with(rolname, 'assay_')
                      and rolname <> current_user
                      and pg_has_role(oid, 'member')
                    order by rolname
                ) as "assay_roles!",
                array(
                    select name || ' = ' || setting
                    from pg_settings
                    where name in ('fsync', 'full_page_writes', 'synchronous_commit')
                      and setting = 'off'
                    order by name
                ) as "unsafe_settings!",
                (current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean) as "has_autovacuum!",
                (
                    current_setting('max_connections')::integer
                    - current_setting('superuser_reserved_connections')::integer
                ) as "connections_max!",
                (
                    select count(*)
                    from pg_stat_activity
                    where datid is not null
                ) as "connections!",
                pg_encoding_to_char(d.encoding)::text as "encoding!",
                (
                    d.datcollversion is not distinct from pg_database_collation_actual_version(d.oid)
                ) as "collation_is_current!",
                array(
                    select indexrelid::regclass::text
                    from pg_index
                    where not indisvalid
                      and indrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
                    order by 1
                ) as "invalid_indexes!",
                coalesce(
                    (
                        select extract(epoch from clock_timestamp() - min(xact_start))
                        from pg_stat_activity
                        where datid is not null
                          and pid <> pg_backend_pid()
                    ),
                    0
                )::float8 as "oldest_transaction_seconds!",
                clock_timestamp() as "now!: Timestamp"
            from pg_database d
            where d.datname = current_database()
            "#
        )
        .fetch_one(&mut self.db)
        .await?;
        Ok(server)
    }

    /// Returns the process's settings that are not in force.
    pub async fn wrong_settings(&mut self) -> Result<Vec<WrongSetting>> {
        Ok(wrong_settings(&mut self.db, &self.profile).await?)
    }

    /// Returns `true` if each connection keeps its server process: advisory locks and a session's
    /// settings hold only then.
    pub async fn sessions_stay(&mut self) -> Result<bool> {
        let (mut other, _) = open(&self.url, &self.profile).await?;
        let mut seen = [None, None];
        for _ in 0..SESSION_CHECKS {
            for (db, seen) in [&mut self.db, &mut other].into_iter().zip(&mut seen) {
                let process = sqlx::query_scalar!(r#"select pg_backend_pid() as "process!""#)
                    .fetch_one(&mut *db)
                    .await?;
                if seen.is_some_and(|before| before != process) {
                    return Ok(false);
                }
                *seen = Some(process);
            }
        }
        super::disconnect(other).await;
        Ok(seen[0] != seen[1])
    }

    /// Returns `true` if a notification arrives at another connection.
    pub async fn notifications_arrive(&mut self) -> Result<bool> {
        let channel = format!("assay_doctor_{}", random::base62(12)?);
        let pool = super::pool::listening(&self.server);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(&channel).await?;
        sqlx::query!("select pg_notify($1, '')", channel)
            .execute(&mut self.db)
            .await?;
        Ok(timeout(WAIT_MAX, listener.recv())
            .await
            .is_ok_and(|received| received.is_ok()))
    }

    /// Closes the connection.
    pub async fn close(self) {
        super::disconnect(self.db).await;
    }
}

/// Opens a connection to the first server that responds.
async fn open(url: &str, profile: &PoolProfile) -> Result<(PgConnection, PgConnectOptions)> {
    let mut last = Error::unavailable("the database URL names no server");
    for server in primary::parse(url)? {
        let options = server
            .application_name("assay-doctor")
            .options(profile.settings().iter().copied());
        match timeout(WAIT_MAX, PgConnection::connect_with(&options)).await {
            Ok(Ok(db)) => return Ok((db, options)),
            Ok(Err(error)) => last = error.into(),
            Err(_) => last = Error::unavailable("no response within 5 s"),
        }
    }
    Err(last)
}
