//! The Open Inference Protocol's service.

use std::sync::Arc;
use std::time::Instant;

use assay_core::model::package::PackageName;
use assay_inference::ids;
use assay_inference::v2::grpc_inference_service_server::GrpcInferenceService;
use assay_inference::v2::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use prost::Message as _;
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};

use crate::call::Call;
use crate::compute::Computation;
use crate::deadline::Deadline;
use crate::metadata::metadata;
use crate::outcome::{Counted, Failure};
use crate::package::{LoadError, Package};
use crate::packages::Packages;
use crate::pool::{NotAdmitted, Pool, Priority};
use crate::response;

/// The embedded engine.
pub struct Engine {
    packages: Packages,
    pool: Pool,
    /// Permits for calls whose package is being loaded. They are half: a slow load must not stop
    /// other packages' calls.
    loading: Semaphore,
    stopped: watch::Receiver<bool>,
}

impl Engine {
    /// Creates an engine. `stopped` becomes true at the shutdown signal.
    pub fn new(packages: Packages, pool: Pool, stopped: watch::Receiver<bool>) -> Self {
        Self {
            loading: Semaphore::new(pool.permits_max() / 2),
            packages,
            pool,
            stopped,
        }
    }

    /// Returns the concurrent stream count per connection for which there is a use.
    pub fn streams_max(&self) -> usize {
        2 * self.pool.permits_max()
    }

    async fn infer(
        &self,
        mut request: ModelInferRequest,
        priority: Priority,
        deadline: Option<Instant>,
    ) -> Result<ModelInferResponse, Failure> {
        let name = package_name(&request.model_name, &request.model_version)?;
        // An overloaded engine refuses calls before it reads their tensors.
        self.pool.check(priority)?;
        let call = Call::read(&request)?;
        response::check_requested(&request.outputs, &call.operation)?;
        let permits = self
            .pool
            .permits(call.rows(), request.encoded_len(), priority)?;
        request.inputs.clear();
        request.raw_input_contents.clear();
        let load = self.package(&name, permits.count());
        let package = within(deadline, load).await??;
        let rows = call.rows();
        let computation = Arc::new(Computation::new(call, package, deadline));
        let row_time = computation.row_time();
        let work = Arc::clone(&computation);
        let admitted = self.pool.queue(work, rows, row_time, deadline, permits)?;
        within(deadline, admitted.finished()).await?;
        let mut results = Vec::with_capacity(rows);
        for result in computation.results() {
            match result {
                Some(Ok(result)) => results.push(result),
                Some(Err(assay_engine::Refusal::Stopped)) => return Err(Failure::Late),
                Some(Err(refusal)) => return Err(Failure::Failed(refusal.clone())),
                None if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Err(Failure::Late);
                }
                None => return Err(Failure::MissingResult),
            }
        }
        let operation = &computation.call().operation;
        let dim = computation.package().model.spec().dim;
        let outputs = response::outputs(operation, dim, &results, &request.outputs);
        let mut response = ModelInferResponse {
            model_name: request.model_name,
            model_version: request.model_version,
            id: request.id,
            ..ModelInferResponse::default()
        };
        outputs.into_response(&mut response);
        Ok(response)
    }

    /// Returns the package for a call with this many permits. A large call loads a package even if
    /// it has more permits than loading calls may use.
    async fn package(&self, name: &PackageName, permits: usize) -> Result<Arc<Package>, Failure> {
        if let Some(package) = self.packages.loaded(name) {
            return Ok(package);
        }
        let permits = permits.min(self.pool.permits_max() / 2);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let _loading = self
            .loading
            .try_acquire_many(permits)
            .map_err(|_| NotAdmitted::Saturated)?;
        Ok(self.packages.get(name).await?)
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Engine {
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
        let ready = !*self.stopped.borrow();
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(ServerMetadataResponse {
            name: String::from("assay-worker"),
            version: String::from(env!("CARGO_PKG_VERSION")),
            extensions: Vec::new(),
        }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        let ready = match package_name(&request.name, &request.version) {
            Ok(name) => match within(deadline, self.package(&name, 1)).await {
                Ok(Ok(_)) => true,
                Ok(Err(Failure::NotLoaded(LoadError::NotFound))) => false,
                Ok(Err(failure)) | Err(failure) => return Err(failure.status()),
            },
            Err(_) => false,
        };
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        let described = async {
            let name = package_name(&request.name, &request.version)?;
            let package = within(deadline, self.package(&name, 1)).await??;
            Ok(metadata(&name, &package.model))
        };
        let described = described
            .await
            .map_err(|failure: Failure| failure.status())?;
        Ok(Response::new(described))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let mut counted = Counted::new();
        let deadline = deadline(&request);
        let priority = match request.metadata().get(ids::PRIORITY_HEADER) {
            Some(value) if value == ids::PRIORITY_JOB => Priority::Job,
            _ => Priority::Request,
        };
        let result = self.infer(request.into_inner(), priority, deadline).await;
        counted.set(&result);
        match result {
            Ok(response) => Ok(Response::new(response)),
            Err(failure) => Err(failure.status()),
        }
    }
}

fn package_name(name: &str, version: &str) -> Result<PackageName, Failure> {
    name.parse()
        .ok()
        .filter(|name: &PackageName| name.version() == version)
        .ok_or(Failure::UnknownPackage)
}

fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    let Deadline(deadline) = request.extensions().get()?;
    Some(*deadline)
}

async fn within<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Failure> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work)
            .await
            .map_err(|_| Failure::Late),
        None => Ok(work.await),
    }
}
