//! The way to Redis.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Client;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::model::error::{BestEffort as _, Error, Result};

/// A connection to Redis that all clones share. It is made when it is first used, and again when it breaks. One at whose
/// other end nobody answers does not break until the system says so, after a quarter of an hour; its user gives it up.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    client: Client,
    patience: Duration,
    current: Mutex<ConnectionManager>,
}

impl Connection {
    /// A connection to the server at this address. `patience` bounds the wait for one answer.
    pub fn new(url: &str, patience: Duration) -> Result<Self> {
        let client = client(url)?;
        let current = Mutex::new(manager(&client, patience)?);
        Ok(Self(Arc::new(Inner {
            client,
            patience,
            current,
        })))
    }

    /// As it is now.
    pub fn get(&self) -> ConnectionManager {
        self.current().clone()
    }

    /// After an answer that did not come in time: whoever asks next does so over a connection of its own.
    pub fn give_up(&self) {
        let fresh = manager(&self.0.client, self.0.patience);
        fresh
            .map(|fresh| *self.current() = fresh)
            .best_effort("giving up a connection to Redis");
    }

    fn current(&self) -> MutexGuard<'_, ConnectionManager> {
        self.0
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of the server at this address.
pub fn client(url: &str) -> Result<Client> {
    // Whoever builds more than one of rustls' providers into a program has to say which one it is. That there is one already
    // is no fault.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The cause is not kept: it would repeat the address, and with it the password.
    Client::open(url).map_err(|_| {
        Error::internal("the address of Redis is not of the form redis://:password@host:6379/0")
    })
}

fn manager(client: &Client, patience: Duration) -> Result<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(patience))
        .set_connection_timeout(Some(patience))
        // The callers have their own ways to go on without Redis; a client that tries again for seconds is in their way.
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_secs(1));
    client
        .get_connection_manager_lazy(config)
        .map_err(Error::internal)
}
