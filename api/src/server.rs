//! The API process: start, background tasks, the layers around REST and gRPC, graceful shutdown.

use std::sync::Arc;
use std::time::Duration;

use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::resource_metrics::ResourceMetrics;
use assay_core::runtime::settings::{ADMIN_LISTEN, LISTEN, LOG_DATABASE_URL};
use assay_core::store::{self, PoolProfile, PrimaryPool, migrations};
use assay_core::{BestEffort as _, Result};
use axum::Router;
use axum::handler::Handler as _;
use axum::middleware::{from_fn, from_fn_with_state};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::app::App;
use crate::background::dns::Dns;
use crate::background::mail::{self, DeliveryWorker};
use crate::background::{
    cleanup, dispatcher, domain_checks, notices, queue_snapshots, reconciliation, webhooks,
};
use crate::dashboard;
use crate::deliver::attempts;
use crate::deliver::sender::Sender;
use crate::http::connections::Connections;
use crate::http::not_found;
use crate::layers::{cors, deadline, memory, observe, syntax, unrouted};
use crate::receipt_log::leader::Log;
use crate::rest;
use crate::settings::{OwnSigning, Settings};
use crate::{grpc, openapi};

/// The time that the emails of the last requests may take. A mail server that does not respond must
/// not keep the process.
const EMAIL_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that the current round of a task may take after the shutdown signal. A query that hangs
/// must not keep the process.
const TASK_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until the shutdown signal (SIGTERM or SIGINT), then drains: requests in progress are
/// finished, at most for the setting `ASSAY_DRAIN_SECONDS`. `metrics` renders the Prometheus
/// metrics for the admin port.
///
/// # Errors
/// When a port cannot be bound, a setting is wrong, the database's schema or role does not
/// fit, or a background task ends before shutdown.
pub async fn serve(settings: Settings, metrics: PrometheusHandle) -> Result<(), ProcessError> {
    let listener = process::bind(&LISTEN, settings.listen).await?;
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.common.admin_listen).await?;
    let (stop, stopped) = watch::channel(false);
    let (mailer, delivery) = mail::open(&settings.mail)?;
    let mut tasks = BackgroundTasks::default();
    let app = App::new(settings.clone(), mailer, stopped.clone(), &mut tasks).await?;
    process::ensure_schema_is_current(&app.db.requests).await?;
    refuse_to_read_answers(&app).await?;
    let log_db = open_log_database(&mut tasks, &app)?;
    refuse_to_do_more_than_log(log_db.as_ref()).await?;
    start_background_tasks(&mut tasks, &app, log_db, delivery, &stopped)?;
    // The first request should not be the one that waits for the connection to Redis.
    app.limits.rate.address_allowance("").await;
    // A connection of its own: requests that take all others must not make a live process unready.
    let (readiness, follow_primary) = store::pool_with_task(
        &settings.common.database_url,
        1,
        "assay-readiness",
        PoolProfile::REQUESTS,
    )?;
    tasks.spawn_infallible("primary_for_readiness", follow_primary);
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, move || {
            process::readiness_with_database(readiness.clone(), stopped.clone())
        }),
    );
    tracing::info!(
        listen = %settings.listen,
        admin = %settings.common.admin_listen,
        env = settings.env,
        git_sha = settings.common.git_sha,
        "serving"
    );

    let router = router(app.clone()).await?;
    let connections = Connections::new(&settings, app.limits.memory.clone())?;
    tokio::select! {
        accepted = connections.accept(listener, router) => accepted?,
        failure = tasks.first_failure() => return Err(failure),
    };
    stop.send_replace(true);
    tracing::info!("shutdown signal received, draining");
    let drained = async {
        connections.drain().await;
        app.request_tasks.close();
        app.request_tasks.wait().await;
    };
    if tokio::time::timeout(settings.common.drain, drained)
        .await
        .is_err()
    {
        tracing::warn!("drain timeout reached, remaining requests cancelled");
    }
    app.mailer.close();
    tasks
        .join(EMAIL_DELIVERY, EMAIL_DRAIN_TIMEOUT)
        .await
        .best_effort("sending the last emails");
    for name in [DISPATCHER, RECEIPT_LOG, USAGE_COUNTER, WEBHOOK_ATTEMPTS] {
        tasks
            .join(name, TASK_SHUTDOWN_TIMEOUT)
            .await
            .best_effort(name);
    }
    // Requests that were admitted while connections ended.
    app.usage
        .flush(&app.db.get())
        .await
        .best_effort("flushing the last request counts");
    // The others may be cancelled anywhere: the next process continues their work.
    drop(tasks);
    app.spans.clone().close().await;
    process::close(&app.db.requests).await;
    Ok(())
}

/// Maximum number of attempts to deliver webhooks at once. Their statements share the connections of
/// requests.
const ATTEMPTS_MAX: usize = 64;

const DISPATCHER: &str = "dispatcher";
const EMAIL_DELIVERY: &str = "email_delivery";
const RECEIPT_LOG: &str = "receipt_log";
const USAGE_COUNTER: &str = "usage_counter";
const WEBHOOK_ATTEMPTS: &str = "webhook_attempts";

/// Starts the background tasks of the process, except those of pools and the admin port.
fn start_background_tasks(
    tasks: &mut BackgroundTasks,
    app: &App,
    log_db: Option<PrimaryPool>,
    delivery: DeliveryWorker,
    stopped: &watch::Receiver<bool>,
) -> Result<()> {
    let resource_metrics = ResourceMetrics::new(
        &app.settings.common,
        [
            ("jobs", &app.db.jobs),
            ("requests", &app.db.requests),
            ("combined", &app.db.combined),
        ],
    )?;
    tasks.spawn_infallible(
        "resource_metrics",
        resource_metrics.sample(Some(app.db.jobs.clone())),
    );
    tasks.spawn(DISPATCHER, dispatcher::run(app.clone(), stopped.clone()));
    tasks.spawn_infallible(
        "queue_snapshots",
        queue_snapshots::run(app.clone(), stopped.clone()),
    );
    tasks.spawn_infallible("cleanup", cleanup::run(app.clone(), stopped.clone()));
    tasks.spawn_infallible(
        "reconciliation",
        reconciliation::run(app.clone(), stopped.clone()),
    );
    tasks.spawn_infallible(
        "job_updates",
        app.jobs
            .updates
            .clone()
            .forward_notifications(app.db.requests.clone()),
    );
    tasks.spawn_infallible(EMAIL_DELIVERY, delivery.run());
    tasks.spawn_infallible("domain_checks", domain_checks::run(app.clone()));
    tasks.spawn_infallible("notices", notices::run(app.clone()));
    tasks.spawn_infallible("webhooks", webhooks::run(app.clone()));
    start_delivery(tasks, app, stopped)?;
    start_receipt_log(tasks, app, log_db, stopped);
    let admitting = app.clone();
    tasks.spawn_infallible("admissions", async move {
        admitting.limits.rate.keep_admitting().await;
    });
    let probing = app.clone();
    tasks.spawn_infallible("redis_probe", async move {
        probing.limits.rate.keep_probing_redis().await;
    });
    let counting = app.clone();
    tasks.spawn_infallible("process_counter", async move {
        counting
            .limits
            .rate
            .keep_counting_processes(&counting.db.jobs)
            .await;
    });
    let flushing = app.clone();
    let stopped = stopped.clone();
    tasks.spawn_infallible(USAGE_COUNTER, async move {
        flushing
            .usage
            .flush_periodically(&flushing.db.requests, stopped)
            .await;
    });
    Ok(())
}

/// Starts the delivery of webhooks, unless another process delivers or there are none.
fn start_delivery(
    tasks: &mut BackgroundTasks,
    app: &App,
    stopped: &watch::Receiver<bool>,
) -> Result<()> {
    let settings = &app.settings;
    let Some(key) = settings
        .webhook_key
        .clone()
        .filter(|_| settings.delivers_webhooks)
    else {
        return Ok(());
    };
    let dns = Dns::new(settings.dns_server);
    let sender = Sender::new(key, settings.webhook_targets.clone(), dns)?;
    let db = app.db.requests.clone();
    let deliver = attempts::run(db.clone(), Arc::new(sender), ATTEMPTS_MAX, stopped.clone());
    tasks.spawn_infallible(WEBHOOK_ATTEMPTS, deliver);
    tasks.spawn_infallible("webhook_delay", attempts::measure_delay(db));
    Ok(())
}

/// Opens the database with the role that writes the receipt log, if this process has the keys.
fn open_log_database(tasks: &mut BackgroundTasks, app: &App) -> Result<Option<PrimaryPool>> {
    let Some(OwnSigning { database_url, .. }) = &app.settings.signing else {
        return Ok(None);
    };
    let (db, follow_primary) =
        store::pool_with_task(database_url, 2, "assay-log", PoolProfile::REQUESTS)?;
    tasks.spawn_infallible("primary_for_log", follow_primary);
    Ok(Some(db))
}

/// Starts signing receipts and writing their log, unless another process does or there are no keys.
fn start_receipt_log(
    tasks: &mut BackgroundTasks,
    app: &App,
    db: Option<PrimaryPool>,
    stopped: &watch::Receiver<bool>,
) {
    let Some((db, signing)) = db.zip(app.settings.signing.clone()) else {
        return;
    };
    let log = Log {
        db,
        artifacts: app.artifacts.clone(),
        signing: signing.keys,
    };
    let stopped = stopped.clone();
    tasks.spawn_infallible(RECEIPT_LOG, async move { log.run(stopped).await });
}

/// Refuses to start with a role for the receipt log that can do more than write it.
async fn refuse_to_do_more_than_log(log_db: Option<&PrimaryPool>) -> Result<(), ProcessError> {
    match log_db {
        Some(db) if migrations::can_do_more_than_log(&db.get()).await? => {
            Err(ProcessError::RoleDoesMoreThanLog {
                setting: LOG_DATABASE_URL.name,
            })
        }
        _ => Ok(()),
    }
}

/// Refuses to start with a database role that can read the answers of suites.
async fn refuse_to_read_answers(app: &App) -> Result<(), ProcessError> {
    match migrations::can_read_answers(&app.db.get()).await? {
        true => Err(ProcessError::RoleReadsAnswers),
        false => Ok(()),
    }
}

/// Returns the routes of REST and gRPC under the layers that every request passes.
async fn router(app: App) -> Result<Router> {
    let unrouted = || from_fn_with_state(app.clone(), unrouted::count_unrouted);
    let pages = rest::routes(&app)
        .merge(dashboard::routes(&app))
        .merge(openapi::docs::routes());
    let pages = pages.method_not_allowed_fallback(not_found::method_not_allowed.layer(unrouted()));
    let routes = pages
        .merge(grpc::routes(&app).await?)
        .fallback(fallback.layer(unrouted()));
    let rules = cors::rules(&app.settings.cors_origins);
    // The first one is the outermost. A router clones and allocates for each call of `layer`.
    let layers = (
        from_fn_with_state(app.clone(), observe::observe),
        from_fn_with_state(app.clone(), memory::reserve),
        from_fn(deadline::deadline),
        from_fn_with_state(rules, cors::cors),
        from_fn(syntax::check_syntax),
    );
    Ok(routes.layer(layers).with_state(app))
}

/// Responds to paths that do not exist: `UNIMPLEMENTED` for gRPC, 404 otherwise.
async fn fallback(request: axum::extract::Request) -> axum::response::Response {
    use axum::response::IntoResponse as _;

    match crate::http::protocol::Protocol::of(&request) {
        crate::http::protocol::Protocol::Rest | crate::http::protocol::Protocol::Page => {
            not_found::not_found().await.into_response()
        }
        _ => tonic::Status::unimplemented("There is no such service or method.").into_http(),
    }
}

#[cfg(test)]
mod tests {
    use assay_core::runtime::settings::Reader;

    use super::*;

    /// Starts the background tasks of an API whose PostgreSQL and Redis are unavailable.
    async fn started(folder: &std::path::Path) -> (watch::Sender<bool>, BackgroundTasks) {
        let folder = folder.display();
        let settings = [
            (
                "ASSAY_DATABASE_URL",
                "postgres://nobody@127.0.0.1:9/none".to_owned(),
            ),
            ("ASSAY_REDIS_URL", "redis://127.0.0.1:9".to_owned()),
            ("ASSAY_ARTIFACTS", format!("{folder}/artifacts")),
            ("ASSAY_MAIL_FOLDER", format!("{folder}/mail")),
            (
                "ASSAY_WEBHOOK_KEY",
                "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=".to_owned(),
            ),
            (
                "ASSAY_RECEIPT_KEYS",
                "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=".to_owned(),
            ),
            (
                "ASSAY_LOG_KEY",
                assay_receipts::log::new_key("test", &[1; 32]).unwrap().0,
            ),
            ("ASSAY_LOG_ORIGIN", "test".to_owned()),
            (
                "ASSAY_LOG_DATABASE_URL",
                "postgres://nobody@127.0.0.1:9/none".to_owned(),
            ),
        ];
        let given = settings.map(|(name, value)| (name.to_owned(), value));
        let settings = Settings::read(Reader::new(given), "test").unwrap();
        let (stop, stopped) = watch::channel(false);
        let (mailer, delivery) = mail::open(&settings.mail).unwrap();
        let mut tasks = BackgroundTasks::default();
        let app = App::new(settings, mailer, stopped.clone(), &mut tasks)
            .await
            .unwrap();
        let log_db = open_log_database(&mut tasks, &app).unwrap();
        start_background_tasks(&mut tasks, &app, log_db, delivery, &stopped).unwrap();
        (stop, tasks)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn early_end_of_each_task_is_a_failure() {
        let folder = std::env::temp_dir().join(format!("assay-tasks-{}", std::process::id()));
        let (_stop, tasks) = started(&folder).await;
        let names = tasks.names();
        assert_eq!(
            names,
            [
                "admissions",
                "cleanup",
                "dispatcher",
                "domain_checks",
                "email_delivery",
                "job_lookups",
                "job_updates",
                "key_lookups",
                "notices",
                "primary_for_combined",
                "primary_for_jobs",
                "primary_for_log",
                "primary_for_requests",
                "process_counter",
                "queue_snapshots",
                "receipt_log",
                "reconciliation",
                "redis_probe",
                "resource_metrics",
                "submissions",
                "suite_lookups",
                "usage_counter",
                "webhook_attempts",
                "webhook_delay",
                "webhooks",
            ]
        );
        drop(tasks);
        for name in names {
            let (_stop, mut tasks) = started(&folder).await;
            tasks.abort(name);
            let failure = tasks.first_failure().await.to_string();
            assert!(
                failure.starts_with(&format!("the background task {name} failed")),
                "{failure}"
            );
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn shutdown_signal_ends_tasks_without_failure() {
        let folder = std::env::temp_dir().join(format!("assay-shutdown-{}", std::process::id()));
        let (stop, mut tasks) = started(&folder).await;
        stop.send_replace(true);
        for name in [DISPATCHER, USAGE_COUNTER] {
            tasks.join(name, Duration::from_secs(30)).await.unwrap();
        }
        drop(tasks);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
