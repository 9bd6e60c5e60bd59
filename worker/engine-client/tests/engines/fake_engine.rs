//! An engine whose responses a test decides, and models to call it with.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assay_core::model::catalog::{Codebook, Resolution};
use assay_core::model::sequence::{Event, Sequence};
use assay_core::model::served_model::{Profile, ServedModel};
use assay_core::model::serving::{
    EmbedOptions, GenerateMode, GenerateOptions, HistoryOptions, OnLong, OnUnknown, Pooling,
    PredictOptions,
};
use assay_core::runtime::artifacts::Artifacts;
use assay_engine_client::{CallOptions, Engines, Priority};
use assay_inference::tensors::TensorsBuilder;
use assay_inference::v2::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use assay_inference::v2::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// The reaction of an engine to a call.
pub enum Reply {
    /// It responds at once.
    Now(Result<ModelInferResponse, Status>),
    /// It responds after this time.
    After(Duration, ModelInferResponse),
    /// It does not respond.
    Never,
}

type Respond = Arc<dyn Fn(&ModelInferRequest) -> Reply + Send + Sync>;

/// A running engine. It stops when it is dropped.
pub struct FakeEngine {
    pub address: SocketAddr,
    calls: Calls,
    /// Stopping the runtime closes all connections, as a process's end does.
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Clone)]
struct Calls {
    respond: Respond,
    requests: Arc<Mutex<Vec<ModelInferRequest>>>,
    timeouts: Arc<Mutex<Vec<String>>>,
    in_progress: Arc<AtomicUsize>,
}

impl FakeEngine {
    /// Starts an engine on a free port.
    pub fn start(respond: impl Fn(&ModelInferRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), respond)
    }

    /// Starts an engine at this address.
    pub fn start_at(
        address: SocketAddr,
        respond: impl Fn(&ModelInferRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let calls = Calls {
            respond: Arc::new(respond),
            requests: Arc::default(),
            timeouts: Arc::default(),
            in_progress: Arc::default(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let service = GrpcInferenceServiceServer::new(calls.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let router = tonic::transport::Server::builder().add_service(service);
            router
                .serve_with_incoming(TcpIncoming::from(listener))
                .await
        });
        Self {
            address,
            calls,
            runtime: Some(runtime),
        }
    }

    /// Returns the calls that arrived so far.
    pub fn requests(&self) -> Vec<ModelInferRequest> {
        self.calls.requests.lock().unwrap().clone()
    }

    /// Returns the header `grpc-timeout` of the calls that arrived so far.
    pub fn timeouts(&self) -> Vec<String> {
        self.calls.timeouts.lock().unwrap().clone()
    }

    /// Returns how many calls the engine has not responded to.
    pub fn in_progress(&self) -> usize {
        self.calls.in_progress.load(Ordering::SeqCst)
    }

    /// Returns a client of this engine under the name `default`, on a machine with `cores` cores.
    pub async fn client(&self, cores: usize) -> Engines {
        let (folder, artifacts) = artifacts().await;
        let engines = Engines::new(
            &[format!("default=http://{}", self.address).parse().unwrap()],
            artifacts,
            cores,
        );
        std::fs::remove_dir_all(folder).unwrap();
        engines
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        // An asynchronous test must not wait for the end of a runtime in its own thread.
        let runtime = self.runtime.take();
        let stopping = std::thread::spawn(move || {
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(Duration::from_secs(10));
            }
        });
        let _ = stopping.join();
    }
}

/// Counts a call as finished when it is dropped, also if the client has cancelled it.
struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Calls {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: true }))
    }

    async fn model_ready(
        &self,
        _: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        Err(Status::unimplemented("model_ready"))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Err(Status::unimplemented("server_metadata"))
    }

    async fn model_metadata(
        &self,
        _: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        Err(Status::unimplemented("model_metadata"))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let timeout = request.metadata().get("grpc-timeout");
        let timeout = timeout.map_or("", |timeout| timeout.to_str().unwrap());
        self.timeouts.lock().unwrap().push(timeout.to_owned());
        let request = request.into_inner();
        self.requests.lock().unwrap().push(request.clone());
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        let _in_progress = InProgress(Arc::clone(&self.in_progress));
        match (self.respond)(&request) {
            Reply::Now(result) => result.map(Response::new),
            Reply::After(time, response) => {
                tokio::time::sleep(time).await;
                Ok(Response::new(response))
            }
            Reply::Never => std::future::pending().await,
        }
    }
}

/// Creates an artifact store in its own folder, which the caller removes.
pub async fn artifacts() -> (PathBuf, Artifacts) {
    static FOLDERS: AtomicUsize = AtomicUsize::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::SeqCst);
    let name = format!("assay-engines-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
    (folder, artifacts)
}

/// Returns a response with these outputs, in raw form.
pub fn response(
    request: &ModelInferRequest,
    outputs: impl FnOnce(&mut TensorsBuilder),
) -> ModelInferResponse {
    let mut response = ModelInferResponse {
        model_name: request.model_name.clone(),
        model_version: request.model_version.clone(),
        id: request.id.clone(),
        ..ModelInferResponse::default()
    };
    let mut tensors = TensorsBuilder::default();
    outputs(&mut tensors);
    tensors.into_response(&mut response);
    response
}

/// Returns a model with three dimensions and a context of four events.
pub fn model(profile: Profile) -> ServedModel {
    ServedModel {
        id: "next-1".into(),
        version: "3".into(),
        engine: "default".into(),
        package: "models/next-1/3/0123456789abcdef".into(),
        profile,
        context_length: 4,
        embedding_dim: 3,
        codebook: Codebook {
            levels: 1,
            resolution: Resolution::Uniform,
            base_size: 8,
        },
        has_item_table: true,
        returns_items: true,
    }
}

/// Returns a model of an external engine that reads ids.
pub fn external() -> ServedModel {
    model(Profile::Ids {
        name: "tiger".into(),
        generates: true,
    })
}

/// Returns a sequence of these items.
pub fn sequence(sequence_id: &'static str, items: &[&'static str]) -> Sequence<'static> {
    let events = items.iter().map(|&item_id| Event {
        item_id: Cow::Borrowed(item_id),
        r#type: None,
        ts: None,
    });
    Sequence {
        sequence_id: Cow::Borrowed(sequence_id),
        events: events.collect(),
        options: None,
    }
}

/// Returns a sequence of these items with options.
pub fn with_options(items: &[&'static str], options: &[&'static str]) -> Sequence<'static> {
    Sequence {
        options: Some(options.iter().map(|&option| option.into()).collect()),
        ..sequence("s", items)
    }
}

/// A synchronous call with a deadline that no test reaches.
pub const CALL: CallOptions = CallOptions {
    priority: Priority::Synchronous,
    deadline: Duration::from_secs(60),
};

/// Truncates long histories and skips unknown items.
pub const LENIENT: HistoryOptions = HistoryOptions {
    on_long: OnLong::Truncate,
    on_unknown: OnUnknown::Skip,
};

/// Refuses long histories and unknown items.
pub const STRICT: HistoryOptions = HistoryOptions {
    on_long: OnLong::Refuse,
    on_unknown: OnUnknown::Refuse,
};

/// Ten items.
pub const PREDICT: PredictOptions = PredictOptions {
    history: LENIENT,
    top_k: None,
    exclude_seen: false,
};

/// Two continuations of two events.
pub const GENERATE: GenerateOptions = GenerateOptions {
    history: LENIENT,
    n_events: 2,
    n_continuations: 2,
    mode: GenerateMode::Beam,
    temperature: 1.0,
    seed: 7,
    exclude_seen: false,
};

/// The last position, as it is.
pub const EMBED: EmbedOptions = EmbedOptions {
    history: LENIENT,
    pooling: Pooling::Last,
    normalize: false,
};
