//! What both binaries do as processes: take a port, hear that they are to end, and answer operators on the private
//! port. The only place in core that knows axum: a second copy in each binary would be worse.

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

use crate::model::error::{BestEffort as _, Error, Result};
use crate::runtime::settings::Setting;
use crate::store::{PgPool, migrations};

/// How long the database may take to answer. Who asks whether the process is ready does not wait much longer.
const READINESS_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes a port, or says what to do when it is taken.
pub async fn bind(setting: &Setting, address: SocketAddr) -> Result<TcpListener> {
    let taken = |error| {
        let name = setting.name;
        Error::internal(format!(
            "cannot listen on {address}: {error}. Set {name} to another address, or end what listens there."
        ))
    };
    TcpListener::bind(address).await.map_err(taken)
}

/// Returns when the process is told to end, by SIGTERM or SIGINT.
pub async fn shutdown_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::internal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::internal)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Refuses a database whose schema this build does not know.
pub async fn ensure_schema_is_current(db: &PgPool) -> Result<()> {
    match migrations::pending(db).await? {
        0 => Ok(()),
        _ => Err(Error::internal(
            "the database's schema is older than this build: run assay-api migrate",
        )),
    }
}

/// Closes the database's connections. A query that hangs must not keep the process.
pub async fn close(db: &PgPool) {
    tokio::time::timeout(Duration::from_secs(1), db.close())
        .await
        .best_effort("closing the database's connections");
}

/// Serves `/metrics`, `/livez` and `/readyz` for as long as it is polled.
pub async fn serve_admin(
    listener: TcpListener,
    metrics: PrometheusHandle,
    db: PgPool,
    stopped: watch::Receiver<bool>,
) {
    let upkeep = metrics.clone();
    let process = metrics_process::Collector::default();
    process.describe();
    let shown = async move || {
        process.collect();
        (
            [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            metrics.render(),
        )
    };
    let routes = Router::new()
        .route("/metrics", get(shown))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async move || ready(&db, &stopped).await));
    let served = async { axum::serve(listener, routes).await };
    // Histograms keep what was recorded until it is drained.
    let kept_up = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    };
    tokio::select! {
        ended = served => ended.best_effort("serving operators"),
        () = kept_up => {}
    }
}

/// Whether work should come to this process.
async fn ready(db: &PgPool, stopped: &watch::Receiver<bool>) -> (StatusCode, &'static str) {
    if *stopped.borrow() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    let pending = tokio::time::timeout(READINESS_TIMEOUT, migrations::pending(db))
        .await
        .unwrap_or_else(|late| Err(Error::unavailable(late)));
    match pending {
        Ok(0) => (StatusCode::OK, "ok\n"),
        Ok(_) => (StatusCode::SERVICE_UNAVAILABLE, "migrations are pending\n"),
        Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not answer\n",
        ),
    }
}
