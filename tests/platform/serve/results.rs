//! Results depend only on the sequence and the package.

use std::sync::Arc;

use assay_core::model::package::{ITEMS_FILE, PackageName};
use assay_engine::{Pooling, Scratch};
use assay_inference::v2::{
    ModelMetadataRequest, ModelReadyRequest, ServerLiveRequest, ServerMetadataRequest,
    ServerReadyRequest,
};
use assay_tests::stack::Process;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::calls::{self, History, Operation, Row};
use super::packages::{self, Files, Rng};
use super::{Engine, channel, client};

/// Returns random histories: of known and unknown items, empty, and longer than the context; some
/// with types, some with options.
fn histories(files: &Files, count: usize) -> Vec<History> {
    let (_, items) = files.iter().find(|(name, _)| *name == ITEMS_FILE).unwrap();
    let items: Vec<String> = String::from_utf8_lossy(items)
        .lines()
        .map(|line| {
            let item: serde_json::Value = serde_json::from_str(line).unwrap();
            item["item_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut rng = Rng(7);
    let one = |index: usize| {
        let item = |rng: &mut Rng| match rng.below(10) {
            0 => format!("unknown-{}", rng.below(100)),
            _ => items[rng.below(items.len())].clone(),
        };
        let events: Vec<String> = (0..rng.below(20)).map(|_| item(&mut rng)).collect();
        let types = ["", "view", "buy", "other"];
        let has_types = rng.below(2) == 0;
        let options = (rng.below(3) == 0).then(|| {
            let mut options: Vec<String> = (0..1 + rng.below(30)).map(|_| item(&mut rng)).collect();
            options.sort();
            options.dedup();
            options
        });
        History {
            sequence_id: format!("sequence-{index}"),
            types: (0..if has_types { events.len() } else { 0 })
                .map(|_| types[rng.below(types.len())].to_owned())
                .collect(),
            events,
            options,
        }
    };
    (0..count).map(one).collect()
}

/// Computes histories on an engine, in calls with this size, with this number of concurrent callers.
async fn compute(
    process: &Process,
    package: &PackageName,
    operation: Operation,
    histories: &Arc<Vec<History>>,
    size: usize,
    callers: usize,
    is_typed: bool,
) -> Vec<Row> {
    let mut tasks = Vec::new();
    let client = client(process).await;
    for caller in 0..callers {
        let (mut client, package) = (client.clone(), package.clone());
        let histories = Arc::clone(histories);
        tasks.push(tokio::spawn(async move {
            let mut results = Vec::new();
            let chunks = histories.chunks(size).enumerate();
            for (number, chunk) in chunks.filter(|(number, _)| number % callers == caller) {
                let chunk: Vec<&History> = chunk.iter().collect();
                let mut request = calls::request(&package, operation, &chunk);
                if is_typed {
                    request = calls::typed(request);
                }
                let response = client.model_infer(request).await.unwrap().into_inner();
                assert_eq!(response.id, "call-1");
                assert_eq!(response.model_name, package.to_string());
                assert_eq!(response.model_version, package.version());
                results.push((number, calls::rows(&response, operation, chunk.len())));
            }
            results
        }));
    }
    let mut results = Vec::new();
    for task in tasks {
        results.extend(task.await.unwrap());
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().flat_map(|(_, rows)| rows).collect()
}

const OPERATIONS: [Operation; 6] = [
    Operation::Predict {
        is_strict: false,
        exclude_seen: true,
    },
    Operation::Predict {
        is_strict: true,
        exclude_seen: false,
    },
    Operation::Beam { n_events: 3 },
    Operation::Sample { seed: u64::MAX },
    Operation::Embed {
        pooling: Pooling::Mean,
        normalize: false,
    },
    Operation::Embed {
        pooling: Pooling::Last,
        normalize: true,
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn results_are_equal_in_any_company() {
    let files = packages::golden("event-types");
    let mut engine = Engine::start(&[]).await;
    let package = engine.publish("1", &files).await;
    let model = packages::load(&files);
    let mut scratch = Scratch::default();
    let mut all_expected = Vec::new();
    for (number, operation) in OPERATIONS.into_iter().enumerate() {
        let histories = Arc::new(histories(&files, if number == 0 { 1000 } else { 200 }));
        let expected: Vec<Row> = histories
            .iter()
            .map(|history| calls::expected(&model, &mut scratch, operation, history))
            .collect();
        let other = engine.another().await;
        for (process, size, callers, is_typed) in [
            (&engine.process, 1, 1, false),
            (&engine.process, 1, 1, true),
            (&engine.process, 64, 1, false),
            (&engine.process, 64, 1, true),
            (&engine.process, 1, 16, false),
            (&engine.process, 7, 16, false),
            (&other, 64, 1, false),
        ] {
            let results = compute(
                process, &package, operation, &histories, size, callers, is_typed,
            )
            .await;
            assert_eq!(results.len(), expected.len());
            for (result, expected) in results.iter().zip(&expected) {
                assert_eq!(
                    result, expected,
                    "{operation:?}, {callers} callers, {size} rows"
                );
            }
        }
        all_expected.push((operation, histories, expected));
    }
    // A killed process leaves nothing that the next one needs.
    engine.process.guarded.signal(libc::SIGKILL);
    engine.process = engine.another().await;
    for (operation, histories, expected) in all_expected {
        let results = compute(
            &engine.process,
            &package,
            operation,
            &histories,
            64,
            1,
            false,
        )
        .await;
        assert!(results == expected, "{operation:?} after a restart");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_without_item_table_rank_options() {
    let files = packages::without_items();
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &files).await;
    let history = History {
        events: vec![String::from("1-2-3"), String::from("01-2-3")],
        options: Some(vec![
            String::from("7-7-7"),
            String::from("8-0-0"),
            String::from("0-0-0"),
        ]),
        ..History::default()
    };
    let operation = OPERATIONS[0];
    let request = calls::request(&package, operation, &[&history]);
    let response = engine.infer(request).await.unwrap();
    let model = packages::load(&files);
    let expected = calls::expected(&model, &mut Scratch::default(), operation, &history);
    assert_eq!((expected.items.len(), expected.n_unknown), (3, 1));
    assert_eq!(calls::rows(&response, operation, 1), [expected]);
    let catalog = calls::predict(&package, &["1-2-3"]);
    let refused = engine.infer(catalog).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(
        refused.message().contains("No tokenizer is fitted"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requested_outputs_are_returned() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    let mut request = calls::predict(&package, &[]);
    for name in ["scores", "refusals"] {
        let output = assay_inference::v2::InferRequestedOutput {
            name: name.to_owned(),
            ..Default::default()
        };
        request.outputs.push(output);
    }
    let response = engine.infer(request.clone()).await.unwrap();
    let names: Vec<&str> = response
        .outputs
        .iter()
        .map(|output| output.name.as_str())
        .collect();
    assert_eq!(names, ["scores", "refusals"]);
    assert_eq!(response.raw_output_contents.len(), 2);
    request.outputs[0].name = String::from("embedding");
    let refused = engine.infer(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_describes_itself_and_its_packages() {
    let engine = Engine::start(&[]).await;
    let package = engine.publish("1", &packages::golden("one-level")).await;
    let mut client = engine.client().await;
    let live = client.server_live(ServerLiveRequest {}).await.unwrap();
    let ready = client.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(live.into_inner().live && ready.into_inner().ready);
    let server = client
        .server_metadata(ServerMetadataRequest {})
        .await
        .unwrap();
    assert_eq!(server.into_inner().name, "assay-worker");
    let name = package.to_string();
    for (name, version, is_ready) in [
        (name.as_str(), "1", true),
        (name.as_str(), "2", false),
        (name.as_str(), "", false),
        ("models/next-1/1/0123456789abcdef", "1", false),
    ] {
        let request = ModelReadyRequest {
            name: name.to_owned(),
            version: version.to_owned(),
        };
        let ready = client
            .model_ready(request)
            .await
            .unwrap()
            .into_inner()
            .ready;
        assert_eq!(ready, is_ready, "{name} {version}");
    }
    let request = ModelMetadataRequest {
        name: name.clone(),
        version: String::from("1"),
    };
    let metadata = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!(
        (metadata.name, metadata.versions),
        (name, vec![String::from("1")])
    );
    assert_eq!(metadata.platform, "assay-seq-1");
    let embedding = metadata
        .outputs
        .iter()
        .find(|output| output.name == "embedding");
    let embedding = embedding.unwrap();
    assert_eq!(
        (embedding.datatype.as_str(), &embedding.shape[..]),
        ("FP32", &[-1, 16][..])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_are_served() {
    let engine = Engine::start(&[]).await;
    let channel = channel(&engine.process).await;
    let request = HealthCheckRequest {
        service: String::from("inference.GRPCInferenceService"),
    };
    let health = HealthClient::new(channel.clone())
        .check(request)
        .await
        .unwrap();
    assert_eq!(
        health.into_inner().status,
        tonic_health::ServingStatus::Serving as i32
    );
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = futures_util::stream::iter([request]);
    let mut responses = ServerReflectionClient::new(channel)
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    let response = responses.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = response.message_response else {
        panic!("{response:?}");
    };
    let names: Vec<&str> = listed
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    for name in ["inference.GRPCInferenceService", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
}
