use assay_engine::{Counts, EmbedOptions, PredictOptions};
use assay_inference::tensors::Tensors;
use assay_inference::v2::ModelInferResponse;

use super::*;

fn texts(rows: &[&[&str]]) -> Texts {
    let mut texts = Texts::default();
    for row in rows {
        texts.push_row(row.iter().copied());
    }
    texts
}

fn row(refusal: i64, output: Option<Output>) -> RowResult {
    RowResult {
        refusal,
        counts: Counts {
            n_used: 3,
            n_unknown: 1,
        },
        output,
    }
}

fn response(
    operation: &Operation,
    results: &[RowResult],
    requested: &[&str],
) -> ModelInferResponse {
    let results: Vec<&RowResult> = results.iter().collect();
    let requested = requested.iter().map(|name| InferRequestedOutput {
        name: (*name).to_owned(),
        ..InferRequestedOutput::default()
    });
    let requested: Vec<_> = requested.collect();
    check_requested(&requested, operation).unwrap();
    let mut response = ModelInferResponse::default();
    outputs(operation, 2, &results, &requested).into_response(&mut response);
    response
}

fn predict() -> Operation {
    Operation::Predict {
        options: Texts::default(),
        parameters: PredictOptions::default(),
    }
}

#[test]
fn rankings_are_padded() {
    let ranking = |item_ids: &[&str], scores: &[f32]| Output::Ranking {
        item_ids: texts(&[item_ids]),
        scores: scores.to_vec(),
        is_exact: scores.len() == 2,
    };
    let results = [
        row(0, Some(ranking(&["a", "b", "x"], &[-1.0, -2.0]))),
        row(ids::TOO_LONG, None),
        row(0, Some(ranking(&["c"], &[-3.0]))),
    ];
    let response = response(&predict(), &results, &[]);
    let tensors = Tensors::from_response(&response).unwrap().with_rows(3);
    let item_ids = tensors.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
    assert_eq!(item_ids.shape, [3, 3]);
    assert_eq!(item_ids.elements, ["a", "b", "x", "", "", "", "c", "", ""]);
    let scores = tensors.read_required::<f32, 2>(ids::SCORES).unwrap();
    assert_eq!(
        scores.elements,
        [-1.0, -2.0, 0.0, 0.0, 0.0, 0.0, -3.0, 0.0, 0.0]
    );
    let column = |name: &str| tensors.read_required::<i64, 2>(name).unwrap().elements;
    assert_eq!(column(ids::COUNTS), [3, 0, 1]);
    assert_eq!(column(ids::N_SCORED), [2, 0, 1]);
    assert_eq!(column(ids::EXACT), [1, 0, 0]);
    assert_eq!(column(ids::REFUSALS), [0, -1, 0]);
    assert_eq!(
        (column(ids::N_USED), column(ids::N_UNKNOWN)),
        (vec![3; 3], vec![1; 3])
    );
}

#[test]
fn continuations_are_padded() {
    let operation = Operation::Generate {
        sequence_ids: Texts::default(),
        parameters: Vec::new(),
    };
    let continuations = Output::Continuations {
        item_ids: texts(&[&["a", "b"], &["c"]]),
        scores: vec![-1.0, -2.0],
    };
    let response = response(
        &operation,
        &[row(4, None), row(0, Some(continuations))],
        &[],
    );
    let tensors = Tensors::from_response(&response).unwrap().with_rows(2);
    let item_ids = tensors.read_required::<&str, 3>(ids::ITEM_IDS).unwrap();
    assert_eq!(item_ids.shape, [2, 2, 2]);
    assert_eq!(item_ids.elements, ["", "", "", "", "a", "b", "c", ""]);
    let scores = tensors.read_required::<f32, 2>(ids::SCORES).unwrap();
    assert_eq!(scores.elements, [0.0, 0.0, -1.0, -2.0]);
    let column = |name: &str| tensors.read_required::<i64, 2>(name).unwrap().elements;
    assert_eq!(column(ids::COUNTS), [0, 2]);
    assert_eq!(column(ids::CONTINUATION_LENGTHS), [0, 0, 2, 1]);
    assert_eq!(column(ids::REFUSALS), [4, 0]);
}

#[test]
fn only_requested_outputs_are_returned() {
    let operation = Operation::Embed(EmbedOptions {
        pooling: assay_engine::Pooling::Last,
        normalize: true,
    });
    let results = [
        row(0, Some(Output::Embedding(vec![0.6, 0.8]))),
        row(1, None),
    ];
    let all = response(&operation, &results, &[]);
    let names: Vec<&str> = all
        .outputs
        .iter()
        .map(|output| output.name.as_str())
        .collect();
    assert_eq!(
        names,
        [ids::EMBEDDING, ids::N_USED, ids::N_UNKNOWN, ids::REFUSALS]
    );
    let one = response(&operation, &results, &[ids::EMBEDDING]);
    let tensors = Tensors::from_response(&one).unwrap();
    assert_eq!(tensors.names().collect::<Vec<_>>(), [ids::EMBEDDING]);
    let embedding = tensors.read_required::<f32, 2>(ids::EMBEDDING).unwrap();
    assert_eq!(
        (embedding.shape, embedding.elements),
        ([2, 2], vec![0.6, 0.8, 0.0, 0.0])
    );
    let unknown = InferRequestedOutput {
        name: ids::SCORES.to_owned(),
        ..InferRequestedOutput::default()
    };
    assert!(check_requested(&[unknown], &operation).is_err());
}

#[test]
fn empty_rankings_have_one_column() {
    let empty = Output::Ranking {
        item_ids: texts(&[&[]]),
        scores: Vec::new(),
        is_exact: true,
    };
    let response = response(&predict(), &[row(0, Some(empty))], &[ids::ITEM_IDS]);
    let tensors = Tensors::from_response(&response).unwrap();
    let item_ids = tensors.read_required::<&str, 2>(ids::ITEM_IDS).unwrap();
    assert_eq!((item_ids.shape, item_ids.elements), ([1, 1], vec![""]));
}
