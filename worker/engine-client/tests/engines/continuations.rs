//! Continuations by models that only predict, or that return them.

use assay_core::Code;
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{PredictOutput, Profile};
use assay_core::model::serving::{EventCounts, GenerateMode, GenerateOptions, Refusal};
use assay_engine::{Event, Scratch};
use assay_inference::ids;
use assay_inference::parameters::{integer, string};
use assay_inference::tensors::Tensors;

use crate::codes::{EMBEDDED, client, coded, histories_of_items, network_engine};
use crate::fake_engine::{CALL, FakeEngine, GENERATE, Reply, STRICT, model, response, sequence};

type Continuations = Vec<(Vec<String>, f64)>;

/// Returns the continuations that the embedded engine computes.
fn expected(sequence: &Sequence<'_>, options: &GenerateOptions) -> Continuations {
    let events: Vec<_> = sequence
        .events
        .iter()
        .map(|event| Event {
            item_id: &event.item_id,
            event_type: None,
        })
        .collect();
    let engine_sequence = assay_engine::Sequence {
        events: &events,
        ..assay_engine::Sequence::default()
    };
    let mode = match options.mode {
        GenerateMode::Beam => assay_engine::GenerateMode::Beam,
        GenerateMode::Sample => assay_engine::GenerateMode::Sample {
            temperature: options.temperature as f32,
            seed: options.seed,
        },
    };
    let engine_options = assay_engine::GenerateOptions {
        n_events: options.n_events as usize,
        n_continuations: options.n_continuations as usize,
        mode,
        exclude_seen: options.exclude_seen,
    };
    let mut scratch = Scratch::default();
    let id = &sequence.sequence_id;
    let generation = EMBEDDED
        .generate(&mut scratch, &engine_sequence, id, &engine_options, &|| {
            false
        })
        .unwrap();
    let continuations = generation.continuations.into_iter().map(|continuation| {
        let items = continuation.item_ids.iter().map(|&item| item.to_owned());
        (items.collect(), f64::from(continuation.score))
    });
    continuations.collect()
}

#[tokio::test]
async fn predictions_continue_as_embedded_engine_does() {
    let engine = network_engine();
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::Logits));
    let sequences = histories_of_items();
    for (mode, exclude_seen) in [
        (GenerateMode::Beam, false),
        (GenerateMode::Beam, true),
        (GenerateMode::Sample, false),
        (GenerateMode::Sample, true),
    ] {
        let options = GenerateOptions {
            mode,
            exclude_seen,
            n_events: 4,
            n_continuations: 3,
            temperature: 1.5,
            ..GENERATE
        };
        let computed = client
            .generate(&model, &sequences, &options, CALL)
            .await
            .unwrap();
        for (result, sequence) in computed.results.iter().zip(&sequences) {
            let found = &result.as_ref().unwrap().continuations;
            let expected = expected(sequence, &options);
            let items = |continuations: &Continuations| -> Vec<Vec<String>> {
                continuations
                    .iter()
                    .map(|(items, _)| items.clone())
                    .collect()
            };
            assert_eq!(
                items(found),
                items(&expected),
                "{mode} of {}",
                sequence.sequence_id
            );
            for ((_, score), (_, expected)) in found.iter().zip(&expected) {
                assert!((score - expected).abs() < 1e-4, "{score} {expected}");
            }
        }
        // The counts are those of the history, without generated events.
        let counts = computed.results[1].as_ref().unwrap().counts;
        assert_eq!(
            counts,
            EventCounts {
                n_used: 2,
                n_unknown: 1
            }
        );
    }
}

#[tokio::test]
async fn refused_history_is_not_continued() {
    let engine = network_engine();
    let client = client(&engine).await;
    let model = coded(Some(PredictOutput::Logits));
    let full: Vec<&'static str> = vec!["item-001"; 12];
    let sequences = [sequence("a", &["nothing"]), sequence("b", &full)];
    let options = GenerateOptions {
        history: STRICT,
        ..GENERATE
    };
    let computed = client
        .generate(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    let unknown = Refusal::UnknownItem { event: Some(0) };
    assert_eq!(computed.results[0], Err(unknown));
    // Generated events may exceed the context.
    let continuations = &computed.results[1].as_ref().unwrap().continuations;
    assert_eq!(continuations.len(), 2);
    assert!(continuations.iter().all(|(items, _)| items.len() == 2));
}

#[tokio::test]
async fn exhausted_catalog_ends_continuation() {
    // The engine ranks three items and leaves seen ones out.
    let engine = FakeEngine::start(|request| {
        let tensors = Tensors::from_request(request).unwrap();
        let items = tensors.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
        let [rows, _] = items.shape;
        let left: Vec<Vec<&str>> = (0..rows)
            .map(|row| {
                let all = ["a", "b", "c"].into_iter();
                all.filter(|item| !items.row(row).contains(item)).collect()
            })
            .collect();
        Reply::Now(Ok(response(request, |tensors| {
            let counts = left.iter().map(|left| left.len() as i64);
            tensors.push(ids::COUNTS, &[rows, 1], counts);
            tensors.push_rows::<&str, _>(
                ids::ITEM_IDS,
                3,
                left.iter().map(|left| left.iter().copied()),
            );
            let scores = [-1.0_f32, -2.0, -3.0];
            tensors.push(ids::SCORES, &[rows, 3], scores.repeat(rows));
        })))
    });
    let client = engine.client(1).await;
    let model = model(Profile::Ids {
        name: "tiger".into(),
        generates: false,
    });
    for mode in [GenerateMode::Beam, GenerateMode::Sample] {
        let options = GenerateOptions {
            mode,
            exclude_seen: true,
            n_events: 5,
            ..GENERATE
        };
        let sequences = [sequence("s", &["b"]), sequence("t", &["a", "b", "c"])];
        let computed = client
            .generate(&model, &sequences, &options, CALL)
            .await
            .unwrap();
        let continuations =
            |at: usize| computed.results[at].as_ref().unwrap().continuations.clone();
        assert_eq!(continuations(0).len(), 2, "{mode}");
        for (items, score) in continuations(0) {
            let mut items = items;
            items.sort();
            assert_eq!(
                (items, score < 0.0),
                (vec!["a".to_owned(), "c".to_owned()], true),
                "{mode}"
            );
        }
        assert!(
            continuations(1)
                .iter()
                .all(|(items, score)| items.is_empty() && *score == 0.0)
        );
    }
    let request = &engine.requests()[0];
    assert_eq!(
        string(&request.parameters, ids::OPERATION),
        Ok(Some("predict"))
    );
    assert_eq!(integer(&request.parameters, ids::TOP_K), Ok(Some(10)));
}

#[tokio::test]
async fn returned_continuations_are_named() {
    let engine = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            tensors.push("continuations", &[1, 3, 2], [0_i64, 1, 2, 2, 149, 0]);
            tensors.push(ids::SCORES, &[1, 3], [-1.0_f32, -2.0, -3.0]);
        })))
    });
    let client = client(&engine).await;
    let model = coded(None);
    let sequences = [sequence("s", &["item-000"])];
    let computed = client
        .generate(&model, &sequences, &GENERATE, CALL)
        .await
        .unwrap();
    let continuations = &computed.results[0].as_ref().unwrap().continuations;
    let expected = [
        (vec!["item-000", "item-001"], -1.0),
        (vec!["item-002", "item-002"], -2.0),
    ];
    assert_eq!(continuations.len(), 2);
    for ((items, score), (expected_items, expected_score)) in continuations.iter().zip(expected) {
        assert_eq!(
            (items.iter().map(String::as_str).collect(), *score),
            (expected_items, expected_score)
        );
    }
    // Another length than requested is no result.
    let options = GenerateOptions {
        n_events: 3,
        ..GENERATE
    };
    let error = client
        .generate(&model, &sequences, &options, CALL)
        .await
        .unwrap_err();
    assert_eq!(error.code, Code::Internal);
    // Samples need predictions.
    assert!(!model.samples());
    let options = GenerateOptions {
        mode: GenerateMode::Sample,
        ..GENERATE
    };
    let error = client
        .generate(&model, &sequences, &options, CALL)
        .await
        .unwrap_err();
    assert!(
        error.log_text().contains("does not predict"),
        "{}",
        error.log_text()
    );
}
