//! What every operation is given.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Result;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::{self, Bounds, PgPool};
use tokio::sync::{Notify, watch};

use crate::background::dns::Dns;
use crate::background::job_updates::Changes;
use crate::background::mail::Post;
use crate::background::usage_counter::Requests;
use crate::limits::Limits;
use crate::limits::concurrency::Turns;
use crate::limits::rejections::Lookups;
use crate::limits::request_memory::Budget;
use crate::settings::Settings;

/// How long a request waits for earlier ones of its organization. Until its turn it holds nothing.
const CROWD_PATIENCE: Duration = Duration::from_secs(5);

/// How many connections only listen for notifications: the dispatcher's, and that of changed jobs.
const LISTENING: u32 = 2;

/// The api's means, shared by all requests.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// See [`App`].
pub struct Inner {
    /// PostgreSQL, as the role that cannot read answers.
    pub db: PgPool,
    /// Connections for those who ask after jobs or cancel them, and for nothing else: a quarter of all.
    pub jobs_db: PgPool,
    /// Whose turn it is to have a credential looked up: of one client address no more than half of the connections at once, those for
    /// jobs and the others.
    pub look_ups: [Turns; 2],
    /// The memory that requests and responses may hold.
    pub memory: Budget,
    /// Whose turn it is to have predictions checked and stored, once they have arrived.
    pub submissions: Turns,
    /// Whose turn it is to ask for anything else that takes moments: no organization has more than half of the connections
    /// that are not for jobs.
    pub under_way: Turns,
    /// Where submissions are kept.
    pub artifacts: Artifacts,
    /// Told when a job was submitted; many at once are one.
    pub submitted: Notify,
    /// News of jobs that have changed.
    pub changes: Changes,
    /// Whose turn it is to submit: submissions of one organization go one after the other in the database, and each that
    /// waits there holds a connection.
    pub turns: Turns,
    /// Whose turn it is to send a part. What of it is in memory is charged to the budget, so only each organization's own parts
    /// are counted.
    pub parts: Turns,
    /// Whose turn it is to have an upload read, which takes a core.
    pub completions: Turns,
    /// Whose turn it is to list jobs: lists of one organization must not take all connections for jobs.
    pub listings: Turns,
    /// Whose turn it is to have two jobs compared, which takes a core for moments.
    pub comparisons: Turns,
    /// Requests admitted, for the usage.
    pub requests: Requests,
    /// Where mails are put.
    pub post: Post,
    /// Who is asked for what a domain shows.
    pub dns: Dns,
    /// How many requests may come.
    pub limits: Limits,
    /// Which credentials need no look-up.
    pub lookups: Lookups,
    /// Where operators are told what a request did.
    pub spans: Spans,
    /// As given.
    pub settings: Settings,
}

impl App {
    /// Everything that requests need. Of servers only the artifact store is asked yet.
    pub async fn new(
        settings: Settings,
        post: Post,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self> {
        let redis = assay_core::runtime::redis_connection::Connection::new(
            &settings.common.redis_url,
            Limits::CONNECTION_TIMEOUT,
        )?;
        let connections = settings.common.database_connections;
        let for_jobs = (connections / 4).max(1);
        let for_requests = (connections - for_jobs).saturating_sub(LISTENING).max(1);
        let look_ups = |connections: u32| {
            Turns::new(
                (connections as usize).div_ceil(2),
                connections as usize,
                settings.pool_wait,
            )
        };
        let look_ups = [look_ups(for_jobs), look_ups(for_requests)];
        let pool = |connections| {
            store::pool(
                &settings.common.database_url,
                connections,
                "assay-api",
                Bounds::REQUESTS,
            )
        };
        Ok(Self(Arc::new(Inner {
            db: pool(for_requests)?,
            jobs_db: pool(for_jobs)?,
            look_ups,
            memory: Budget::new(settings.request_memory),
            submissions: Turns::new(4, 16, CROWD_PATIENCE),
            under_way: Turns::new(
                ((connections - for_jobs) / 2) as usize,
                usize::MAX,
                CROWD_PATIENCE,
            ),
            artifacts: Artifacts::create(&settings.common.artifacts).await?,
            submitted: Notify::new(),
            changes: Changes::new(stopped),
            turns: Turns::new(3, usize::MAX, Duration::from_secs(2)),
            parts: Turns::new(4, usize::MAX, Duration::from_secs(10)),
            completions: Turns::new(1, 2, Duration::from_secs(600)),
            listings: Turns::new(1, usize::MAX, CROWD_PATIENCE),
            comparisons: Turns::new(1, 2, Duration::from_secs(10)),
            requests: Requests::default(),
            post,
            dns: Dns::new(settings.dns_server),
            limits: Limits::new(
                redis,
                &settings.common.redis_prefix,
                settings.auth_failures_per_minute,
            ),
            lookups: Lookups::default(),
            spans: Spans::open(
                "assay-api",
                &settings.common,
                Sampling::share(&settings.common),
            )?,
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
