//! Both binaries' process functions: listening on a port, the shutdown signal, and the
//! private port for operators. This is the only file in the crate that uses axum, because a copy in
//! each binary would be worse.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::model::error::{BestEffort as _, Code, Error, Result};
use crate::runtime::background_tasks::BackgroundTasks;
use crate::runtime::process_error::ProcessError;
use crate::runtime::settings::Setting;
use crate::store::{PrimaryPool, migrations};

/// The readiness check's longest wait for the database. Kubernetes does not wait much longer.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for the database at a process's start.
const DATABASE_START_TIMEOUT: Duration = Duration::from_secs(15);

/// Listens on an address. The error says how to resolve a conflict.
pub async fn bind(setting: &Setting, address: SocketAddr) -> Result<TcpListener, ProcessError> {
    TcpListener::bind(address)
        .await
        .map_err(|cause| ProcessError::Listen {
            setting: setting.name,
            address,
            cause,
        })
}

/// Waits for the shutdown signal, SIGTERM or SIGINT.
pub async fn shutdown_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::internal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::internal)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Waits for the shutdown signal, sends it to the tasks by `stop`, and waits up to `drain` for the
/// task `last` to end. `draining` names what it still does, for the log.
///
/// # Errors
/// When a task ends before the signal.
pub async fn run_until_shutdown(
    tasks: &mut BackgroundTasks,
    stop: &watch::Sender<bool>,
    last: &'static str,
    draining: &'static str,
    drain: Duration,
) -> Result<(), ProcessError> {
    tokio::select! {
        signal = shutdown_signal() => signal?,
        failure = tasks.first_failure() => return Err(failure),
    }
    stop.send_replace(true);
    tracing::info!("shutdown signal received, draining");
    tasks.join(last, drain).await.best_effort(draining);
    Ok(())
}

/// Returns an error if this build's migrations have not been applied to the database. Waits for a
/// database that is unavailable, because it may start at the same time.
pub async fn ensure_schema_is_current(db: &PrimaryPool) -> Result<(), ProcessError> {
    let start = Instant::now();
    let pending = loop {
        match migrations::pending(&db.get()).await {
            Err(error)
                if error.code == Code::Unavailable && start.elapsed() < DATABASE_START_TIMEOUT =>
            {
                tracing::warn!(error = error.log_text(), "database unavailable, retrying");
                sleep(Duration::from_millis(250)).await;
            }
            pending => break pending?,
        }
    };
    match pending {
        0 => Ok(()),
        _ => Err(ProcessError::SchemaOutdated),
    }
}

/// Closes the connections to the database, within a second. A query without a response must not
/// delay the process's exit.
pub async fn close(db: &PrimaryPool) {
    tokio::time::timeout(Duration::from_secs(1), db.get().close())
        .await
        .best_effort("closing the database connections");
}

/// A readiness check's response.
pub type Readiness = (StatusCode, &'static str);

/// Serves `/metrics`, `/livez` and `/readyz` for as long as the future is polled. `readiness` is
/// called for each readiness check.
pub async fn serve_admin<F, R>(listener: TcpListener, metrics: PrometheusHandle, readiness: F)
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Readiness> + Send,
{
    let upkeep = metrics.clone();
    let process = metrics_process::Collector::default();
    process.describe();
    let scrape = async move || {
        process.collect();
        (
            [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            metrics.render(),
        )
    };
    let routes = Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || readiness().await));
    let serve = async { axum::serve(listener, routes).await };
    // Histograms store every observation until the upkeep aggregates it.
    let run_upkeep = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    };
    tokio::select! {
        result = serve => result.best_effort("serving the private port"),
        () = run_upkeep => {}
    }
}

/// Returns the readiness check's response for a process without a database: 200 until the
/// shutdown signal.
pub fn readiness(stopped: &watch::Receiver<bool>) -> Readiness {
    match *stopped.borrow() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        false => (StatusCode::OK, "ok\n"),
    }
}

/// Returns the readiness check's response: 200 if the process accepts work.
pub async fn readiness_with_database(db: PrimaryPool, stopped: watch::Receiver<bool>) -> Readiness {
    if *stopped.borrow() {
        return readiness(&stopped);
    }
    let pending = tokio::time::timeout(READINESS_TIMEOUT, migrations::pending(&db.get()))
        .await
        .unwrap_or_else(|elapsed| Err(Error::unavailable(elapsed)));
    match pending {
        Ok(0) => (StatusCode::OK, "ok\n"),
        Ok(_) => (StatusCode::SERVICE_UNAVAILABLE, "migrations are pending\n"),
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not respond\n",
        ),
    }
}
