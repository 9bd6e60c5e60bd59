//! Logging, and the table with all Prometheus metrics.
//!
//! Labels come from closed sets. An organization, user, job or request is never a label.

use metrics::{Label, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::model::error::{Error, Result};
use crate::model::job::JobType;
use crate::runtime::process_error::ProcessError;
use crate::runtime::settings::{LOG, LOG_FORMAT};

/// A Prometheus metric's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only increases.
    Counter,
    /// A number that increases and decreases.
    Gauge,
    /// Observations, counted in buckets by size.
    Histogram,
}

/// The process kind that exports a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// Only the API, `assay-api serve`.
    Api,
    /// Only the worker, `assay-worker run`.
    Worker,
    /// Only the embedded engine, `assay-worker serve`.
    Engine,
    /// Only the deliverer, `assay-api deliver`.
    Deliverer,
    /// The API and the deliverer.
    Delivering,
    /// Only the receipt log, `assay-api log`.
    Log,
    /// The API and the receipt log.
    Logging,
    /// The API and the worker.
    Both,
    /// All processes.
    All,
}

impl Binary {
    /// Returns the `binary` label's value in [`BUILD`].
    fn label(self) -> &'static str {
        match self {
            Self::Api => "assay-api",
            Self::Deliverer | Self::Delivering => "assay-api deliver",
            Self::Log | Self::Logging => "assay-api log",
            Self::Engine => "assay-worker serve",
            Self::Worker | Self::Both | Self::All => "assay-worker",
        }
    }
}

/// A Prometheus metric, as operators see it.
#[derive(Debug, Clone, Copy)]
pub struct Instrument {
    /// The metric's name.
    pub name: &'static str,
    /// The metric's type.
    pub kind: Kind,
    /// Its values' unit.
    pub unit: Unit,
    /// The binary that exports it.
    pub binary: Binary,
    /// The labels, each with its values. A label has no values here if only the running process
    /// knows them: the operations, the plans, the engines and the build.
    pub labels: &'static [(&'static str, &'static [&'static str])],
    /// The help text, as in `docs/telemetry.md`.
    pub help: &'static str,
}

impl Instrument {
    /// Returns `true` if processes of this kind export the metric.
    pub fn is_exported_by(&self, binary: Binary) -> bool {
        match self.binary {
            Binary::All => true,
            Binary::Both => matches!(binary, Binary::Api | Binary::Worker),
            Binary::Delivering => matches!(binary, Binary::Api | Binary::Deliverer),
            Binary::Logging => matches!(binary, Binary::Api | Binary::Log),
            exporter => exporter == binary,
        }
    }
}

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:ident, $unit:ident, $binary:ident, [$($label:ident $(= $($value:literal)|+)?),*]; $help:literal)*) => {
        $(#[doc = $help]
        pub const $name: &str = $text;)*
        /// Every metric, in the documentation's order, except the process's `process_…`
        /// metrics.
        pub const ALL: &[Instrument] = &[$(Instrument {
            name: $text,
            kind: Kind::$kind,
            unit: Unit::$unit,
            binary: Binary::$binary,
            labels: &[$((stringify!($label), &[$($($value),+)?])),*],
            help: $help,
        }),*];
    };
}

metrics! {
    REQUESTS = "assay_requests_total", Counter, Count, Api, [protocol = "rest" | "page" | "grpc" | "grpc_web", operation, outcome = "ok" | "client_error" | "server_error"]; "Responses, by protocol, operation (route template or rpc) and outcome."
    REQUEST_ERRORS = "assay_request_errors_total", Counter, Count, Api, [protocol = "rest" | "page" | "grpc" | "grpc_web", code]; "Error responses, by protocol and error code."
    REQUEST_SECONDS = "assay_request_duration_seconds", Histogram, Seconds, Api, [protocol = "rest" | "page" | "grpc" | "grpc_web", operation]; "Time from the request headers to the response headers, by protocol and operation."
    REQUESTS_IN_FLIGHT = "assay_requests_in_flight", Gauge, Count, Api, []; "Requests in progress."
    AUTH_DECISIONS = "assay_auth_decisions_total", Counter, Count, Api, [plan, decision = "accepted" | "unauthenticated" | "invalid_token" | "key_revoked" | "throttled" | "unavailable"]; "Authentication decisions, by the plan of the organization (`none` if there is none) and decision."
    RATELIMIT_DECISIONS = "assay_ratelimit_decisions_total", Counter, Count, Api, [plan, decision = "admitted" | "refused" | "saturated"]; "Rate limit decisions, by plan; `saturated`: the organization had too many requests in progress."
    RATELIMIT_DEGRADED = "assay_ratelimit_degraded", Gauge, Count, Api, []; "1 while the fallback counters in memory are used because Redis is unavailable."
    QUOTA_DECISIONS = "assay_quota_decisions_total", Counter, Count, Api, [limit = "eval_items_per_month" | "concurrent_jobs" | "submissions_per_day" | "max_submissions" | "storage_bytes" | "predict_items_per_month" | "generated_events_per_month" | "embeddings_per_month", decision = "admitted" | "refused"]; "Quota decisions on submissions, upload parts and serving requests, by limit."
    JOBS_SUBMITTED = "assay_jobs_submitted_total", Counter, Count, Api, [type = "eval" | "predict"]; "Jobs accepted, by type."
    JOBS_FINISHED = "assay_jobs_finished_total", Counter, Count, Both, [type = "eval" | "predict", outcome = "succeeded" | "cancelled" | "invalid_predictions" | "input_unavailable" | "suite_removed" | "timeout" | "internal"]; "Finished jobs, by type and outcome: succeeded, cancelled, or the failure code."
    JOB_ATTEMPTS = "assay_job_attempts_total", Counter, Count, Both, [result = "succeeded" | "failed" | "requeued" | "timeout" | "lost" | "fenced" | "not_written"]; "Finished attempts, by result; `lost`: the job was cancelled or reclaimed, `fenced`: the final write came too late and was rejected. The API and the worker both count an attempt that is reclaimed from a live worker."
    JOB_WAIT_SECONDS = "assay_job_queue_wait_seconds", Histogram, Seconds, Worker, []; "Time from a job's acceptance, or the end of its previous attempt, to the claim of an attempt."
    JOB_RUN_SECONDS = "assay_job_run_seconds", Histogram, Seconds, Worker, []; "Time from the claim of an attempt to its end."
    JOB_SECONDS = "assay_job_duration_seconds", Histogram, Seconds, Worker, []; "Time from a job's acceptance to its end, for jobs that a worker finished."
    ITEMS_SCORED = "assay_items_scored_total", Counter, Count, Worker, []; "Predictions scored."
    JOBS = "assay_jobs", Gauge, Count, Api, [state = "queued" | "running"]; "Unfinished jobs, by state, queued ones up to 100,000; every API process exports the same value, read from PostgreSQL, or NaN while PostgreSQL is unavailable."
    JOB_OLDEST_SECONDS = "assay_job_oldest_age_seconds", Gauge, Seconds, Api, [state = "queued" | "running"]; "Time that the oldest job has been in its state, for a queued job since it may start; 0 if there is none."
    WORKERS = "assay_workers", Gauge, Count, Api, []; "Worker processes with a live lease."
    WORKER_SLOTS = "assay_worker_slots", Gauge, Count, Worker, [state = "busy" | "free"]; "Slots of this worker, by state."
    WORKER_ANSWERS_BYTES = "assay_worker_answers_bytes", Gauge, Bytes, Worker, []; "Memory used by cached answers of suites."
    JOBS_RECLAIMED = "assay_jobs_reclaimed_total", Counter, Count, Api, [outcome = "requeued" | "failed"]; "Jobs reclaimed from dead or overdue workers; `failed`: no attempt was left."
    FENCED_WRITES = "assay_fenced_writes_total", Counter, Count, Worker, []; "Late writes of attempts that no longer owned their job; each was rejected."
    JOB_NOTIFICATIONS = "assay_job_notifications_total", Counter, Count, Api, [kind = "first" | "repeated"]; "Notifications published for queued jobs; `repeated`: an earlier notification led to no claim, or Redis lost it."
    UPLOAD_BYTES = "assay_upload_bytes_total", Counter, Bytes, Api, []; "Bytes of upload parts received."
    UPLOADS_COMPLETED = "assay_uploads_completed_total", Counter, Count, Api, [outcome = "ready" | "failed"]; "Uploads completed, by outcome."
    ARTIFACTS_ORPHANED = "assay_artifacts_orphaned_total", Counter, Count, Api, []; "Objects that the daily reconciliation removed because they were a day old and no row named them."
    ARTIFACTS_MISSING = "assay_artifacts_missing", Gauge, Count, Api, []; "Rows whose object the last reconciliation did not find in the artifact store; every API process exports the same value, read from PostgreSQL."
    ROWS_DELETED = "assay_rows_deleted_total", Counter, Count, Api, [kind = "sessions" | "keys" | "invites" | "domain_claims" | "jobs" | "uploads" | "audit_entries" | "events" | "shared_events" | "webhook_payloads" | "usage_days"]; "Rows deleted at the end of their retention, by kind."
    MAILS = "assay_mails_total", Counter, Count, Api, [outcome = "sent" | "failed" | "dropped"]; "Emails, by outcome; `dropped`: the queue was full."
    WEBHOOK_ATTEMPTS = "assay_webhook_attempts_total", Counter, Count, Delivering, [outcome = "delivered" | "dns" | "address" | "connect" | "tls" | "timeout" | "status"]; "Attempts to deliver an event to a webhook, by outcome; `address`: the receiver is not on the public internet; `status`: it responded with a status other than 2xx."
    WEBHOOK_ATTEMPT_SECONDS = "assay_webhook_attempt_duration_seconds", Histogram, Seconds, Delivering, []; "Time of an attempt, from the look-up of the receiver's address to its response or the failure."
    WEBHOOK_DELAY_SECONDS = "assay_webhook_delivery_delay_seconds", Gauge, Seconds, Delivering, []; "Time for which the most delayed delivery has been due, 0 if none is, without those of failing webhooks; every process that delivers exports the same value, read from PostgreSQL, or NaN while PostgreSQL is unavailable."
    WEBHOOKS_DISABLED = "assay_webhooks_disabled_total", Counter, Count, Api, [reason = "gone" | "failing"]; "Webhooks that the platform has disabled, by reason."
    LOG_LEADER = "assay_log_leader", Gauge, Count, Logging, []; "1 if this process writes the receipt log, 0 if another one does."
    LOG_REFUSED = "assay_log_refused", Gauge, Count, Logging, []; "1 while the process refuses to sign receipts, because the database lacks entries of the published checkpoint or has others."
    LOG_WAITING = "assay_log_waiting_entries", Gauge, Count, Logging, []; "Statements that have no index in the receipt log yet, read from PostgreSQL by every process that can write the log."
    LOG_OLDEST_WAITING = "assay_log_oldest_waiting_seconds", Gauge, Seconds, Logging, []; "Age of the oldest statement without an index in the receipt log, 0 without one, read from PostgreSQL by every process that can write the log."
    LOG_ENTRIES = "assay_log_entries", Gauge, Count, Logging, []; "Entries of the receipt log, read from PostgreSQL by every process that can write the log."
    LOG_CHECKPOINT_AGE = "assay_log_checkpoint_age_seconds", Gauge, Seconds, Logging, []; "Age of the last checkpoint of the receipt log, 0 before the first, read from PostgreSQL by every process that can write the log. Without new entries there are no new checkpoints."
    ENGINE_PERMITS = "assay_engine_permits", Gauge, Count, Engine, []; "Sequences that this engine accepts at once."
    ENGINE_PERMITS_USED = "assay_engine_permits_used", Gauge, Count, Engine, []; "Sequences that this engine has accepted and not finished."
    ENGINE_QUEUE = "assay_engine_queue", Gauge, Count, Engine, []; "Accepted sequences that wait for a thread."
    ENGINE_QUEUE_WAIT_SECONDS = "assay_engine_queue_wait_seconds", Histogram, Seconds, Engine, []; "Time from the acceptance of a sequence to the start of its computation."
    ENGINE_SEQUENCE_SECONDS = "assay_engine_sequence_seconds", Histogram, Seconds, Engine, [operation = "predict" | "generate" | "embed"]; "Time to compute one sequence, by operation."
    ENGINE_CALLS = "assay_engine_calls_total", Counter, Count, Engine, [outcome = "ok" | "invalid" | "not_found" | "invalid_package" | "saturated" | "deadline" | "cancelled" | "unavailable" | "internal"]; "Calls of `ModelInfer`, by outcome; `saturated`: no permit was free, or the calls in progress would have taken longer than the call's deadline."
    ENGINE_PACKAGES = "assay_engine_packages", Gauge, Count, Engine, []; "Packages in the memory of this engine."
    ENGINE_PACKAGES_BYTES = "assay_engine_packages_bytes", Gauge, Bytes, Engine, []; "Memory used by loaded packages."
    ENGINE_PACKAGE_LOADS = "assay_engine_package_loads_total", Counter, Count, Engine, [outcome = "loaded" | "not_found" | "invalid" | "no_memory" | "unavailable"]; "Packages loaded on first use, by outcome; `unavailable`: the artifact store did not respond."
    ENGINE_PACKAGES_UNLOADED = "assay_engine_packages_unloaded_total", Counter, Count, Engine, []; "Packages unloaded to make room for others, by least recent use."
    ENGINE_CLIENT_CALLS = "assay_engine_client_calls_total", Counter, Count, Both, [engine, outcome = "ok" | "saturated" | "circuit_open" | "timeout" | "unavailable" | "exhausted" | "rejected" | "error" | "invalid" | "cancelled"]; "Calls to engines, by the name in `ASSAY_ENGINES` and outcome; `saturated`: no permit was free; `exhausted`: the engine lacks a resource or has too many calls; `rejected`: the engine rejected the content of the call; `error`: the engine returned another status; `invalid`: the result was not one; `cancelled`: the caller disconnected."
    ENGINE_CLIENT_CALL_SECONDS = "assay_engine_client_call_duration_seconds", Histogram, Seconds, Both, [engine]; "Time of a call to an engine that was sent, up to the result or the failure."
    ENGINE_CLIENT_CALLS_IN_FLIGHT = "assay_engine_client_calls_in_flight", Gauge, Count, Both, [engine]; "Permits of an engine in use by this process: operations in progress."
    ENGINE_CLIENT_CIRCUIT_OPEN = "assay_engine_client_circuit_open", Gauge, Count, Both, [engine]; "1 while this process refuses calls to an engine because of earlier failures."
    DATABASE_UP = "assay_database_up", Gauge, Count, Both, []; "1 if PostgreSQL responded to the last check of this process."
    DATABASE_CONNECTIONS = "assay_database_connections", Gauge, Count, Both, [pool = "requests" | "jobs" | "combined" | "work", state = "busy" | "idle"]; "Connections to PostgreSQL, by pool and state."
    DATABASE_CONNECTIONS_MAX = "assay_database_connections_max", Gauge, Count, Both, [pool = "requests" | "jobs" | "combined" | "work"]; "Maximum number of connections to PostgreSQL, by pool."
    REDIS_UP = "assay_redis_up", Gauge, Count, Both, []; "1 if Redis accepted the write of the last check by this process."
    MIGRATIONS_PENDING = "assay_migrations_pending", Gauge, Count, Both, []; "Migrations of this build that have not been applied to the database."
    RUNTIME_TASKS = "assay_runtime_tasks", Gauge, Count, All, []; "Unfinished asynchronous tasks of the process."
    RUNTIME_LAG_SECONDS = "assay_runtime_lag_seconds", Gauge, Seconds, All, []; "Delay between the time a sleeping task should wake up and the time it does: every task waits that long for a thread."
    BUILD = "assay_build_info", Gauge, Count, All, [binary = "assay-api" | "assay-api deliver" | "assay-api log" | "assay-worker" | "assay-worker serve", version, git_sha]; "Always 1; the labels say which build runs."
}

/// Upper bounds for the request duration buckets, in seconds. They are few, because each operation
/// has its own buckets for each protocol.
const REQUEST_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 30.0];

/// Upper bounds for the job duration buckets, in seconds, up to a job's time limit.
const JOB_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0,
];

/// Upper bounds for the engine time buckets, in seconds: from a small model's sequence to a
/// synchronous call's deadline.
const ENGINE_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// Upper bounds for the delivery attempt buckets, in seconds, up to their time limit.
const WEBHOOK_BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0];

/// Counts a finished job. `outcome` is `succeeded`, `cancelled` or the failure code.
pub fn count_finished_job(r#type: JobType, outcome: &'static str) {
    metrics::counter!(JOBS_FINISHED, "type" => r#type.as_str(), "outcome" => outcome).increment(1);
}

/// Installs the Prometheus metric recorder. The handle renders them for a scrape. `git_sha` is
/// the build's commit.
pub fn init_metrics(binary: Binary, git_sha: &str) -> Result<PrometheusHandle, ProcessError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(REQUEST_SECONDS.into()), REQUEST_BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Prefix("assay_job_".into()), JOB_BUCKETS)
        })
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Prefix("assay_engine_".into()), ENGINE_BUCKETS)
        })
        .and_then(|builder| {
            builder
                .set_buckets_for_metric(Matcher::Prefix("assay_webhook_".into()), WEBHOOK_BUCKETS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Error::internal)?;
    for instrument in ALL {
        let Instrument {
            name,
            kind,
            unit,
            binary: _,
            labels,
            help,
        } = *instrument;
        match kind {
            Kind::Counter => metrics::describe_counter!(name, unit, help),
            Kind::Gauge => metrics::describe_gauge!(name, unit, help),
            Kind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
        if kind == Kind::Counter && instrument.is_exported_by(binary) {
            start_at_zero(name, labels);
        }
    }
    metrics::gauge!(BUILD, "binary" => binary.label(), "version" => env!("CARGO_PKG_VERSION"), "git_sha" => git_sha.to_owned()).set(1.0);
    Ok(handle)
}

/// Exports a counter with the value 0 for all its label combinations. Otherwise a query for its
/// increase would miss the first event.
fn start_at_zero(name: &'static str, labels: &[(&'static str, &'static [&'static str])]) {
    let mut combinations = vec![Vec::new()];
    for (label, values) in labels {
        // A label without known values has no combinations.
        let with_label = |value: &&'static str, before: &Vec<Label>| {
            [before.as_slice(), &[Label::from_static_parts(label, value)]].concat()
        };
        combinations = values
            .iter()
            .flat_map(|value| {
                combinations
                    .iter()
                    .map(move |before| with_label(value, before))
            })
            .collect();
    }
    for labels in combinations {
        metrics::counter!(name, labels).increment(0);
    }
}

/// Installs the logger, which writes to standard error, with the `ASSAY_LOG` and `ASSAY_LOG_FORMAT`
/// values.
pub fn init_logging(filter: &str, format: &str) -> Result<(), ProcessError> {
    let filter: EnvFilter = filter.parse().map_err(|_| ProcessError::Setting {
        setting: LOG.name,
        expected: "a filter such as info or info,sqlx=debug",
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let installed = match format {
        "json" => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
        "text" => builder.try_init(),
        _ => {
            return Err(ProcessError::Setting {
                setting: LOG_FORMAT.name,
                expected: "json or text",
            });
        }
    };
    installed.map_err(|error| Error::internal(error.to_string()).into())
}
