//! Cancelled and late calls, a saturated engine, and shutdown.

use std::time::Duration;

use assay_core::model::package::PackageName;
use assay_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use assay_inference::v2::{ModelInferRequest, ModelInferResponse};
use assay_tests::stack::Process;
use assay_tests::wait::wait_timeout;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinHandle;
use tonic::{Code, Request, Status};

use super::calls::{self, History, Operation};
use super::packages::{self, SLOW_EVENTS};
use super::{Engine, client, infer};
use crate::harness::{in_time, wait_until};
use crate::telemetry::sum;

/// Returns a call with this number of slow continuations.
fn slow(package: &PackageName, rows: usize, n_events: usize) -> ModelInferRequest {
    let events = (0..SLOW_EVENTS).map(|event| format!("item-{}", event % 60));
    let history = History {
        events: events.collect(),
        ..History::default()
    };
    let histories = vec![&history; rows];
    calls::request(package, Operation::Beam { n_events }, &histories)
}

/// Returns a call that takes more than half a minute.
fn endless(package: &PackageName, rows: usize) -> ModelInferRequest {
    slow(package, rows, 50)
}

type Call = JoinHandle<Result<ModelInferResponse, Status>>;

/// Sends a call, and waits until the engine has admitted it.
async fn start(process: &Process, request: ModelInferRequest) -> Call {
    let before = permits_used(process).await;
    let mut client = client(process).await;
    let call = tokio::spawn(async move { Ok(client.model_infer(request).await?.into_inner()) });
    wait_until("the call", async || permits_used(process).await > before).await;
    call
}

async fn permits_used(process: &Process) -> f64 {
    sum(process, "assay_engine_permits_used", &[]).await
}

async fn calls_with(process: &Process, outcome: &str) -> f64 {
    sum(process, "assay_engine_calls_total", &[("outcome", outcome)]).await
}

/// Waits until no call is in progress and the threads compute again.
async fn wait_until_idle(process: &Process, package: &PackageName) {
    wait_until("the end of all calls", async || {
        permits_used(process).await == 0.0
    })
    .await;
    // Each thread must be free: as many rows as threads, and more.
    let history = History::default();
    let operation = Operation::Predict {
        is_strict: false,
        exclude_seen: false,
    };
    let request = calls::request(package, operation, &vec![&history; 64]);
    // Fails if a thread still computes a call that has ended.
    in_time("the computation of all rows", infer(process, request))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_call_stops() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::slow()).await;
    let call = start(&engine.process, endless(&package, 64)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    wait_until_idle(&engine.process, &package).await;
    assert_eq!(calls_with(&engine.process, "cancelled").await, 1.0);
    assert_eq!(sum(&engine.process, "assay_engine_queue", &[]).await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_call_stops() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::slow()).await;
    // Tonic's client has a timer too, and would hide the engine's status.
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<tonic::body::Body>();
    let address = format!("http://{}", engine.process.listen.unwrap());
    let mut client = GrpcInferenceServiceClient::with_origin(client, address.parse().unwrap());
    // The package is loaded before the deadline counts.
    client
        .model_infer(calls::predict(&package, &[]))
        .await
        .unwrap();
    let mut request = Request::new(endless(&package, 3));
    request.set_timeout(Duration::from_millis(500));
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(status.message(), "The deadline is exceeded.");
    wait_until_idle(&engine.process, &package).await;
    assert_eq!(calls_with(&engine.process, "deadline").await, 1.0);
    let mut request = Request::new(calls::predict(&package, &[]));
    request
        .metadata_mut()
        .insert("grpc-timeout", "soon".parse().unwrap());
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saturated_engine_refuses_calls_at_once() {
    let engine = Engine::start(&[]).await;
    let process = &engine.process;
    let package = engine.publish("1", &packages::slow()).await;
    // Calls that wait for a package may use only half the permits.
    infer(process, calls::predict(&package, &[])).await.unwrap();
    let permits = sum(process, "assay_engine_permits", &[]).await;
    let mut running = Vec::new();
    while permits_used(process).await < permits {
        running.push(start(process, endless(&package, 64)).await);
    }
    let status = infer(process, calls::predict(&package, &[]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(calls_with(process, "saturated").await, 1.0);
    // A call has its permits before its rows wait.
    wait_until("computed and waiting rows", async || {
        let queue = sum(process, "assay_engine_queue", &[]).await;
        queue > 0.0 && queue < permits
    })
    .await;
    for call in &running {
        call.abort();
    }
    wait_until_idle(process, &package).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_call_is_not_delayed_by_a_long_one() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::slow()).await;
    let long = start(&engine.process, slow(&package, 16, 1)).await;
    infer(&engine.process, calls::predict(&package, &[]))
        .await
        .unwrap();
    assert!(!long.is_finished());
    long.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_running_calls() {
    let engine = Engine::start(&[("ASSAY_DRAIN_SECONDS", "300")]).await;
    let package = engine.publish("1", &packages::slow()).await;
    let call = start(&engine.process, slow(&package, 2, 2)).await;
    engine.process.guarded.stop();
    let address = engine.process.listen.unwrap();
    wait_until("the end of new connections", async || {
        std::net::TcpStream::connect(address).is_err()
    })
    .await;
    assert!(!call.is_finished(), "the call was too short for this test");
    let response = call.await.unwrap().unwrap();
    let rows = calls::rows(&response, Operation::Beam { n_events: 2 }, 2);
    assert!(
        rows.iter().all(|row| row.continuations.len() == 3),
        "{rows:?}"
    );
    let exit = engine.process.guarded.wait(wait_timeout()).unwrap();
    assert!(exit.success(), "{exit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_timeout_ends_endless_calls() {
    let engine = Engine::start(&[("ASSAY_DRAIN_SECONDS", "1")]).await;
    let package = engine.publish("1", &packages::slow()).await;
    let call = start(&engine.process, endless(&package, 2)).await;
    engine.process.guarded.stop();
    let exit = engine.process.guarded.wait(wait_timeout()).unwrap();
    assert!(exit.success(), "{exit}");
    assert!(call.await.unwrap().is_err());
}
