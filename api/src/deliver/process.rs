//! The deliverer's process, `assay-api deliver`: its port, background tasks, graceful shutdown.

use std::sync::Arc;

use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::resource_metrics::sample_runtime;
use assay_core::runtime::settings::ADMIN_LISTEN;
use assay_core::store::{self, PoolProfile, migrations};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::background::dns::Dns;
use crate::deliver::attempts;
use crate::deliver::sender::Sender;
use crate::settings::DelivererSettings;

/// The process's maximum attempt count at once.
const ATTEMPTS_MAX: usize = 512;

/// Connections to the database, besides one for notifications and one for the readiness
/// check.
const CONNECTIONS: u32 = 4;

const ATTEMPTS: &str = "attempts";

/// Delivers webhooks until the shutdown signal (SIGTERM or SIGINT), then finishes the attempts in
/// progress, at most for the setting `ASSAY_DRAIN_SECONDS`. `metrics` renders the Prometheus metrics
/// for the admin port.
///
/// # Errors
/// When the port cannot be bound, the database's schema or role does not fit, or a background task
/// ends before shutdown.
pub async fn run(
    settings: DelivererSettings,
    metrics: PrometheusHandle,
) -> Result<(), ProcessError> {
    let DelivererSettings {
        database_url,
        key,
        targets,
        dns_server,
        admin_listen,
        drain,
        ..
    } = settings;
    let admin_listener = process::bind(&ADMIN_LISTEN, admin_listen).await?;
    let (stop, stopped) = watch::channel(false);
    let mut tasks = BackgroundTasks::default();
    let mut pool = |name, connections| {
        let (pool, follow_primary) = store::pool_with_task(
            &database_url,
            connections,
            "assay-deliverer",
            PoolProfile::REQUESTS,
        )?;
        tasks.spawn_infallible(name, follow_primary);
        Ok::<_, ProcessError>(pool)
    };
    let db = pool("primary_for_attempts", CONNECTIONS)?;
    let readiness = pool("primary_for_readiness", 1)?;
    process::ensure_schema_is_current(&db).await?;
    if migrations::can_read_more_than_deliveries(&db.get()).await? {
        return Err(ProcessError::RoleReadsMoreThanDeliveries);
    }
    let sender = Arc::new(Sender::new(key, targets, Dns::new(dns_server))?);
    let deliver = attempts::run(db.clone(), sender, ATTEMPTS_MAX, stopped.clone());
    tasks.spawn_infallible(ATTEMPTS, deliver);
    tasks.spawn_infallible("delay", attempts::measure_delay(db.clone()));
    tasks.spawn_infallible("runtime_metrics", sample_runtime());
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, move || {
            process::readiness_with_database(readiness.clone(), stopped.clone())
        }),
    );
    tracing::info!(admin = %admin_listen, git_sha = env!("ASSAY_GIT_SHA"), "delivering");
    process::run_until_shutdown(
        &mut tasks,
        &stop,
        ATTEMPTS,
        "finishing the attempts in progress",
        drain,
    )
    .await?;
    drop(tasks);
    process::close(&db).await;
    Ok(())
}
