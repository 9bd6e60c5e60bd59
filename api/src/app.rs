//! The dependencies that every operation gets.

use std::sync::Arc;

use assay_core::model::job::JobRow;
use assay_core::model::secret::SecretHash;
use assay_core::model::suite::SuiteId;
use assay_core::model::terms::CurrentTerms;
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
    self, PgConnection, PgPool, PoolProfile, PrimaryPool, TaskConnections, within_response_timeout,
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
use crate::limits::concurrency_limits::{ConcurrencyLimits, Sizes};
use crate::limits::one_time_codes::OneTimeCodes;
use crate::limits::rejections::RejectionCache;
use crate::limits::request_memory::Budget;
use crate::model_cache::ModelCache;
use crate::openid::Providers;
use crate::queue::estimates::QueueEstimates;
use crate::settings::Settings;

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
    /// The connections to PostgreSQL. The database role cannot read answers.
    pub db: Database,
    /// The lookups of rows by key.
    pub lookups: Lookups,
    /// Submitted and running jobs.
    pub jobs: Jobs,
    /// The calls of models.
    pub serving: Serving,
    /// The limits of requests.
    pub limits: RequestLimits,
    /// The operations that run at once.
    pub concurrency: ConcurrencyLimits,
    /// The artifact store, with submissions, uploads and item scores.
    pub artifacts: Artifacts,
    /// The JWK set of the receipt keys as it was computed last, in JSON, and the time of that.
    pub jwk_set: tokio::sync::Mutex<Option<(tokio::time::Instant, bytes::Bytes)>>,
    /// The admitted requests, counted for usage.
    pub usage: UsageCounter,
    /// The queue of emails to send.
    pub mailer: Mailer,
    /// The OpenID Connect providers with which users can sign in.
    pub sign_in_providers: Providers,
    /// The DNS resolver for domain claims.
    pub dns: Dns,
    /// The export of spans.
    pub spans: Spans,
    /// The settings of this process.
    pub settings: Settings,
    /// The tasks that may outlive the request that started them. Shutdown waits for them.
    pub request_tasks: TaskTracker,
}

/// The connections to PostgreSQL.
pub struct Database {
    /// The pool for reading and cancelling jobs: a quarter of all connections.
    pub jobs: PrimaryPool,
    /// The pool for all other requests.
    pub requests: PrimaryPool,
    /// The pool for statements of many requests. They use `tasks`.
    pub combined: PrimaryPool,
    /// The connections of `combined`.
    pub tasks: TaskConnections,
}

/// Lookups that share statements.
pub struct Lookups {
    /// API keys by the hashes of their secrets.
    pub keys: CombinedLookups<SecretHash, FoundKey>,
    /// Jobs by their organization and id.
    pub jobs: CombinedLookups<(OrgId, JobId), JobRow>,
    /// Suites in their current version, by id.
    pub suites: CombinedLookups<(OrgId, SuiteId), Arc<SuiteRow>>,
}

/// Submitted jobs, and the queue of the installation.
pub struct Jobs {
    /// The place of each job in the queue, and the speed of the workers.
    pub queue: QueueEstimates,
    /// Submissions, which share transactions.
    pub submissions: CombinedSubmissions,
    /// Jobs that this process has stored, for its dispatcher.
    pub stored: Arc<StoredJobs>,
    /// Notifications of changed jobs.
    pub updates: JobUpdates,
}

/// The calls of models.
pub struct Serving {
    /// The engines that run models.
    pub engines: Engines,
    /// The models that requests have used lately.
    pub models: Arc<ModelCache>,
}

/// The limits of requests.
pub struct RequestLimits {
    /// Rate limits.
    pub rate: Limits,
    /// The memory that requests and responses may hold.
    pub memory: Budget,
    /// The look-ups of one-time codes by callers without a credential.
    pub one_time_codes: OneTimeCodes,
    /// Credentials that were rejected lately, and need no lookup.
    pub rejections: RejectionCache,
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
        let common = &settings.common;
        let redis = assay_core::runtime::redis_connection::Connection::new(
            &common.redis_url,
            Limits::CONNECTION_TIMEOUT,
        )?;
        let artifacts = Artifacts::create(&common.artifacts).await?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let engines = Engines::new(&common.engines, artifacts.clone(), cores);
        let (for_jobs, for_requests) = pool_sizes(common.database_connections);
        let db = Database::open(&common.database_url, for_jobs, for_requests, tasks)?;
        let stored = Arc::default();
        let sizes = Sizes {
            job_connections: for_jobs as usize,
            request_connections: for_requests as usize,
            pool_wait: settings.pool_wait,
            engine_permits: engines.permits(),
        };
        Ok(Self(Arc::new(Inner {
            lookups: Lookups::start(&db, settings.terms.clone(), tasks),
            jobs: Jobs {
                queue: QueueEstimates::default(),
                submissions: start_submissions(&db, &stored, tasks),
                stored,
                updates: JobUpdates::new(stopped),
            },
            db,
            serving: Serving {
                engines,
                models: Arc::default(),
            },
            limits: RequestLimits {
                rate: Limits::new(
                    redis,
                    &common.redis_prefix,
                    settings.auth_failures_per_minute,
                ),
                memory: Budget::new(settings.request_memory),
                one_time_codes: OneTimeCodes::default(),
                rejections: RejectionCache::default(),
            },
            concurrency: ConcurrencyLimits::new(&sizes),
            artifacts,
            jwk_set: tokio::sync::Mutex::default(),
            usage: UsageCounter::default(),
            mailer,
            sign_in_providers: Providers::new(
                settings.sign_in_providers.clone(),
                &settings.public_url,
            )?,
            dns: Dns::new(settings.dns_server),
            spans: Spans::open("assay-api", common, Sampling::from_settings(common))?,
            settings,
            request_tasks: TaskTracker::new(),
        })))
    }
}

/// Returns the numbers of connections for jobs and for other requests.
fn pool_sizes(connections: u32) -> (u32, u32) {
    let for_jobs = (connections / 4).max(1);
    let for_requests = (connections - for_jobs).saturating_sub(LISTENING + COMBINED);
    (for_jobs, for_requests.max(1))
}

impl Database {
    fn open(
        url: &str,
        for_jobs: u32,
        for_requests: u32,
        tasks: &mut BackgroundTasks,
    ) -> Result<Self, Error> {
        let mut pool = |name, connections, profile| {
            let (pool, follow_primary) =
                store::pool_with_task(url, connections, "assay-api", profile)?;
            tasks.spawn_infallible(name, follow_primary);
            Ok::<_, Error>(pool)
        };
        let requests = pool("primary_for_requests", for_requests, PoolProfile::REQUESTS)?;
        let jobs = pool("primary_for_jobs", for_jobs, PoolProfile::REQUESTS)?;
        let combined = pool("primary_for_combined", COMBINED, PoolProfile::COMBINED)?;
        Ok(Self {
            jobs,
            requests,
            tasks: TaskConnections::new(combined.clone(), COMBINED),
            combined,
        })
    }

    /// Returns the pool for all requests that do not read or cancel jobs.
    pub fn get(&self) -> PgPool {
        self.requests.get()
    }
}

impl Lookups {
    /// Starts the tasks that execute the lookups. `terms` are the current terms.
    fn start(db: &Database, terms: Option<Arc<CurrentTerms>>, tasks: &mut BackgroundTasks) -> Self {
        let (keys, waiting_keys) = combined_requests();
        let (jobs, waiting_jobs) = combined_requests();
        let (suites, waiting_suites) = combined_requests();
        let keys_db = db.tasks.clone();
        let find_keys = move |hashes: Vec<SecretHash>| {
            let (db, terms) = (keys_db.clone(), terms.clone());
            async move {
                db.execute(async |db| store::credential::keys(db, &hashes, &terms).await)
                    .await
            }
        };
        let suites_db = db.tasks.clone();
        let find_suites = move |wanted: Vec<(OrgId, SuiteId)>| {
            let db = suites_db.clone();
            async move {
                db.execute(async |db| store::suite::find_all(db, &wanted).await)
                    .await
            }
        };
        let jobs_db = db.tasks.clone();
        let find_jobs = move |jobs: Vec<(OrgId, JobId)>| {
            let db = jobs_db.clone();
            async move {
                db.execute(async |db| store::job::find_all(db, &jobs).await)
                    .await
            }
        };
        tasks.spawn_infallible("key_lookups", waiting_keys.find(find_keys));
        tasks.spawn_infallible("job_lookups", waiting_jobs.find(find_jobs));
        tasks.spawn_infallible("suite_lookups", waiting_suites.find(find_suites));
        Self { keys, jobs, suites }
    }
}

/// Starts the task that stores submissions, and announces them to the dispatcher as `stored`.
fn start_submissions(
    db: &Database,
    stored: &Arc<StoredJobs>,
    tasks: &mut BackgroundTasks,
) -> CombinedSubmissions {
    let (submissions, waiting) = combined_requests();
    let (common_db, own_db) = (db.tasks.clone(), db.requests.clone());
    let announced_jobs = Arc::clone(stored);
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
    tasks.spawn_infallible("submissions", waiting.store(submit));
    submissions
}

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}
