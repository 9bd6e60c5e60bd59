//! Which PostgreSQL server a pool connects to.
//!
//! sqlx connects to one server. A connection string may name several, in the form that libpq takes:
//! `postgres://role:password@db-1,db-2:5433/assay?target_session_attrs=read-write`. Then a task finds the one that accepts
//! writes, and makes it the pool's server. After a failover it finds the new primary, and the pool discards its connections
//! to the old one: that may be frozen and come back as a second server that accepts writes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{PgConnection, PgPool};
use crate::model::error::{Error, Result};

/// Time between two checks of the primary.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two searches while no server accepts writes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);

/// How long a server may take to respond to a check. One that takes longer is treated as gone.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a search waits for other servers once one was found that accepts writes.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(250);

/// Reads a connection string. The result has one entry for each server, and is never empty.
///
/// # Errors
/// When it has another form. The message does not repeat it, because it contains a password.
pub(super) fn parse(url: &str) -> Result<Vec<PgConnectOptions>> {
    let malformed = || {
        Error::internal(
            "the address of the database is not of the form postgres://user:password@host/database",
        )
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("target_session_attrs", "read-write" | "primary")) => {}
            Some(("target_session_attrs", _)) => {
                return Err(Error::internal(
                    "the address of the database: target_session_attrs must be read-write",
                ));
            }
            _ => kept.push(pair),
        }
    }
    let query = kept.join("&");
    let server = |host: &str| {
        format!("{scheme}://{credentials}{host}{path}?{query}")
            .parse()
            .map_err(|_| malformed())
    };
    hosts.split(',').map(server).collect()
}

/// Options with which every attempt to connect is refused at once: until the primary is known. The pool repeats attempts that
/// are refused, so that those who wait for a connection get one as soon as it is.
pub(super) fn unknown(server: &PgConnectOptions) -> PgConnectOptions {
    server.clone().host("127.0.0.1").port(0)
}

/// When a pool's server changed last.
#[derive(Clone, Default)]
pub(super) struct Switch(Arc<Mutex<Option<Instant>>>);

impl Switch {
    /// Whether a connection of this age leads to an earlier server.
    pub(super) fn is_outdated(&self, age: Duration) -> bool {
        let switched = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        switched.is_some_and(|switched| age > switched.elapsed())
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Keeps the pool on the server that accepts writes, until the pool is closed.
pub(super) async fn follow(pool: PgPool, servers: Vec<PgConnectOptions>, switch: Switch) {
    // The checks have a connection of their own, so that they do not depend on how busy the pool is.
    let mut primary: Option<(usize, PgConnection)> = None;
    let mut known = None;
    while !pool.is_closed() {
        let is_there = match &mut primary {
            Some((_, connection)) => timeout(CHECK_TIMEOUT, accepts_writes(connection))
                .await
                .is_ok_and(|checked| checked.unwrap_or(false)),
            None => false,
        };
        if !is_there {
            primary = find(&servers).await;
        }
        match &primary {
            Some((at, _)) if known != Some(*at) => {
                if let Some(server) = servers.get(*at) {
                    pool.set_connect_options(server.clone());
                    switch.note();
                    tracing::info!(
                        host = server.get_host(),
                        port = server.get_port(),
                        "PostgreSQL primary found"
                    );
                }
                known = Some(*at);
            }
            None if is_there || known.is_some() => tracing::warn!(
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

/// The server that accepts writes, with a connection to it.
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
    let (mut found, mut deadline) = (Vec::new(), Instant::now() + CHECK_TIMEOUT);
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
    // An old primary that came back also accepts writes. A promotion begins a new timeline, so the highest one is right.
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

/// Whether a server accepts writes: it is no standby, and its transactions are not read-only.
pub(super) async fn accepts_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql =
        "select not (pg_is_in_recovery() or current_setting('transaction_read_only')::boolean)";
    sqlx::raw_sql(sql).fetch_one(connection).await?.try_get(0)
}

async fn timeline(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    // The name of a segment of the log begins with its timeline.
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
    fn connection_string_names_one_or_several_servers() {
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
    fn malformed_connection_string_is_refused_without_its_password() {
        for url in [
            "db",
            "postgres://a:s3cret@one:x,two/assay",
            "postgres://a:s3cret@one,two/assay?target_session_attrs=any",
        ] {
            let refused = parse(url).unwrap_err();
            assert!(!format!("{refused:?}").contains("s3cret"), "{refused:?}");
        }
    }
}
