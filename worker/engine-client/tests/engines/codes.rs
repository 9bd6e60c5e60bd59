//! The profile `codes`, with a network that is the embedded engine's own.

use std::sync::LazyLock;

use assay_core::Code;
use assay_core::model::package::{ITEMS_FILE, MANIFEST_FILE, Manifest, PackageName};
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{CodeOutputs, PredictOutput, Profile, ServedModel};
use assay_core::model::serving::{EmbedOptions, EventCounts, Pooling, PredictOptions, Refusal};
use assay_engine::{Event, Model, PackageFiles, Scratch};
use assay_engine_client::Engines;
use assay_inference::ids::{EMBEDDING, LENGTHS, SCORES};
use assay_inference::tensors::{Tensors, TensorsBuilder};
use assay_inference::v2::ModelInferRequest;

use crate::fake_engine::{
    CALL, EMBED, FakeEngine, PREDICT, Reply, STRICT, artifacts, model, response, sequence,
    with_options,
};

const MODEL: &[u8] = include_bytes!("../../../engine/tests/golden/one-level/model.json");
const WEIGHTS: &[u8] = include_bytes!("../../../engine/tests/golden/one-level/weights.safetensors");
const ITEMS: &[u8] = include_bytes!("../../../engine/tests/golden/one-level/items.ndjson");

/// Loads the model of the golden values, with its item table or without it.
pub fn golden(items: Option<&'static [u8]>) -> Model {
    let files = PackageFiles {
        model: MODEL,
        weights: WEIGHTS,
        items,
    };
    Model::load(&files).unwrap()
}

/// The embedded engine's model with its item table.
pub static EMBEDDED: LazyLock<Model> = LazyLock::new(|| golden(Some(ITEMS)));

/// Returns a request's histories, as code texts.
fn histories(request: &ModelInferRequest) -> Vec<Vec<String>> {
    let tensors = Tensors::from_request(request).unwrap();
    let codes = tensors.read_required::<i64, 3>("codes").unwrap();
    let lengths = tensors.read_required::<i64, 2>(LENGTHS).unwrap();
    let [rows, _, 1] = codes.shape else {
        panic!("one level is expected: {:?}", codes.shape);
    };
    let history = |row| {
        let (used, padding) = codes.row(row).split_at(lengths.row(row)[0] as usize);
        assert!(padding.iter().all(|code| *code == 0));
        used.iter().map(ToString::to_string).collect()
    };
    (0..rows).map(history).collect()
}

fn events(history: &[String]) -> Vec<Event<'_>> {
    let events = history.iter().map(|item_id| Event {
        item_id,
        event_type: None,
    });
    events.collect()
}

/// Computes `logits` or `embedding`, whichever is requested.
fn network(model: &Model, request: &ModelInferRequest, tensors: &mut TensorsBuilder) {
    let mut scratch = Scratch::default();
    let [output] = request.outputs.as_slice() else {
        panic!("one output is expected: {:?}", request.outputs);
    };
    let rows: Vec<Vec<f32>> = histories(request)
        .iter()
        .map(|history| {
            let events = events(history);
            let sequence = assay_engine::Sequence {
                events: &events,
                ..assay_engine::Sequence::default()
            };
            match output.name.as_str() {
                "logits" => {
                    model
                        .logits(&mut scratch, &sequence, &|| false)
                        .unwrap()
                        .values
                }
                _ => {
                    let options = assay_engine::EmbedOptions {
                        pooling: assay_engine::Pooling::Last,
                        normalize: false,
                    };
                    model
                        .embed(&mut scratch, &sequence, &options, &|| false)
                        .unwrap()
                        .vector
                }
            }
        })
        .collect();
    let shape = [rows.len(), rows[0].len()];
    tensors.push(&output.name, &shape, rows.concat());
}

/// Starts an engine with the network of the golden values.
pub fn network_engine() -> FakeEngine {
    let model = golden(None);
    FakeEngine::start(move |request| {
        Reply::Now(Ok(response(request, |tensors| {
            network(&model, request, tensors);
        })))
    })
}

/// Returns the model of the golden values with these outputs.
pub fn coded(predict: Option<PredictOutput>) -> ServedModel {
    let mut model = model(Profile::Codes {
        name: "bare".into(),
        outputs: CodeOutputs {
            predict,
            continuations: predict.is_none(),
            embedding: true,
        },
    });
    let manifest = manifest(ITEMS);
    model.package = PackageName::new(None, "next-1", "3", &manifest)
        .unwrap()
        .to_string();
    model.context_length = 12;
    model.embedding_dim = 16;
    model.codebook.base_size = 160;
    model
}

fn manifest(items: &[u8]) -> Vec<u8> {
    serde_json::to_vec(&Manifest::of([(ITEMS_FILE, items)])).unwrap()
}

/// Returns a client of this engine, and an artifact store with the item table.
pub async fn client(engine: &FakeEngine) -> Engines {
    let (folder, artifacts) = artifacts().await;
    let package = coded(None).package;
    for (file, content) in [
        (MANIFEST_FILE, manifest(ITEMS)),
        (ITEMS_FILE, ITEMS.to_vec()),
    ] {
        artifacts
            .put(&format!("{package}/{file}"), content.into())
            .await
            .unwrap();
    }
    let address = format!("default=http://{}", engine.address)
        .parse()
        .unwrap();
    let client = Engines::new(&[address], artifacts, 1);
    // The item table is read at the first call, and cached.
    let sequences = [sequence("s", &[])];
    let logits = coded(Some(PredictOutput::Logits));
    let _ = client.predict(&logits, &sequences, &PREDICT, CALL).await;
    std::fs::remove_dir_all(folder).unwrap();
    client
}

/// Returns the sequences that the tests rank, whose events include unknown items and more events
/// than the context.
pub fn histories_of_items() -> [Sequence<'static>; 4] {
    [
        sequence("a", &[]),
        sequence("b", &["item-003", "nothing", "item-141"]),
        sequence(
            "c",
            &[
                "item-001", "item-002", "item-003", "item-004", "item-005", "item-006", "item-007",
                "item-008", "item-009", "item-010", "item-011", "item-012", "item-013", "item-014",
            ],
        ),
        with_options(
            &["item-020", "item-021"],
            &["item-022", "nothing", "item-020", "item-149", "item-000"],
        ),
    ]
}

/// Returns what the embedded engine computes for a sequence.
fn expected(sequence: &Sequence<'_>, options: &PredictOptions) -> (Vec<String>, Vec<Option<f64>>) {
    let events: Vec<_> = sequence
        .events
        .iter()
        .map(|event| Event {
            item_id: &event.item_id,
            event_type: None,
        })
        .collect();
    let given: Option<Vec<&str>> = sequence
        .options
        .as_ref()
        .map(|options| options.iter().map(AsRef::as_ref).collect());
    let engine_sequence = assay_engine::Sequence {
        events: &events,
        options: given.as_deref(),
        ..assay_engine::Sequence::default()
    };
    let options = assay_engine::PredictOptions {
        top_k: options.top_k.map(|top_k| top_k as usize),
        exclude_seen: options.exclude_seen,
    };
    let mut scratch = Scratch::default();
    let ranking = EMBEDDED
        .predict(&mut scratch, &engine_sequence, &options, &|| false)
        .unwrap();
    ranking
        .items
        .iter()
        .map(|item| (item.item_id.to_owned(), item.score.map(f64::from)))
        .unzip()
}

#[tokio::test]
async fn logits_rank_as_embedded_engine_does() {
    let engine = network_engine();
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::Logits));
    let sequences = histories_of_items();
    for (top_k, exclude_seen) in [(None, false), (Some(3), true), (Some(500), true)] {
        let options = PredictOptions {
            top_k,
            exclude_seen,
            ..PREDICT
        };
        let computed = client
            .predict(&model, &sequences, &options, CALL)
            .await
            .unwrap();
        for (result, sequence) in computed.results.iter().zip(&sequences) {
            let ranking = result.as_ref().unwrap();
            let (item_ids, scores) = expected(sequence, &options);
            assert_eq!(ranking.item_ids, item_ids, "{}", sequence.sequence_id);
            for (score, expected) in ranking.scores.iter().zip(scores) {
                match (score, expected) {
                    (Some(score), Some(expected)) => assert!((score - expected).abs() < 1e-5),
                    (score, expected) => assert_eq!(*score, expected),
                }
            }
        }
        let counts = |at: usize| computed.results[at].as_ref().unwrap().counts;
        assert_eq!(
            counts(1),
            EventCounts {
                n_used: 2,
                n_unknown: 1
            }
        );
        assert_eq!(
            counts(2),
            EventCounts {
                n_used: 12,
                n_unknown: 0
            }
        );
    }
    let request = engine.requests().pop().unwrap();
    assert_eq!(
        (request.model_name.as_str(), request.model_version.as_str()),
        ("bare", "3")
    );
    assert_eq!(histories(&request)[1].len(), 2);
}

#[tokio::test]
async fn refused_rows_are_not_sent() {
    let engine = network_engine();
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::Logits));
    let before = engine.requests().len();
    let options = PredictOptions {
        history: STRICT,
        ..PREDICT
    };
    let sequences = histories_of_items();
    let computed = client
        .predict(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    let refusals: Vec<_> = computed
        .results
        .iter()
        .map(|result| result.as_ref().err())
        .collect();
    let unknown = Refusal::UnknownItem { event: Some(1) };
    assert_eq!(
        refusals,
        [None, Some(&unknown), Some(&Refusal::TooLong), None]
    );
    let requests = &engine.requests()[before..];
    assert_eq!(requests.len(), 1);
    assert_eq!(histories(&requests[0]).len(), 2);
    // Without an accepted row there is no call.
    let computed = client
        .predict(&model, &sequences[1..3], &options, CALL)
        .await
        .unwrap();
    assert!(computed.results.iter().all(Result::is_err));
    assert_eq!(engine.requests().len(), before + 1);
}

#[tokio::test]
async fn codes_name_items_without_item_table() {
    let engine = network_engine();
    let client = client(&engine).await;
    let mut model = coded(Some(PredictOutput::Logits));
    model.has_item_table = false;
    model.returns_items = false;
    let sequences = [with_options(&["12", "012", "160"], &["7", "160", "159"])];
    let computed = client
        .predict(&model, &sequences, &PREDICT, CALL)
        .await
        .unwrap();
    let ranking = computed.results[0].as_ref().unwrap();
    assert_eq!(
        ranking.counts,
        EventCounts {
            n_used: 1,
            n_unknown: 2
        }
    );
    assert_eq!(ranking.item_ids.len(), 3);
    assert_eq!(
        (ranking.item_ids[2].as_str(), ranking.scores[2]),
        ("160", None)
    );
    // Catalog items cannot be returned. The API refuses such requests.
    let error = client
        .predict(&model, &[sequence("s", &[])], &PREDICT, CALL)
        .await
        .unwrap_err();
    assert!(
        error.log_text().contains("no item table"),
        "{}",
        error.log_text()
    );
}

#[tokio::test]
async fn invalid_logits_are_internal_errors() {
    let damages: [fn(&mut TensorsBuilder); 4] = [
        |_| {},
        |tensors| tensors.push("logits", &[1, 159], [0.0_f32; 159]),
        |tensors| tensors.push("logits", &[2, 160], [0.0_f32; 320]),
        |tensors| tensors.push("logits", &[1, 160], [f32::NAN; 160]),
    ];
    for damage in damages {
        let engine = FakeEngine::start(move |request| Reply::Now(Ok(response(request, damage))));
        let client = client(&engine).await;
        let model = coded(Some(PredictOutput::Logits));
        let error = client
            .predict(&model, &[sequence("s", &[])], &PREDICT, CALL)
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::Internal);
        assert!(
            error.log_text().contains("invalid result"),
            "{}",
            error.log_text()
        );
    }
}

#[tokio::test]
async fn top_k_names_items_by_their_lines() {
    let engine = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            tensors.push("items", &[1, 3], [2_i64, 0, 149]);
            tensors.push(SCORES, &[1, 3], [-0.5_f32, -1.0, -2.0]);
        })))
    });
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::TopK));
    let sequences = [sequence("s", &["item-000"])];
    let rank = async |options: PredictOptions| {
        let computed = client
            .predict(&model, &sequences, &options, CALL)
            .await
            .unwrap();
        computed.results[0].clone().unwrap()
    };
    let ranking = rank(PREDICT).await;
    assert_eq!(ranking.item_ids, ["item-002", "item-000", "item-149"]);
    assert_eq!(ranking.scores, [Some(-0.5), Some(-1.0), Some(-2.0)]);
    let ranking = rank(PredictOptions {
        top_k: Some(1),
        exclude_seen: true,
        ..PREDICT
    })
    .await;
    assert_eq!(ranking.item_ids, ["item-002"]);
    let ranking = rank(PredictOptions {
        exclude_seen: true,
        ..PREDICT
    })
    .await;
    assert_eq!(ranking.item_ids, ["item-002", "item-149"]);
    assert!(!model.ranks_options());
    let with_options = [with_options(&[], &["item-000"])];
    let error = client
        .predict(&model, &with_options, &PREDICT, CALL)
        .await
        .unwrap_err();
    assert!(error.log_text().contains("ranks no options"));
}

#[tokio::test]
async fn top_k_outside_of_catalog_is_an_internal_error() {
    for items in [[0_i64, 150], [-1, 0], [1, 1]] {
        let engine = FakeEngine::start(move |request| {
            Reply::Now(Ok(response(request, |tensors| {
                tensors.push("items", &[1, 2], items);
                tensors.push(SCORES, &[1, 2], [-0.5_f32, -1.0]);
            })))
        });
        let client = client(&engine).await;
        let model = coded(Some(PredictOutput::TopK));
        let error = client
            .predict(&model, &[sequence("s", &[])], &PREDICT, CALL)
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::Internal, "{items:?}");
    }
}

#[tokio::test]
async fn embedding_is_normalized_by_client() {
    let engine = network_engine();
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::Logits));
    let sequences = histories_of_items();
    for normalize in [false, true] {
        let options = EmbedOptions { normalize, ..EMBED };
        let computed = client
            .embed(&model, &sequences[..2], &options, CALL)
            .await
            .unwrap();
        let events = [
            Event {
                item_id: "item-003",
                event_type: None,
            },
            Event {
                item_id: "item-141",
                event_type: None,
            },
        ];
        let sequence = assay_engine::Sequence {
            events: &events,
            ..assay_engine::Sequence::default()
        };
        let options = assay_engine::EmbedOptions {
            pooling: assay_engine::Pooling::Last,
            normalize,
        };
        let expected = EMBEDDED
            .embed(&mut Scratch::default(), &sequence, &options, &|| false)
            .unwrap();
        let vector = computed.results[1].as_ref().unwrap();
        for (value, expected) in vector.embedding.iter().zip(&expected.vector) {
            assert!((value - expected).abs() < 1e-6);
        }
        assert_eq!(vector.embedding.len(), 16);
    }
    let zeros = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            tensors.push(EMBEDDING, &[1, 16], [0.0_f32; 16]);
        })))
    });
    let client = self::client(&zeros).await;
    let options = EmbedOptions {
        normalize: true,
        pooling: Pooling::Last,
        ..EMBED
    };
    let computed = client
        .embed(&model, &sequences[..1], &options, CALL)
        .await
        .unwrap();
    assert_eq!(computed.results[0].as_ref().unwrap().embedding, [0.0; 16]);
}

#[tokio::test]
async fn corrupt_item_table_is_an_internal_error() {
    let engine = network_engine();
    let model = coded(Some(PredictOutput::Logits));
    let files = |manifest: Vec<u8>, items: Option<&[u8]>| (manifest, items.map(<[u8]>::to_vec));
    for (what, (manifest, items)) in [
        ("items.ndjson is missing", files(manifest(ITEMS), None)),
        (
            "The SHA-256 of items.ndjson",
            files(manifest(ITEMS), Some(&vec![b' '; ITEMS.len()])),
        ),
        (
            "digest of another manifest",
            files(manifest(b""), Some(ITEMS)),
        ),
    ] {
        let (folder, artifacts) = artifacts().await;
        let object = |file: &str| format!("{}/{file}", model.package);
        artifacts
            .put(&object(MANIFEST_FILE), manifest.into())
            .await
            .unwrap();
        if let Some(items) = items {
            artifacts
                .put(&object(ITEMS_FILE), items.into())
                .await
                .unwrap();
        }
        let address = format!("default=http://{}", engine.address)
            .parse()
            .unwrap();
        let client = Engines::new(&[address], artifacts, 1);
        let error = client
            .predict(&model, &[sequence("s", &[])], &PREDICT, CALL)
            .await
            .unwrap_err();
        assert_eq!(error.code, Code::Internal, "{what}");
        assert!(error.log_text().contains(what), "{}", error.log_text());
        std::fs::remove_dir_all(folder).unwrap();
    }
    assert!(engine.requests().is_empty());
}
