//! What every operation is given.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Result;
use assay_core::artifact::Artifacts;
use assay_core::store::{self, Bounds, PgPool};
use tokio::sync::{Semaphore, watch};

use crate::changes::Changes;
use crate::dns::Dns;
use crate::limits::Limits;
use crate::mail::Post;
use crate::requests::Requests;
use crate::settings::Settings;
use crate::turns::Turns;

/// The api's means, shared by all requests.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// See [`App`].
pub struct Inner {
    /// PostgreSQL, as the role that cannot read answers.
    pub db: PgPool,
    /// Where submissions are kept.
    pub artifacts: Artifacts,
    /// News of jobs that have changed.
    pub changes: Changes,
    /// Whose turn it is to submit: submissions of one organization go one after the other in the database, and each that
    /// waits there holds a connection.
    pub turns: Turns,
    /// Whose turn it is to send a part, of which up to 10 MiB are in memory.
    pub parts: Turns,
    /// Whose turn it is to have an upload read, which takes a core.
    pub completions: Turns,
    /// Requests admitted, for the usage.
    pub requests: Requests,
    /// Where mails are put.
    pub post: Post,
    /// Who is asked for what a domain shows.
    pub dns: Dns,
    /// How many requests may come.
    pub limits: Limits,
    /// As given.
    pub settings: Settings,
}

impl App {
    /// Everything that requests need. Of servers only the artifact store is asked yet.
    pub async fn new(settings: Settings, post: Post, stopped: watch::Receiver<bool>) -> Result<Self> {
        let redis = assay_core::connection::Connection::new(&settings.common.redis_url, Duration::from_millis(500))?;
        Ok(Self(Arc::new(Inner {
            db: store::pool(&settings.common.database_url, settings.common.database_connections, "assay-api", Bounds::REQUESTS)?,
            artifacts: Artifacts::create(&settings.common.artifacts).await?,
            changes: Changes::new(stopped),
            turns: Turns::new(3, Semaphore::MAX_PERMITS, Duration::from_secs(2)),
            parts: Turns::new(4, 16, Duration::from_secs(10)),
            completions: Turns::new(1, 2, Duration::from_secs(600)),
            requests: Requests::default(),
            post,
            dns: Dns::new(settings.dns_server),
            limits: Limits::new(redis, &settings.common.redis_prefix, settings.auth_failures_per_minute),
            settings,
        })))
    }
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}
