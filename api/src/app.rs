//! What every operation is given.

use std::sync::Arc;
use std::time::Duration;

use assay_core::Result;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::{self, PgPool, PoolProfile};
use tokio::sync::{Notify, watch};

use crate::background::dns::Dns;
use crate::background::job_updates::JobUpdates;
use crate::background::mail::Mailer;
use crate::background::usage_counter::UsageCounter;
use crate::limits::Limits;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::rejections::Lookups;
use crate::limits::request_memory::Budget;
use crate::settings::Settings;

/// How long a request waits for earlier ones of its organization. Until its turn it holds nothing.
const CONCURRENCY_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub credential_lookups: [ConcurrencyLimit; 2],
    /// The memory that requests and responses may hold.
    pub memory: Budget,
    /// Whose turn it is to have predictions checked and stored, once they have arrived.
    pub submission_bodies: ConcurrencyLimit,
    /// Whose turn it is to ask for anything else that takes moments: no organization has more than half of the connections
    /// that are not for jobs.
    pub requests_in_progress: ConcurrencyLimit,
    /// Where submissions are kept.
    pub artifacts: Artifacts,
    /// Told when a job was submitted; many at once are one.
    pub submitted: Notify,
    /// News of jobs that have changed.
    pub job_updates: JobUpdates,
    /// Whose turn it is to submit: submissions of one organization go one after the other in the database, and each that
    /// waits there holds a connection.
    pub job_inserts: ConcurrencyLimit,
    /// Whose turn it is to send a part. What of it is in memory is charged to the budget, so only each organization's own parts
    /// are counted.
    pub upload_parts: ConcurrencyLimit,
    /// Whose turn it is to have an upload read, which takes a core.
    pub upload_completions: ConcurrencyLimit,
    /// Whose turn it is to list jobs: lists of one organization must not take all connections for jobs.
    pub job_lists: ConcurrencyLimit,
    /// Whose turn it is to have two jobs compared, which takes a core for moments.
    pub comparisons: ConcurrencyLimit,
    /// Requests admitted, for the usage.
    pub usage: UsageCounter,
    /// Where mails are put.
    pub mailer: Mailer,
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
        mailer: Mailer,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self> {
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
        let pool = |connections| {
            store::pool(
                &settings.common.database_url,
                connections,
                "assay-api",
                PoolProfile::REQUESTS,
            )
        };
        Ok(Self(Arc::new(Inner {
            db: pool(for_requests)?,
            jobs_db: pool(for_jobs)?,
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
            lookups: Lookups::default(),
            spans: Spans::open(
                "assay-api",
                &settings.common,
                Sampling::from_settings(&settings.common),
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
