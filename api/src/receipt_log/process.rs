//! The process of the log, `assay-api log`: its port, background tasks, graceful shutdown.

use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::resource_metrics::sample_runtime;
use assay_core::runtime::settings::{ADMIN_LISTEN, DATABASE_URL};
use assay_core::store::{self, PoolProfile, migrations};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use super::leader::Log;
use crate::settings::LogSettings;

const LOG: &str = "receipt_log";

/// Writes the log until the shutdown signal (SIGTERM or SIGINT). `metrics` renders the Prometheus
/// metrics for the admin port.
///
/// # Errors
/// When the port cannot be bound, the database's schema or role does not fit, there is no artifact
/// store, or a background task ends before shutdown.
pub async fn run(settings: LogSettings, metrics: PrometheusHandle) -> Result<(), ProcessError> {
    let LogSettings {
        database_url,
        artifacts,
        signing,
        admin_listen,
        drain,
        ..
    } = settings;
    let admin_listener = process::bind(&ADMIN_LISTEN, admin_listen).await?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = BackgroundTasks::default();
    let (db, follow_primary) =
        store::pool_with_task(&database_url, 2, "assay-log", PoolProfile::REQUESTS)?;
    tasks.spawn_infallible("primary", follow_primary);
    process::ensure_schema_is_current(&db).await?;
    if migrations::can_do_more_than_log(&db.get()).await? {
        return Err(ProcessError::RoleDoesMoreThanLog {
            setting: DATABASE_URL.name,
        });
    }
    let artifacts = Artifacts::open(&artifacts).await?;
    let log = Log {
        db: db.clone(),
        artifacts,
        signing: signing.into(),
    };
    let until = stopped.clone();
    tasks.spawn_infallible(LOG, async move { log.run(until).await });
    tasks.spawn_infallible("runtime_metrics", sample_runtime());
    let readiness = db.clone();
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, move || {
            process::readiness_with_database(readiness.clone(), stopped.clone())
        }),
    );
    tracing::info!(admin = %admin_listen, git_sha = env!("ASSAY_GIT_SHA"), "receipt log ready");
    process::run_until_shutdown(
        &mut tasks,
        &stop,
        LOG,
        "finishing the current checkpoint",
        drain,
    )
    .await?;
    drop(tasks);
    process::close(&db).await;
    Ok(())
}
