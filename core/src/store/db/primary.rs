//! Selects the PostgreSQL server that a pool connects to.
//!
//! sqlx connects to one server. A connection string may name several, as libpq accepts them:
//! `postgres://role:password@db-1,db-2:5433/assay?target_session_attrs=read-write`. A task then
//! finds the server that accepts writes, and makes it the pool's server. After a failover it finds
//! the new primary, and replaces the pool, so that no connection to the old one is used again: it may
//! be frozen and return as a second server that accepts writes.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, PgConnection, Row as _};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::primary_pool::PrimaryPool;
use crate::model::error::{Error, Result};

/// The time between two primary checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two searches while no server accepts writes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);

/// A check's time limit. A server that exceeds it counts as unavailable.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for which a search waits for other servers after it found one that accepts writes.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(250);

/// Parses a connection string. The result has one entry for each server, and is never empty.
///
/// # Errors
/// Returns an error if the string is malformed. The message does not repeat it, because it contains
/// a password.
pub(super) fn parse(url: &str) -> Result<Vec<PgConnectOptions>> {
    let malformed = || {
        Error::internal(
            "the database URL must have the form postgres://user:password@host/database",
        )
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let mut parameters = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("target_session_attrs", "read-write" | "primary")) => {}
            Some(("target_session_attrs", _)) => {
                return Err(Error::internal(
                    "target_session_attrs in the database URL must be read-write",
                ));
            }
            _ => parameters.push(pair),
        }
    }
    let query = parameters.join("&");
    let server = |host: &str| {
        format!("{scheme}://{credentials}{host}{path}?{query}")
            .parse()
            .map_err(|_| malformed())
    };
    hosts.split(',').map(server).collect()
}

/// Returns options with which every attempt to connect fails at once, until the primary is known.
/// The pool retries failed attempts, so that waiting callers get a connection as soon as it is.
pub(super) fn unknown(server: &PgConnectOptions) -> PgConnectOptions {
    server.clone().host("127.0.0.1").port(0)
}

/// Wakes the statements that wait for a response when a pool follows a failover.
static FAILED_OVER: Notify = Notify::const_new();

/// Waits until this process's pool changes from one primary to another.
pub(super) fn failed_over() -> Notified<'static> {
    FAILED_OVER.notified()
}

/// Keeps the pool on the server that accepts writes, until the pool is closed.
pub(super) async fn follow(
    pool: PrimaryPool,
    pool_options: PgPoolOptions,
    servers: Vec<PgConnectOptions>,
) {
    // The checks have their own connection, so that they do not depend on the pool's
    // load.
    let mut primary: Option<(usize, PgConnection)> = None;
    let mut known = None;
    while !pool.get().is_closed() {
        let is_primary_alive = match &mut primary {
            Some((_, connection)) => timeout(CHECK_TIMEOUT, accepts_writes(connection))
                .await
                .is_ok_and(|checked| checked.unwrap_or(false)),
            None => false,
        };
        if !is_primary_alive {
            primary = find(&servers).await;
        }
        match &primary {
            Some((at, _)) if known != Some(*at) => {
                if let Some(server) = servers.get(*at) {
                    if known.is_none() {
                        // Callers already wait for a connection.
                        pool.get().set_connect_options(server.clone());
                    } else {
                        let new = pool_options.clone().connect_lazy_with(server.clone());
                        pool.replace(new);
                        FAILED_OVER.notify_waiters();
                    }
                    tracing::info!(
                        host = server.get_host(),
                        port = server.get_port(),
                        "PostgreSQL primary found"
                    );
                }
                known = Some(*at);
            }
            None if is_primary_alive || known.is_some() => tracing::warn!(
                servers = servers.len(),
                "no PostgreSQL server accepts writes"
            ),
            _ => {}
        }
        sleep(if primary.is_some() {
            CHECK_INTERVAL
        } else {
            SEARCH_INTERVAL
        })
        .await;
    }
}

/// Returns the server that accepts writes, with a connection to it.
async fn find(servers: &[PgConnectOptions]) -> Option<(usize, PgConnection)> {
    let probe = async |at: usize, server: &PgConnectOptions| {
        let mut connection = server.connect().await.ok()?;
        accepts_writes(&mut connection)
            .await
            .ok()?
            .then_some((at, connection))
    };
    let mut probes: FuturesUnordered<_> = servers
        .iter()
        .enumerate()
        .map(|(at, server)| probe(at, server))
        .collect();
    let mut found = Vec::new();
    let mut deadline = Instant::now() + CHECK_TIMEOUT;
    while let Ok(Some(probed)) = timeout_at(deadline, probes.next()).await {
        if let Some(server) = probed {
            found.push(server);
            deadline = deadline.min(Instant::now() + OTHERS_TIMEOUT);
        }
    }
    drop(probes);
    if found.len() < 2 {
        return found.pop();
    }
    // An old primary that returned also accepts writes. A promotion starts a new timeline, so the
    // server with the highest one is the primary.
    let mut newest: Option<(i32, (usize, PgConnection))> = None;
    for (at, mut connection) in found {
        let timeline = timeout(CHECK_TIMEOUT, timeline(&mut connection))
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default();
        if newest
            .as_ref()
            .is_none_or(|(highest, _)| timeline > *highest)
        {
            newest = Some((timeline, (at, connection)));
        }
    }
    newest.map(|(_, server)| server)
}

/// Returns `true` if a server accepts writes: it is no standby, and its transactions are not
/// read-only.
pub(super) async fn accepts_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql =
        "select not (pg_is_in_recovery() or current_setting('transaction_read_only')::boolean)";
    sqlx::raw_sql(sql).fetch_one(connection).await?.try_get(0)
}

async fn timeline(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    // A WAL segment's name starts with its timeline.
    let sql = "select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer";
    sqlx::query_scalar(sql).fetch_one(connection).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<(String, u16)> {
        parse(url)
            .unwrap()
            .iter()
            .map(|server| (server.get_host().to_owned(), server.get_port()))
            .collect()
    }

    #[test]
    fn connection_string_accepts_several_servers() {
        for (url, wanted) in [
            ("postgres://a:b@db/assay", vec![("db", 5432)]),
            (
                "postgres://a:b@db:1/assay?target_session_attrs=read-write&sslmode=require",
                vec![("db", 1)],
            ),
            (
                "postgres://a:b,c@one,two:5433,[::1]:7/assay",
                vec![("one", 5432), ("two", 5433), ("[::1]", 7)],
            ),
        ] {
            let wanted: Vec<_> = wanted
                .into_iter()
                .map(|(host, port)| (host.to_owned(), port))
                .collect();
            assert_eq!(servers(url), wanted, "{url}");
        }
        let several = parse("postgres://a:b@one,two:5433/assay?application_name=x").unwrap();
        assert!(
            several.iter().all(
                |server| server.get_database() == Some("assay") && server.get_username() == "a"
            )
        );
        assert_eq!(several[1].get_application_name(), Some("x"));
    }

    #[test]
    fn malformed_connection_string_error_hides_password() {
        for url in [
            "db",
            "postgres://a:s3cret@one:x,two/assay",
            "postgres://a:s3cret@one,two/assay?target_session_attrs=any",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
