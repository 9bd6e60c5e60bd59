//! Engines with several addresses, and how one that was stopped recovers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use assay_core::model::engine_address::EngineAddress;
use assay_inference::v2::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use assay_inference::v2::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::breaker::OPEN_TIME_MIN;
use super::calls::{Engine, Priority};
use super::recovery;
use super::replicas::Replicas;

/// An engine that counts its calls.
#[derive(Clone, Default)]
struct Counter {
    calls: Arc<AtomicUsize>,
    is_ready: bool,
}

type Result<T> = std::result::Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Counter {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Result<ServerLiveResponse> {
        Err(Status::unimplemented("server_live"))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Result<ServerReadyResponse> {
        let ready = self.is_ready;
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    async fn model_ready(&self, _: Request<ModelReadyRequest>) -> Result<ModelReadyResponse> {
        Err(Status::unimplemented("model_ready"))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<ServerMetadataResponse> {
        Err(Status::unimplemented("server_metadata"))
    }

    async fn model_metadata(
        &self,
        _: Request<ModelMetadataRequest>,
    ) -> Result<ModelMetadataResponse> {
        Err(Status::unimplemented("model_metadata"))
    }

    async fn model_infer(&self, _: Request<ModelInferRequest>) -> Result<ModelInferResponse> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(ModelInferResponse::default()))
    }
}

impl Counter {
    async fn start(&self, listener: TcpListener) {
        let router = tonic::transport::Server::builder()
            .add_service(GrpcInferenceServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn free_port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn engine_address() -> EngineAddress {
    "default=http://engine:9500".parse().unwrap()
}

fn engine(addresses: &[SocketAddr]) -> Arc<Engine> {
    let replicas = Replicas::with_addresses(&engine_address(), addresses);
    Arc::new(Engine::new("default", replicas, 1))
}

async fn call(engine: &Arc<Engine>) -> assay_core::model::error::Result<()> {
    let now = Instant::now();
    let deadline = now + Duration::from_secs(60);
    let mut admitted = engine.admit(Priority::Synchronous, now, deadline).await?;
    admitted
        .infer(ModelInferRequest::default(), |_| Ok(()))
        .await
}

#[tokio::test]
async fn calls_are_distributed_round_robin() {
    let counters = [Counter::default(), Counter::default(), Counter::default()];
    let mut addresses = Vec::new();
    for counter in &counters {
        let (listener, address) = free_port().await;
        counter.start(listener).await;
        addresses.push(address);
    }
    let engine = engine(&addresses);
    for _ in 0..9 {
        call(&engine).await.unwrap();
    }
    assert_eq!(counters.map(|counter| counter.calls()), [3, 3, 3]);
}

#[tokio::test]
async fn refused_connection_is_retried_at_another_address() {
    let (listener, first) = free_port().await;
    let (stopped, second) = free_port().await;
    drop(stopped);
    let counter = Counter::default();
    counter.start(listener).await;
    let engine = engine(&[second, first]);
    for _ in 0..10 {
        call(&engine).await.unwrap();
    }
    assert_eq!(counter.calls(), 10);
    assert!(!engine.breaker().is_open());
}

#[tokio::test]
async fn failing_address_is_skipped_while_others_work() {
    let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let replicas = Replicas::with_addresses(&engine_address(), &addresses);
    let all = replicas.all();
    let picked = async || {
        let mut ports = Vec::new();
        for _ in 0..6 {
            ports.push(replicas.pick().await.unwrap().address().port());
        }
        ports.sort_unstable();
        ports
    };
    assert_eq!(picked().await, [1, 1, 2, 2, 3, 3]);
    // The sixth failure skips the address for 30 s.
    for _ in 0..6 {
        all[1].fail(false);
    }
    assert!(!picked().await.contains(&2));
    all[1].succeed();
    assert!(picked().await.contains(&2));
    for replica in all.iter() {
        (0..6).for_each(|_| replica.fail(false));
    }
    assert_eq!(
        picked().await,
        [1, 1, 2, 2, 3, 3],
        "without others none is skipped"
    );
}

#[tokio::test]
async fn resolving_keeps_known_addresses() {
    let address = "default=http://127.0.0.1:9500".parse().unwrap();
    let replicas = Replicas::new(address);
    assert!(!replicas.has_dns_name());
    assert!(replicas.resolve().await.unwrap());
    let before = replicas.all();
    assert!(!replicas.resolve().await.unwrap());
    assert!(Arc::ptr_eq(&before[0], &replicas.all()[0]));
    assert_eq!(
        before[0].address(),
        SocketAddr::from(([127, 0, 0, 1], 9500))
    );
}

#[tokio::test]
async fn recovery_shortens_long_open_time() {
    let (stopped, address) = free_port().await;
    drop(stopped);
    let engine = engine(&[address]);
    let failed = engine.first_use().unwrap();
    assert!(engine.first_use().is_none(), "one task is enough");
    tokio::spawn(recovery::watch(Arc::downgrade(&engine), failed));
    call(&engine).await.unwrap_err();
    // The circuit opens, and stays open for 16 s after four failed trials.
    let mut now = Instant::now();
    let fail = |now| {
        let mut breaker = engine.breaker();
        let pass = breaker.admit(now).unwrap();
        breaker.fail(pass, now)
    };
    while !fail(now) {}
    for seconds in [1, 2, 4, 8] {
        now += Duration::from_secs(seconds);
        fail(now);
    }
    assert_eq!(engine.breaker().admit(now + OPEN_TIME_MIN), None);
    let counter = Counter {
        is_ready: true,
        ..Counter::default()
    };
    counter
        .start(TcpListener::bind(address).await.unwrap())
        .await;
    while engine.breaker().admit(now + OPEN_TIME_MIN).is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn dropped_engine_ends_its_recovery_task() {
    let (stopped, address) = free_port().await;
    drop(stopped);
    let engine = engine(&[address]);
    let failed = engine.first_use().unwrap();
    let watching = tokio::spawn(recovery::watch(Arc::downgrade(&engine), failed));
    call(&engine).await.unwrap_err();
    drop(engine);
    watching.await.unwrap();
}
