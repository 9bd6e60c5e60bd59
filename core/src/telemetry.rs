//! Logs, and the names of all metrics.
//!
//! Every metric is in the one table here, with its unit and its help. Labels come from closed sets: no organization,
//! person, job or request is ever a label.

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::settings::Common;
use crate::{Error, Result};

/// How a metric is counted.
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:ident, $unit:ident; $help:literal)*) => {
        $(#[doc = $help]
        pub const $name: &str = $text;)*
        const ALL: &[(&str, Kind, Unit, &str)] = &[$(($text, Kind::$kind, Unit::$unit, $help)),*];
    };
}

metrics! {
    REQUESTS = "assay_requests_total", Counter, Count; "Requests answered, by wire, operation and code."
    REQUEST_SECONDS = "assay_request_duration_seconds", Histogram, Seconds; "Time from a request's head to its answer's head, by wire and operation."
    LIMITS_DEGRADED = "assay_ratelimit_degraded", Gauge, Count; "1 while requests are counted in memory because Redis does not answer."
    JOBS_SUBMITTED = "assay_jobs_submitted_total", Counter, Count; "Jobs accepted, by type."
    BELLS_RUNG = "assay_bells_rung_total", Counter, Count; "Jobs whose bell was rung."
    JOBS_TAKEN_BACK = "assay_jobs_taken_back_total", Counter, Count; "Jobs taken back from dead or overdue workers, by outcome."
    JOBS_FINISHED = "assay_jobs_finished_total", Counter, Count; "Attempts ended by this worker, by outcome."
    JOB_SECONDS = "assay_job_run_seconds", Histogram, Seconds; "Time from an attempt's claim to its end."
    JOB_WAIT_SECONDS = "assay_job_queue_wait_seconds", Histogram, Seconds; "Time from a job's acceptance to an attempt's claim."
    UPLOAD_BYTES = "assay_upload_bytes_total", Counter, Bytes; "Bytes of parts received."
    UPLOADS_COMPLETED = "assay_uploads_completed_total", Counter, Count; "Uploads read through, by outcome."
    ITEMS_SCORED = "assay_items_scored_total", Counter, Count; "Predictions scored."
    FENCED_WRITES = "assay_fenced_writes_total", Counter, Count; "Late writes of attempts that had lost their job; each was refused."
    SLOTS = "assay_worker_slots", Gauge, Count; "Slots of this worker, by state: busy or free."
    MAILS = "assay_mails_total", Counter, Count; "Mails, by outcome: sent, failed, or dropped because too many waited."
    BUILD = "assay_build_info", Gauge, Count; "Always 1; the label says which build runs."
}

/// Bounds of the buckets, in seconds: from a cached answer to a job's whole allowance.
const BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];

/// Makes this process keep metrics. The handle renders them for a scrape.
pub fn metrics(build: &str) -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(Error::internal)?;
    for (name, kind, unit, help) in ALL {
        match kind {
            Kind::Counter => metrics::describe_counter!(*name, *unit, *help),
            Kind::Gauge => metrics::describe_gauge!(*name, *unit, *help),
            Kind::Histogram => metrics::describe_histogram!(*name, *unit, *help),
        }
    }
    metrics::gauge!(BUILD, "git_sha" => build.to_owned()).set(1.0);
    Ok(handle)
}

/// Makes this process log to standard error.
pub fn logs(settings: &Common) -> Result<()> {
    let filter: EnvFilter =
        settings.log.parse().map_err(|_| Error::internal("ASSAY_LOG is not a filter such as info or info,sqlx=debug"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let done = match settings.log_format.as_str() {
        "json" => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        "text" => builder.try_init(),
        _ => return Err(Error::internal("ASSAY_LOG_FORMAT must be json or text")),
    };
    done.map_err(|error| Error::internal(error.to_string()))
}
