//! The dependencies that every operation gets.

use std::sync::Arc;
use std::time::Duration;

use assay_core::model::job::JobRow;
use assay_core::model::secret::SecretHash;
use assay_core::model::suite::SuiteId;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::trace_export::{Sampling, Spans};
use assay_core::store::combined_requests::combined_requests;
use assay_core::store::combined_statements::CombinedLookups;
use assay_core::store::combined_submissions::CombinedSubmissions;
use assay_core::store::credential::FoundKey;
use assay_core::store::new_job::NewJob;
use assay_core::store::submission::IfLocked;
use assay_core::store::suite::SuiteRow;
use assay_core::store::{
    self, PgConnection, PoolProfile, PrimaryPool, TaskConnections, within_response_timeout,
};
use assay_core::{Error, JobId, OrgId};
use assay_engine_client::Engines;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::background::dns::Dns;
use crate::background::job_updates::JobUpdates;
use crate::background::mail::Mailer;
use crate::background::stored_jobs::StoredJobs;
use crate::background::usage_counter::UsageCounter;
use crate::limits::Limits;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::limits::one_time_codes::OneTimeCodes;
use crate::limits::rejections::RejectionCache;
use crate::limits::request_memory::Budget;
use crate::model_cache::ModelCache;
use crate::openid::Providers;
use crate::queue::estimates::QueueEstimates;
use crate::settings::Settings;

/// Longest time for which a credential from a throttled address waits for its look-up.
const THROTTLED_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a request waits for a permit. A waiting request holds no connection.
const CONCURRENCY_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a request waits for a permit to call an engine: a few calls of a small model. Then
/// the engines are saturated.
const ENGINE_PERMIT_TIMEOUT: Duration = Duration::from_millis(20);

/// The number of connections that only listen for notifications: the dispatcher's, and that of job
/// updates.
const LISTENING: u32 = 2;

/// The number of connections for statements of many requests: lookups, submissions, and rounds of
/// the dispatcher. Requests that take all others must not make a live API reject credentials.
const COMBINED: u32 = 3;

/// The dependencies of all operations. Clones share them.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The fields of [`App`].
pub struct Inner {
    /// The place of each job in the queue, and the speed of the workers.
    pub queue: QueueEstimates,
    /// A connection pool for all other requests. Its database role cannot read answers.
    pub db: PrimaryPool,
    /// A connection pool for reading and cancelling jobs: a quarter of all connections.
    pub jobs_db: PrimaryPool,
    /// A connection pool for statements of many requests. They use `task_connections`.
    pub combined_db: PrimaryPool,
    /// The connections of `combined_db`.
    pub task_connections: TaskConnections,
    /// Lookups of API keys by the hashes of their secrets.
    pub keys: CombinedLookups<SecretHash, FoundKey>,
    /// Lookups of jobs by their organization and id.
    pub jobs: CombinedLookups<(OrgId, JobId), JobRow>,
    /// Suites in their current version, by id.
    pub suites: CombinedLookups<SuiteId, Arc<SuiteRow>>,
    /// Submissions, which share transactions.
    pub submissions: CombinedSubmissions,
    /// Limits of session lookups per client address: at most half of the connections of the pool for
    /// jobs, and of the other pool.
    pub session_lookups: [ConcurrencyLimit; 2],
    /// The memory that requests and responses may hold.
    pub memory: Budget,
    /// The limit of submissions that are checked and written to the artifact store, from the arrival
    /// of the body.
    pub submission_bodies: ConcurrencyLimit,
    /// The limit of other requests: an organization uses at most half of their connections.
    pub requests_in_progress: ConcurrencyLimit,
    /// The engines that run models.
    pub engines: Engines,
    /// The models that requests have used lately.
    pub models: Arc<ModelCache>,
    /// The limit of calls to engines that requests wait for: an organization uses at most half.
    pub serving: ConcurrencyLimit,
    /// The artifact store, with submissions, uploads and item scores.
    pub artifacts: Artifacts,
    /// Jobs that this process has stored, for its dispatcher.
    pub stored_jobs: Arc<StoredJobs>,
    /// Notifications of changed jobs.
    pub job_updates: JobUpdates,
    /// The limit of upload parts per organization. The memory budget limits those of all
    /// organizations.
    pub upload_parts: ConcurrencyLimit,
    /// The limit of upload completions: each uses a core.
    pub upload_completions: ConcurrencyLimit,
    /// The limit of job lists: those of one organization must not take all connections for jobs.
    pub job_lists: ConcurrencyLimit,
    /// The limit of sums of the usage by day: each uses a core of the database.
    pub usage_days: ConcurrencyLimit,
    /// The limit of outputs that are streamed: each holds a connection to the artifact store.
    pub job_outputs: ConcurrencyLimit,
    /// The queue for credentials from throttled addresses: each address has one look-up at a time.
    pub throttled_lookups: ConcurrencyLimit,
    /// The JWK set of the receipt keys as it was computed last, in JSON, and the time of that.
    pub jwk_set: tokio::sync::Mutex<Option<(tokio::time::Instant, bytes::Bytes)>>,
    /// The look-ups of one-time codes by callers without a credential.
    pub one_time_codes: OneTimeCodes,
    /// The limit on opened suite files that an address reads at once.
    pub opened_files: ConcurrencyLimit,
    /// The limit of streams of generated events: each holds its result until the client has read it.
    pub generation_streams: ConcurrencyLimit,
    /// The limit of comparisons: each uses a core.
    pub comparisons: ConcurrencyLimit,
    /// The streams of jobs: each holds a subscription until its job has finished.
    pub job_watches: ConcurrencyLimit,
    /// The requests that wait for events.
    pub event_waits: ConcurrencyLimit,
    /// The exports of audit logs.
    pub audit_exports: ConcurrencyLimit,
    /// The admitted requests, counted for usage.
    pub usage: UsageCounter,
    /// The queue of emails to send.
    pub mailer: Mailer,
    /// The OpenID Connect providers with which users can sign in.
    pub sign_in_providers: Providers,
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
        let artifacts = Artifacts::create(&settings.common.artifacts).await?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let engines = Engines::new(&settings.common.engines, artifacts.clone(), cores);
        let connections = settings.common.database_connections;
        let for_jobs = (connections / 4).max(1);
        let for_requests = (connections - for_jobs)
            .saturating_sub(LISTENING + COMBINED)
            .max(1);
        let session_lookups = |connections: u32| {
            ConcurrencyLimit::new(
                (connections as usize).div_ceil(2),
                connections as usize,
                settings.pool_wait,
            )
        };
        let session_lookups = [session_lookups(for_jobs), session_lookups(for_requests)];
        let mut pool = |name, connections, profile| {
            let (pool, follow_primary) = store::pool_with_task(
                &settings.common.database_url,
                connections,
                "assay-api",
                profile,
            )?;
            tasks.spawn_infallible(name, follow_primary);
            Ok::<_, Error>(pool)
        };
        let db = pool("primary_for_requests", for_requests, PoolProfile::REQUESTS)?;
        let jobs_db = pool("primary_for_jobs", for_jobs, PoolProfile::REQUESTS)?;
        let combined_db = pool("primary_for_combined", COMBINED, PoolProfile::COMBINED)?;
        let task_connections = TaskConnections::new(combined_db.clone(), COMBINED);
        let (keys, waiting_keys) = combined_requests();
        let (jobs, waiting_jobs) = combined_requests();
        let (suites, waiting_suites) = combined_requests();
        let (submissions, waiting_submissions) = combined_requests();
        let (keys_db, terms) = (task_connections.clone(), settings.terms.clone());
        let find_keys = move |hashes: Vec<SecretHash>| {
            let (db, terms) = (keys_db.clone(), terms.clone());
            async move {
                db.execute(async |db| store::credential::keys(db, &hashes, &terms).await)
                    .await
            }
        };
        let suites_db = task_connections.clone();
        let find_suites = move |suite_ids: Vec<SuiteId>| {
            let db = suites_db.clone();
            async move {
                db.execute(async |db| store::suite::find_all(db, &suite_ids).await)
                    .await
            }
        };
        let (common_db, own_db) = (task_connections.clone(), db.clone());
        let stored_jobs = Arc::new(StoredJobs::default());
        let announced_jobs = Arc::clone(&stored_jobs);
        let submit = move |jobs: Vec<NewJob>, if_locked| {
            let announced_jobs = Arc::clone(&announced_jobs);
            let (common_db, own_db) = (common_db.clone(), own_db.get());
            async move {
                let notifies = announced_jobs.take_room(jobs.len());
                let stored = async {
                    match if_locked {
                        IfLocked::Skip => {
                            let submit = async |db: &mut PgConnection| {
                                store::submission::submit(db, &jobs, if_locked, notifies).await
                            };
                            common_db.execute(submit).await
                        }
                        IfLocked::Wait => {
                            let mut db = own_db.acquire().await?;
                            store::submission::submit(&mut db, &jobs, if_locked, notifies).await
                        }
                    }
                };
                let mut stored = within_response_timeout(stored).await?;
                announced_jobs.announce(&mut stored);
                Ok(stored.results)
            }
        };
        let lookups_db = task_connections.clone();
        let find_jobs = move |jobs: Vec<(OrgId, JobId)>| {
            let db = lookups_db.clone();
            async move {
                db.execute(async |db| store::job::find_all(db, &jobs).await)
                    .await
            }
        };
        tasks.spawn_infallible("key_lookups", waiting_keys.find(find_keys));
        tasks.spawn_infallible("job_lookups", waiting_jobs.find(find_jobs));
        tasks.spawn_infallible("suite_lookups", waiting_suites.find(find_suites));
        tasks.spawn_infallible("submissions", waiting_submissions.store(submit));
        Ok(Self(Arc::new(Inner {
            queue: QueueEstimates::default(),
            keys,
            jobs,
            suites,
            submissions,
            db,
            jobs_db,
            combined_db,
            task_connections,
            session_lookups,
            memory: Budget::new(settings.request_memory),
            submission_bodies: ConcurrencyLimit::new(4, 16, CONCURRENCY_TIMEOUT),
            requests_in_progress: ConcurrencyLimit::new(
                for_requests.div_ceil(2) as usize,
                usize::MAX,
                CONCURRENCY_TIMEOUT,
            ),
            serving: ConcurrencyLimit::new(
                (engines.permits() / 2).max(1),
                engines.permits(),
                ENGINE_PERMIT_TIMEOUT,
            ),
            engines,
            artifacts,
            stored_jobs,
            job_updates: JobUpdates::new(stopped),
            upload_parts: ConcurrencyLimit::new(4, usize::MAX, Duration::from_secs(10)),
            upload_completions: ConcurrencyLimit::new(1, 2, Duration::from_secs(600)),
            job_lists: ConcurrencyLimit::new(1, usize::MAX, CONCURRENCY_TIMEOUT),
            usage_days: ConcurrencyLimit::new(1, usize::MAX, CONCURRENCY_TIMEOUT),
            job_outputs: ConcurrencyLimit::new(4, 64, CONCURRENCY_TIMEOUT),
            throttled_lookups: ConcurrencyLimit::new(1, 4, THROTTLED_LOOKUP_TIMEOUT),
            jwk_set: tokio::sync::Mutex::default(),
            one_time_codes: OneTimeCodes::default(),
            opened_files: ConcurrencyLimit::new(4, 64, CONCURRENCY_TIMEOUT),
            generation_streams: ConcurrencyLimit::new(4, 64, ENGINE_PERMIT_TIMEOUT),
            comparisons: ConcurrencyLimit::new(1, 2, Duration::from_secs(10)),
            job_watches: ConcurrencyLimit::new(50, usize::MAX, CONCURRENCY_TIMEOUT),
            event_waits: ConcurrencyLimit::new(32, usize::MAX, CONCURRENCY_TIMEOUT),
            audit_exports: ConcurrencyLimit::new(1, 4, CONCURRENCY_TIMEOUT),
            usage: UsageCounter::default(),
            mailer,
            sign_in_providers: Providers::new(
                settings.sign_in_providers.clone(),
                &settings.public_url,
            )?,
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
            models: Arc::default(),
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
