//! The embedded engine: the real `assay-worker serve`, called over the Open Inference Protocol.

mod calls;
mod failures;
mod hostile;
pub mod packages;
mod privacy;
mod results;

use std::path::PathBuf;

use assay_core::model::package::{MANIFEST_FILE, Manifest, PackageName};
use assay_core::runtime::artifacts::Artifacts;
use assay_inference::v2::grpc_inference_service_client::GrpcInferenceServiceClient;
use assay_inference::v2::{ModelInferRequest, ModelInferResponse};
use assay_tests::databases;
use assay_tests::stack::{Process, launch_engine};
use tonic::Status;
use tonic::transport::Channel;

use crate::harness::ground;

/// The engine's largest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A folder of packages, and an engine that serves them.
struct Engine {
    artifacts: Artifacts,
    folder: PathBuf,
    process: Process,
}

impl Engine {
    /// Starts an engine on an empty folder.
    async fn start(settings: &[(&str, &str)]) -> Self {
        let folder = ground()
            .servers
            .folder()
            .join(databases::fresh_name("packages"));
        let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
        let process = Self::launch(&folder, settings).await;
        Self {
            artifacts,
            folder,
            process,
        }
    }

    /// Starts another process on the same folder.
    async fn another(&self) -> Process {
        Self::launch(&self.folder, &[]).await
    }

    async fn launch(folder: &std::path::Path, settings: &[(&str, &str)]) -> Process {
        let ground = ground();
        let logs = ground.servers.folder();
        let process = launch_engine(&ground.binaries.worker, folder, logs, settings).unwrap();
        process.ready().await.unwrap();
        process
    }

    /// Stores a package, and returns its name.
    async fn publish(&self, version: &str, files: &[(&str, Vec<u8>)]) -> PackageName {
        let manifest = Manifest::of(files.iter().map(|(name, content)| (*name, &content[..])));
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let name = PackageName::new(None, "next-1", version, &manifest).unwrap();
        for (file, content) in files {
            self.put(&name, file, content).await;
        }
        self.put(&name, MANIFEST_FILE, &manifest).await;
        name
    }

    async fn put(&self, name: &PackageName, file: &str, content: &[u8]) {
        let key = name.object(file);
        self.artifacts
            .put(&key, content.to_vec().into())
            .await
            .unwrap();
    }

    async fn client(&self) -> GrpcInferenceServiceClient<Channel> {
        client(&self.process).await
    }

    async fn infer(&self, request: ModelInferRequest) -> Result<ModelInferResponse, Status> {
        infer(&self.process, request).await
    }
}

async fn channel(process: &Process) -> Channel {
    let address = format!("http://{}", process.listen.unwrap());
    Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap()
}

async fn client(process: &Process) -> GrpcInferenceServiceClient<Channel> {
    GrpcInferenceServiceClient::new(channel(process).await)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
}

async fn infer(
    process: &Process,
    request: ModelInferRequest,
) -> Result<ModelInferResponse, Status> {
    let response = client(process).await.model_infer(request).await?;
    Ok(response.into_inner())
}
