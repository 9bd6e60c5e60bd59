//! The embedded engine's process: its ports, graceful shutdown, background tasks.

use std::num::NonZero;
use std::time::Duration;

use assay_core::model::error::Error;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::background_tasks::BackgroundTasks;
use assay_core::runtime::process;
use assay_core::runtime::process_error::ProcessError;
use assay_core::runtime::resource_metrics::sample_runtime;
use assay_core::runtime::settings::{ADMIN_LISTEN, ENGINE_LISTEN};
use assay_inference::v2::grpc_inference_service_server::GrpcInferenceServiceServer;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::deadline::read_deadline;
use crate::packages::Packages;
use crate::pool::Pool;
use crate::service::Engine;
use crate::settings::Settings;

/// Maximum message size, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Interval at which idle connections are checked, and longest wait for the response. A connection
/// whose client is gone is closed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

const SERVER: &str = "server";

/// Returns the network's thread count. Reading and writing a message takes a tenth of its computing
/// time, and the pool's threads use all cores.
pub fn worker_threads() -> usize {
    cores().div_ceil(8)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Serves the Open Inference Protocol until the shutdown signal (SIGTERM or SIGINT), then finishes
/// the calls in progress, at most for the setting `ASSAY_DRAIN_SECONDS`. `metrics` renders the
/// Prometheus metrics for the admin port.
///
/// # Errors
/// When a port cannot be bound, the artifact store is not an installation's, or a background
/// task ends before shutdown.
pub async fn run(settings: Settings, metrics: PrometheusHandle) -> Result<(), ProcessError> {
    hide_panic_messages();
    let listener = process::bind(&ENGINE_LISTEN, settings.listen).await?;
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.admin_listen).await?;
    let artifacts = Artifacts::open(&settings.artifacts).await?;
    let (stop, stopped) = watch::channel(false);
    let packages = Packages::new(artifacts, settings.memory);
    let engine = Engine::new(packages, Pool::start(cores())?, stopped.clone());
    let mut tasks = BackgroundTasks::default();
    tasks.spawn_infallible("runtime_metrics", sample_runtime());
    tasks.spawn(SERVER, serve(listener, engine, stopped.clone()));
    tasks.spawn_infallible(
        "admin_port",
        process::serve_admin(admin_listener, metrics, move || {
            std::future::ready(process::readiness(&stopped))
        }),
    );
    tracing::info!(
        listen = %settings.listen,
        admin = %settings.admin_listen,
        threads = cores(),
        memory = settings.memory,
        git_sha = settings.git_sha,
        "serving"
    );
    process::run_until_shutdown(
        &mut tasks,
        &stop,
        SERVER,
        "finishing the calls in progress",
        settings.drain,
    )
    .await?;
    Ok(())
}

/// Serves calls until `stopped` becomes true and all connections have finished their calls.
async fn serve(
    listener: TcpListener,
    engine: Engine,
    stopped: watch::Receiver<bool>,
) -> Result<(), Error> {
    let streams_max = u32::try_from(engine.streams_max()).unwrap_or(u32::MAX);
    let service = GrpcInferenceServiceServer::new(engine)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_serving::<GrpcInferenceServiceServer<Engine>>()
        .await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(assay_inference::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut stopping = stopped;
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        // More calls than permits get a saturated engine's status, instead of waiting in the
        // client for a stream.
        .max_concurrent_streams(streams_max)
        .add_service(InterceptedService::new(service, read_deadline))
        .add_service(health_service)
        .add_service(reflection().build_v1().map_err(Error::internal)?)
        .add_service(reflection().build_v1alpha().map_err(Error::internal)?)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            async move {
                // The sender lives as long as the process.
                let _ = stopping.wait_for(|stopped| *stopped).await;
                health
                    .set_service_status("", tonic_health::ServingStatus::NotServing)
                    .await;
                health
                    .set_not_serving::<GrpcInferenceServiceServer<Engine>>()
                    .await;
            },
        )
        .await
        .map_err(Error::internal)
}

/// Logs where panics occur without their messages, which can quote a call's item.
fn hide_panic_messages() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "panic");
    }));
}
