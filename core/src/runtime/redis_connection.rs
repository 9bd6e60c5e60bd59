//! The connection to Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError};

use crate::model::error::{BestEffort as _, Error, Result};

/// The codes with which a server refuses commands because another one should execute them, or because
/// it has just started: it was demoted to a replica, no longer belongs to its cluster, or reads its
/// data.
const NO_PRIMARY: [&str; 6] = [
    "READONLY",
    "MOVED",
    "ASK",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
];

/// A connection to Redis, which all clones share.
///
/// It is opened at its first use, and again after it was closed. The operating system closes a
/// connection to an unresponsive server only after a quarter of an hour, so callers replace it with
/// [`Connection::reconnect`] after a timeout.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    client: Client,
    timeout: Duration,
    current: Mutex<ConnectionManager>,
}

impl Connection {
    /// Creates a connection to the server at this address. `timeout` limits connecting and each
    /// response.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let client = client(url)?;
        let current = Mutex::new(manager(&client, timeout)?);
        Ok(Self(Arc::new(Inner {
            client,
            timeout,
            current,
        })))
    }

    /// Returns the current connection.
    pub fn get(&self) -> ConnectionManager {
        self.current().clone()
    }

    /// Replaces the connection after a timeout. Later commands use a new connection.
    pub fn reconnect(&self) {
        let replacement = manager(&self.0.client, self.0.timeout);
        replacement
            .map(|replacement| *self.current() = replacement)
            .best_effort("replacing a connection to Redis");
    }

    /// Replaces the connection if an error shows that it is useless: the server did not
    /// respond in time, or it is not (or not yet) the one that accepts writes. A new connection leads to
    /// the server that has taken its place, if the address does.
    pub fn reconnect_if_lost(&self, error: &RedisError) {
        if error.is_timeout() || error.code().is_some_and(|code| NO_PRIMARY.contains(&code)) {
            self.reconnect();
        }
    }

    fn current(&self) -> MutexGuard<'_, ConnectionManager> {
        self.0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a client for the server at this address.
pub fn client(url: &str) -> Result<Client> {
    // The cause is dropped, because it contains the address with the password.
    Client::open(url).map_err(|_| {
        Error::internal("the address of Redis must have the form redis://:password@host:6379/0")
    })
}

fn manager(client: &Client, timeout: Duration) -> Result<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(timeout))
        .set_connection_timeout(Some(timeout))
        // The callers can continue without Redis. A client that retries for seconds would delay
        // them.
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_secs(1));
    client
        .get_connection_manager_lazy(config)
        .map_err(Error::internal)
}
