//! Requests and results of the profile `ids`.

use assay_core::Code;
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::Profile;
use assay_core::model::serving::{
    EmbedOptions, EventCounts, GenerateMode, GenerateOptions, PredictOptions, Refusal,
};
use assay_inference::ids;
use assay_inference::parameters::{boolean, integer, string};
use assay_inference::tensors::{Tensors, TensorsBuilder};
use assay_inference::v2::{InferTensorContents, ModelInferRequest, ModelInferResponse};

use crate::fake_engine::{
    CALL, EMBED, FakeEngine, GENERATE, PREDICT, Reply, STRICT, external, model, response, sequence,
    with_options,
};

fn column(tensors: &mut TensorsBuilder, name: &str, values: &[i64]) {
    tensors.push(name, &[values.len(), 1], values.iter().copied());
}

/// Returns the outputs that the embedded engine adds to those of every operation.
fn counts(tensors: &mut TensorsBuilder, n_used: &[i64], n_unknown: &[i64], refusals: &[i64]) {
    column(tensors, ids::N_USED, n_used);
    column(tensors, ids::N_UNKNOWN, n_unknown);
    column(tensors, ids::REFUSALS, refusals);
}

/// Moves the outputs of a response from raw to typed form.
fn typed(mut response: ModelInferResponse) -> ModelInferResponse {
    let raw = std::mem::take(&mut response.raw_output_contents);
    for (output, raw) in response.outputs.iter_mut().zip(raw) {
        let mut contents = InferTensorContents::default();
        match output.datatype.as_str() {
            "INT64" => {
                let (numbers, _) = raw.as_chunks();
                let numbers = numbers.iter().map(|bytes| i64::from_le_bytes(*bytes));
                contents.int64_contents = numbers.collect();
            }
            "FP32" => {
                let (numbers, _) = raw.as_chunks();
                let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
                contents.fp32_contents = numbers.collect();
            }
            _ => {
                let mut rest = &raw[..];
                while let Some((length, after)) = rest.split_first_chunk() {
                    let (element, after) = after.split_at(u32::from_le_bytes(*length) as usize);
                    contents.bytes_contents.push(element.to_vec().into());
                    rest = after;
                }
            }
        }
        output.contents = Some(contents);
    }
    response
}

/// A valid result of `predict` for two rows, the second with options.
fn rankings(request: &ModelInferRequest) -> ModelInferResponse {
    response(request, |tensors| {
        let items = ["ramen", "curry", "", "salad", "ramen", "haggis"];
        tensors.push(ids::ITEM_IDS, &[2, 3], items);
        tensors.push(
            ids::SCORES,
            &[2, 3],
            [-0.5_f32, -1.5, 0.0, -0.25, -2.0, 0.0],
        );
        column(tensors, ids::COUNTS, &[2, 3]);
        column(tensors, ids::N_SCORED, &[2, 2]);
        column(tensors, ids::EXACT, &[0, 1]);
        counts(tensors, &[2, 0], &[1, 0], &[0, 0]);
    })
}

fn two_sequences() -> [Sequence<'static>; 2] {
    [
        sequence("p7", &["ramen", "x", "curry"]),
        with_options(&[], &["haggis", "ramen", "salad"]),
    ]
}

#[tokio::test]
async fn rankings_are_read_in_both_forms() {
    for is_typed in [false, true] {
        let engine = FakeEngine::start(move |request| {
            let raw = rankings(request);
            Reply::Now(Ok(if is_typed { typed(raw) } else { raw }))
        });
        let client = engine.client(1).await;
        let model = model(Profile::Embedded);
        let computed = client
            .predict(&model, &two_sequences(), &PREDICT, CALL)
            .await;
        let [first, second] = computed.unwrap().results.try_into().unwrap();
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.item_ids, ["ramen", "curry"]);
        assert_eq!(first.scores, [Some(-0.5), Some(-1.5)]);
        assert_eq!((first.is_exact, second.is_exact), (Some(false), Some(true)));
        let counts = EventCounts {
            n_used: 2,
            n_unknown: 1,
        };
        assert_eq!(first.counts, counts);
        assert_eq!(second.item_ids, ["salad", "ramen", "haggis"]);
        assert_eq!(second.scores, [Some(-0.25), Some(-2.0), None]);
    }
}

#[tokio::test]
async fn request_has_all_tensors_and_parameters() {
    let engine = FakeEngine::start(|request| Reply::Now(Ok(rankings(request))));
    let client = engine.client(1).await;
    let model = model(Profile::Embedded);
    let mut sequences = two_sequences();
    sequences[0].events[1].r#type = Some("buy".into());
    let options = PredictOptions {
        top_k: Some(3),
        exclude_seen: true,
        ..PREDICT
    };
    client
        .predict(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    let [request] = engine.requests().try_into().unwrap();
    assert_eq!(request.model_name, model.package);
    assert_eq!(request.model_version, "3");
    let tensors = Tensors::from_request(&request).unwrap().with_rows(2);
    let items = tensors.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
    assert_eq!(
        (items.row(0), items.row(1)),
        (&["ramen", "x", "curry"][..], &["", "", ""][..])
    );
    let types = tensors.read_required::<&str, 2>(ids::TYPES).unwrap();
    assert_eq!(types.row(0), ["", "buy", ""]);
    let lengths = tensors.read_required::<i64, 2>(ids::LENGTHS).unwrap();
    assert_eq!((lengths.shape, lengths.elements), ([2, 1], vec![3, 0]));
    let options = tensors.read_required::<&str, 2>(ids::OPTIONS).unwrap();
    assert_eq!(options.row(1), ["haggis", "ramen", "salad"]);
    let counts = tensors.read_required::<i64, 2>(ids::OPTION_COUNTS).unwrap();
    assert_eq!(counts.elements, [ids::NO_OPTIONS, 3]);
    let parameters = &request.parameters;
    assert_eq!(string(parameters, ids::OPERATION), Ok(Some("predict")));
    assert_eq!(string(parameters, ids::ON_LONG), Ok(Some("truncate")));
    assert_eq!(string(parameters, ids::ON_UNKNOWN), Ok(Some("skip")));
    assert_eq!(integer(parameters, ids::TOP_K), Ok(Some(3)));
    assert_eq!(boolean(parameters, ids::EXCLUDE_SEEN), Ok(Some(true)));
}

type Outputs = fn(&mut TensorsBuilder);

/// Outputs that are no result for two rows.
const DAMAGES: &[(&str, Outputs)] = &[
    ("no tensors", |_| {}),
    ("too few rows", |tensors| {
        tensors.push(ids::ITEM_IDS, &[1, 2], ["ramen", "curry"]);
        tensors.push(ids::SCORES, &[1, 2], [-0.5_f32, -1.5]);
    }),
    ("too many rows", |tensors| {
        tensors.push(ids::ITEM_IDS, &[3, 1], ["ramen", "salad", "curry"]);
        tensors.push(ids::SCORES, &[3, 1], [-0.5_f32, -0.5, -0.5]);
    }),
    ("no batch dimension", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2], ["ramen", "salad"]);
        tensors.push(ids::SCORES, &[2], [-0.5_f32, -0.5]);
    }),
    ("different shapes", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2, 1], ["ramen", "salad"]);
        tensors.push(ids::SCORES, &[2, 2], [-0.5_f32; 4]);
    }),
    ("scores of another type", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2, 1], ["ramen", "salad"]);
        tensors.push(ids::SCORES, &[2, 1], [-0.5_f64; 2]);
    }),
    ("NaN", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2, 1], ["ramen", "salad"]);
        tensors.push(ids::SCORES, &[2, 1], [-0.5, f32::NAN]);
    }),
    ("infinity", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2, 1], ["ramen", "salad"]);
        tensors.push(ids::SCORES, &[2, 1], [f32::NEG_INFINITY, -0.5]);
    }),
    ("ascending scores", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(
            ids::SCORES,
            &[2, 3],
            [-3.0_f32, -2.0, -1.0, -1.0, -2.0, -3.0],
        );
    }),
    // The empty result of an adaptive batcher.
    ("empty rows", |tensors| {
        tensors.push::<&str>(ids::ITEM_IDS, &[2, 0], []);
        tensors.push::<f32>(ids::SCORES, &[2, 0], []);
    }),
    ("an option is missing", |tensors| {
        tensors.push(ids::ITEM_IDS, &[2, 2], ["a", "b", "salad", "ramen"]);
        tensors.push(ids::SCORES, &[2, 2], [-1.0_f32; 4]);
    }),
    ("another row's options", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "pizza", "soup", "rice"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
    }),
    ("a repeated item", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "a", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
    }),
    ("an empty item", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "", "b", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
    }),
    ("wrong counts", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
        column(tensors, ids::COUNTS, &[4, 3]);
    }),
    ("negative counts", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
        column(tensors, ids::N_UNKNOWN, &[i64::MIN, 0]);
    }),
    ("more events than sent", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
        column(tensors, ids::N_USED, &[3, 1]);
    }),
    ("two values of `exact` in a row", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
        tensors.push(ids::EXACT, &[2, 2], [1_i64; 4]);
    }),
    ("a refusal that was not requested", |tensors| {
        tensors.push(
            ids::ITEM_IDS,
            &[2, 3],
            ["a", "b", "c", "salad", "ramen", "haggis"],
        );
        tensors.push(ids::SCORES, &[2, 3], [-1.0_f32; 6]);
        column(tensors, ids::REFUSALS, &[ids::TOO_LONG, 0]);
    }),
];

#[tokio::test]
async fn invalid_results_are_internal_errors() {
    for (damage, outputs) in DAMAGES {
        let engine = FakeEngine::start(move |request| Reply::Now(Ok(response(request, outputs))));
        let client = engine.client(1).await;
        let computed = client
            .predict(&external(), &two_sequences(), &PREDICT, CALL)
            .await;
        let error = computed.expect_err(damage);
        assert_eq!(error.code, Code::Internal, "{damage}");
        // The cause is logged, and items are personal data.
        let text = error.log_text();
        for item in ["ramen", "salad", "pizza"] {
            assert!(!text.contains(item), "{damage}: {text}");
        }
        assert!(
            text.contains("engine default: invalid result"),
            "{damage}: {text}"
        );
    }
}

#[tokio::test]
async fn responses_of_other_calls_are_refused() {
    let damages: [fn(&mut ModelInferResponse); 2] = [
        |response| response.id.push('0'),
        |response| response.model_version.push('0'),
    ];
    for damage in damages {
        let engine = FakeEngine::start(move |request| {
            let mut response = rankings(request);
            damage(&mut response);
            Reply::Now(Ok(response))
        });
        let client = engine.client(1).await;
        let computed = client
            .predict(&external(), &two_sequences(), &PREDICT, CALL)
            .await;
        assert_eq!(computed.unwrap_err().code, Code::Internal);
    }
}

#[tokio::test]
async fn embedded_engine_must_return_all_outputs() {
    for left_out in [
        ids::COUNTS,
        ids::N_SCORED,
        ids::N_USED,
        ids::N_UNKNOWN,
        ids::REFUSALS,
    ] {
        let engine = FakeEngine::start(move |request| {
            let mut response = rankings(request);
            let at = response
                .outputs
                .iter()
                .position(|output| output.name == left_out);
            response.outputs.remove(at.unwrap());
            response.raw_output_contents.remove(at.unwrap());
            Reply::Now(Ok(response))
        });
        let client = engine.client(1).await;
        let model = model(Profile::Embedded);
        let error = client
            .predict(&model, &two_sequences(), &PREDICT, CALL)
            .await
            .unwrap_err();
        assert!(error.log_text().contains(left_out), "{}", error.log_text());
    }
}

#[tokio::test]
async fn external_engine_returns_required_outputs_only() {
    let engine = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            let items: Vec<String> = (0..24).map(|n| format!("i{n}")).collect();
            tensors.push(ids::ITEM_IDS, &[2, 12], items.iter().map(String::as_str));
            tensors.push(ids::SCORES, &[2, 12], [-1.0_f32; 24]);
        })))
    });
    let client = engine.client(1).await;
    let sequences = [sequence("a", &["x"; 6]), sequence("b", &[])];
    let computed = client
        .predict(&external(), &sequences, &PREDICT, CALL)
        .await
        .unwrap();
    let [first, second] = computed.results.try_into().unwrap();
    let first = first.unwrap();
    assert_eq!(first.item_ids.len(), 10, "cut to the default");
    assert_eq!(first.is_exact, None);
    assert_eq!(
        first.counts,
        EventCounts {
            n_used: 4,
            n_unknown: 0
        }
    );
    assert_eq!(
        second.unwrap().counts,
        EventCounts {
            n_used: 0,
            n_unknown: 0
        }
    );
    let [request] = engine.requests().try_into().unwrap();
    assert_eq!(request.model_name, "tiger");
    assert_eq!(integer(&request.parameters, ids::TOP_K), Ok(Some(10)));
}

#[tokio::test]
async fn refused_rows_have_their_reason() {
    let engine = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            tensors.push(ids::ITEM_IDS, &[3, 1], ["", "", "a"]);
            tensors.push(ids::SCORES, &[3, 1], [0.0_f32, 0.0, -1.0]);
            column(tensors, ids::COUNTS, &[0, 0, 1]);
            column(tensors, ids::N_SCORED, &[0, 0, 1]);
            counts(tensors, &[0, 0, 1], &[0, 0, 0], &[ids::TOO_LONG, 2, 0]);
        })))
    });
    let client = engine.client(1).await;
    let sequences = [
        sequence("a", &["x"; 5]),
        sequence("b", &["x", "unknown"]),
        sequence("c", &["x"]),
    ];
    let options = PredictOptions {
        history: STRICT,
        top_k: Some(1),
        ..PREDICT
    };
    let model = model(Profile::Embedded);
    let computed = client
        .predict(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    let [first, second, third] = computed.results.try_into().unwrap();
    assert_eq!(first, Err(Refusal::TooLong));
    assert_eq!(second, Err(Refusal::UnknownItem { event: Some(1) }));
    assert_eq!(third.unwrap().item_ids, ["a"]);
}

#[tokio::test]
async fn continuations_and_vectors_are_read() {
    let engine = FakeEngine::start(|request| {
        let is_embed = string(&request.parameters, ids::OPERATION) == Ok(Some("embed"));
        Reply::Now(Ok(response(request, |tensors| {
            if is_embed {
                tensors.push(ids::EMBEDDING, &[1, 3], [1.0_f32, -2.0, 3.0]);
            } else {
                tensors.push(ids::ITEM_IDS, &[1, 2, 2], ["a", "b", "c", ""]);
                tensors.push(ids::SCORES, &[1, 2], [-1.0_f32, -2.0]);
                column(tensors, ids::COUNTS, &[2]);
                tensors.push(ids::CONTINUATION_LENGTHS, &[1, 2], [2_i64, 1]);
            }
            counts(tensors, &[1], &[0], &[0]);
        })))
    });
    let client = engine.client(1).await;
    let (model, sequences) = (model(Profile::Embedded), [sequence("p7", &["x"])]);
    let options = GenerateOptions {
        mode: GenerateMode::Sample,
        temperature: 0.5,
        seed: u64::MAX,
        ..GENERATE
    };
    let computed = client
        .generate(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    let continuations = computed.results[0].clone().unwrap().continuations;
    let expected = [(vec!["a", "b"], -1.0), (vec!["c"], -2.0)];
    for ((items, score), (expected_items, expected_score)) in continuations.iter().zip(&expected) {
        assert_eq!(
            (items, score),
            (
                &expected_items.iter().map(|&item| item.to_owned()).collect(),
                expected_score
            )
        );
    }
    assert_eq!(continuations.len(), 2);
    let options = EmbedOptions {
        normalize: true,
        ..EMBED
    };
    let computed = client
        .embed(&model, &sequences, &options, CALL)
        .await
        .unwrap();
    assert_eq!(
        computed.results[0].clone().unwrap().embedding,
        [1.0, -2.0, 3.0]
    );
    let [generate, embed] = engine.requests().try_into().unwrap();
    let parameters = &generate.parameters;
    assert_eq!(
        string(parameters, ids::SEED),
        Ok(Some("18446744073709551615"))
    );
    assert_eq!(string(parameters, ids::MODE), Ok(Some("sample")));
    assert_eq!(integer(parameters, ids::N_EVENTS), Ok(Some(2)));
    assert_eq!(integer(parameters, ids::N_CONTINUATIONS), Ok(Some(2)));
    let tensors = Tensors::from_request(&generate).unwrap();
    let temperatures = tensors.read_required::<f64, 2>(ids::TEMPERATURE).unwrap();
    assert_eq!(temperatures.elements, [0.5]);
    let sequence_ids = tensors.read_required::<&str, 2>(ids::SEQUENCE_IDS).unwrap();
    assert_eq!(sequence_ids.elements, ["p7"]);
    assert_eq!(string(&embed.parameters, ids::POOLING), Ok(Some("last")));
    assert_eq!(boolean(&embed.parameters, ids::NORMALIZE), Ok(Some(true)));
}

#[tokio::test]
async fn invalid_continuations_and_vectors_are_internal_errors() {
    let damages: [fn(&mut TensorsBuilder); 6] = [
        |tensors| {
            tensors.push(ids::ITEM_IDS, &[1, 1, 3], ["a", "b", "c"]);
            tensors.push(ids::SCORES, &[1, 1], [-1.0_f32]);
        },
        |tensors| {
            tensors.push(ids::ITEM_IDS, &[1, 1, 2], ["a", ""]);
            tensors.push(ids::SCORES, &[1, 1], [-1.0_f32]);
        },
        |tensors| {
            tensors.push::<&str>(ids::ITEM_IDS, &[1, 0, 0], []);
            tensors.push::<f32>(ids::SCORES, &[1, 0], []);
        },
        |tensors| {
            tensors.push(ids::ITEM_IDS, &[1, 1, 1], ["a"]);
            tensors.push(ids::SCORES, &[1, 1], [f32::NAN]);
        },
        |tensors| tensors.push(ids::EMBEDDING, &[1, 2], [1.0_f32, 2.0]),
        |tensors| tensors.push(ids::EMBEDDING, &[1, 3], [1.0, f32::INFINITY, 0.0]),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let engine = FakeEngine::start(move |request| Reply::Now(Ok(response(request, damage))));
        let client = engine.client(1).await;
        let (model, sequences) = (external(), [sequence("p7", &["x"])]);
        let error = if at < 4 {
            client
                .generate(&model, &sequences, &GENERATE, CALL)
                .await
                .unwrap_err()
        } else {
            client
                .embed(&model, &sequences, &EMBED, CALL)
                .await
                .unwrap_err()
        };
        assert_eq!(error.code, Code::Internal, "{at}");
        assert!(
            error.log_text().contains("invalid result"),
            "{at}: {}",
            error.log_text()
        );
    }
}

#[tokio::test]
async fn many_sequences_are_sent_in_several_calls() {
    let engine = FakeEngine::start(|request| {
        Reply::Now(Ok(response(request, |tensors| {
            let given = Tensors::from_request(request).unwrap();
            let items = given.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
            let rows = items.shape[0];
            let first = (0..rows).map(|row| items.row(row)[0]);
            tensors.push(ids::ITEM_IDS, &[rows, 1], first);
            tensors.push(ids::SCORES, &[rows, 1], vec![-1.0_f32; rows]);
        })))
    });
    let client = engine.client(1).await;
    let names: Vec<&'static str> = (0..150).map(|n| &*format!("item-{n}").leak()).collect();
    let sequences: Vec<_> = names.iter().map(|&name| sequence("s", &[name])).collect();
    let options = PredictOptions {
        top_k: Some(1),
        ..PREDICT
    };
    let computed = client
        .predict(&external(), &sequences, &options, CALL)
        .await
        .unwrap();
    let first: Vec<_> = computed
        .results
        .into_iter()
        .map(|result| result.unwrap().item_ids.concat())
        .collect();
    assert_eq!(first, names);
    assert_eq!(engine.requests().len(), 3);
    let none = client
        .predict(&external(), &[], &options, CALL)
        .await
        .unwrap();
    assert!(none.results.is_empty() && engine.requests().len() == 3);
}
