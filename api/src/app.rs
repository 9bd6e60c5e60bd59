//! The dependencies that every operation gets.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Error;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::{self, PgPool, PoolProfile};
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use crate::background::dns::Dns;
use crate::background::job_updates::JobUpdates;
use crate::background::mail::Mailer;
use crate::background::usage_counter::UsageCounter;
use crate::limits::Limits;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::rejections::RejectionCache;
use crate::limits::request_memory::Budget;
use crate::settings::Settings;

/// The time that a request waits for a permit. A waiting request holds no connection.
const CONCURRENCY_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of connections that only listen for notifications: the dispatcher's, and that of job
/// updates.
const LISTENING: u32 = 2;

/// The dependencies of all operations. Clones share them.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The fields of [`App`].
pub struct Inner {
    /// A connection pool for all other requests. Its database role cannot read answers.
    pub db: PgPool,
    /// A connection pool for reading and cancelling jobs: a quarter of all connections.
    pub jobs_db: PgPool,
    /// Limits of credential lookups per client address: at most half of the connections of the pool
    /// for jobs, and of the other pool.
    pub credential_lookups: [ConcurrencyLimit; 2],
    /// The memory that requests and responses may hold.
    pub memory: Budget,
    /// The limit of submissions that are checked and stored, from the arrival of the body.
    pub submission_bodies: ConcurrencyLimit,
    /// The limit of other requests: an organization uses at most half of the connections that are
    /// not for jobs.
    pub requests_in_progress: ConcurrencyLimit,
    /// The artifact store, with submissions, uploads and item scores.
    pub artifacts: Artifacts,
    /// Notified after a job was stored. Several notifications may become one.
    pub submitted: Notify,
    /// Notifications of changed jobs.
    pub job_updates: JobUpdates,
    /// The limit of submission transactions: those of one organization wait for each other in the
    /// database, each on a connection.
    pub job_inserts: ConcurrencyLimit,
    /// The limit of upload parts per organization. The memory budget limits those of all
    /// organizations.
    pub upload_parts: ConcurrencyLimit,
    /// The limit of upload completions: each uses a core.
    pub upload_completions: ConcurrencyLimit,
    /// The limit of job lists: those of one organization must not take all connections for jobs.
    pub job_lists: ConcurrencyLimit,
    /// The limit of comparisons: each uses a core.
    pub comparisons: ConcurrencyLimit,
    /// The admitted requests, counted for usage.
    pub usage: UsageCounter,
    /// The queue of emails to send.
    pub mailer: Mailer,
    /// The DNS resolver for domain claims.
    pub dns: Dns,
    /// Rate limits.
    pub limits: Limits,
    /// Credentials that were rejected lately, and need no lookup.
    pub rejections: RejectionCache,
    /// The export of spans.
    pub spans: Spans,
    /// The settings of this process.
    pub settings: Settings,
    /// The tasks that may outlive the request that started them. Shutdown waits for them.
    pub request_tasks: TaskTracker,
}

impl App {
    /// Opens the dependencies, and starts the tasks that follow the primary of each pool. Only the
    /// artifact store is contacted: PostgreSQL and Redis may be unavailable.
    ///
    /// # Errors
    /// When the artifact store cannot be written, or an address is malformed.
    pub async fn new(
        settings: Settings,
        mailer: Mailer,
        stopped: watch::Receiver<bool>,
        tasks: &mut BackgroundTasks,
    ) -> Result<Self, ProcessError> {
        let redis = assay_core::runtime::redis_connection::Connection::new(
            &settings.common.redis_url,
            Limits::CONNECTION_TIMEOUT,
        )?;
        let connections = settings.common.database_connections;
        let for_jobs = (connections / 4).max(1);
        let for_requests = (connections - for_jobs).saturating_sub(LISTENING).max(1);
        let credential_lookups = |connections: u32| {
            ConcurrencyLimit::new(
                (connections as usize).div_ceil(2),
                connections as usize,
                settings.pool_wait,
            )
        };
        let credential_lookups = [
            credential_lookups(for_jobs),
            credential_lookups(for_requests),
        ];
        let mut pool = |name, connections| {
            let (pool, follow_primary) = store::pool_with_task(
                &settings.common.database_url,
                connections,
                "assay-api",
                PoolProfile::REQUESTS,
            )?;
            tasks.spawn_infallible(name, follow_primary);
            Ok::<_, Error>(pool)
        };
        Ok(Self(Arc::new(Inner {
            db: pool("primary_for_requests", for_requests)?,
            jobs_db: pool("primary_for_jobs", for_jobs)?,
            credential_lookups,
            memory: Budget::new(settings.request_memory),
            submission_bodies: ConcurrencyLimit::new(4, 16, CONCURRENCY_TIMEOUT),
            requests_in_progress: ConcurrencyLimit::new(
                ((connections - for_jobs) / 2) as usize,
                usize::MAX,
                CONCURRENCY_TIMEOUT,
            ),
            artifacts: Artifacts::create(&settings.common.artifacts).await?,
            submitted: Notify::new(),
            job_updates: JobUpdates::new(stopped),
            job_inserts: ConcurrencyLimit::new(3, usize::MAX, Duration::from_secs(2)),
            upload_parts: ConcurrencyLimit::new(4, usize::MAX, Duration::from_secs(10)),
            upload_completions: ConcurrencyLimit::new(1, 2, Duration::from_secs(600)),
            job_lists: ConcurrencyLimit::new(1, usize::MAX, CONCURRENCY_TIMEOUT),
            comparisons: ConcurrencyLimit::new(1, 2, Duration::from_secs(10)),
            usage: UsageCounter::default(),
            mailer,
            dns: Dns::new(settings.dns_server),
            limits: Limits::new(
                redis,
                &settings.common.redis_prefix,
                settings.auth_failures_per_minute,
            ),
            rejections: RejectionCache::default(),
            spans: Spans::open(
                "assay-api",
                &settings.common,
                Sampling::from_settings(&settings.common),
            )?,
            settings,
            request_tasks: TaskTracker::new(),
        })))
    }
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}
