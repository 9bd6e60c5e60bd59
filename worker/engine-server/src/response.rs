//! A call's outputs.

use assay_inference::ids;
use assay_inference::tensors::{InvalidMessage, TensorsBuilder};
use assay_inference::v2::InferRequestedOutput;

use crate::call::Operation;
use crate::compute::{Output, RowResult};
use crate::texts::Texts;

/// Every operation's outputs.
const COMMON: [&str; 3] = [ids::N_USED, ids::N_UNKNOWN, ids::REFUSALS];

/// Checks that an operation has the requested outputs.
///
/// # Errors
/// If it lacks one.
pub fn check_requested(
    requested: &[InferRequestedOutput],
    operation: &Operation,
) -> Result<(), InvalidMessage> {
    let own: &[&str] = match operation {
        Operation::Predict { .. } => &[
            ids::ITEM_IDS,
            ids::SCORES,
            ids::COUNTS,
            ids::N_SCORED,
            ids::EXACT,
        ],
        Operation::Generate { .. } => &[
            ids::ITEM_IDS,
            ids::SCORES,
            ids::COUNTS,
            ids::CONTINUATION_LENGTHS,
        ],
        Operation::Embed(_) => &[ids::EMBEDDING],
    };
    let exists = |name: &str| own.contains(&name) || COMMON.contains(&name);
    match requested.iter().all(|output| exists(&output.name)) {
        true => Ok(()),
        false => Err(InvalidMessage::new(format!(
            "The call requests an output that the operation does not have. It has {}, {}.",
            own.join(", "),
            COMMON.join(", ")
        ))),
    }
}

/// Returns an operation's outputs, one row for each result. `dim` is the model's width.
pub fn outputs(
    operation: &Operation,
    dim: usize,
    results: &[&RowResult],
    requested: &[InferRequestedOutput],
) -> TensorsBuilder {
    let mut tensors = TensorsBuilder::default();
    match operation {
        Operation::Predict { .. } => push_rankings(&mut tensors, results),
        Operation::Generate { .. } => push_continuations(&mut tensors, results),
        Operation::Embed(_) => tensors.push_rows(
            ids::EMBEDDING,
            dim,
            results.iter().map(|result| match &result.output {
                Some(Output::Embedding(vector)) => vector.iter().copied(),
                _ => [].iter().copied(),
            }),
        ),
    }
    push_column(&mut tensors, ids::N_USED, results, |result| {
        integer(result.counts.n_used)
    });
    push_column(&mut tensors, ids::N_UNKNOWN, results, |result| {
        integer(result.counts.n_unknown)
    });
    push_column(&mut tensors, ids::REFUSALS, results, |result| {
        result.refusal
    });
    let names: Vec<&str> = requested
        .iter()
        .map(|output| output.name.as_str())
        .collect();
    tensors.retain(&names);
    tensors
}

fn push_rankings(tensors: &mut TensorsBuilder, results: &[&RowResult]) {
    let length =
        |result: &RowResult| item_ids(result).map_or(0, |item_ids| row_length(item_ids, 0));
    let lengths = results.iter().map(|result| length(result));
    let width = lengths.max().unwrap_or_default().max(1);
    tensors.push_rows(
        ids::ITEM_IDS,
        width,
        results.iter().map(|result| {
            let row = item_ids(result).and_then(|item_ids| item_ids.row(0));
            row.into_iter().flatten()
        }),
    );
    tensors.push_rows(
        ids::SCORES,
        width,
        results.iter().map(|result| scores(result).iter().copied()),
    );
    push_column(tensors, ids::COUNTS, results, |result| {
        integer(length(result))
    });
    push_column(tensors, ids::N_SCORED, results, |result| {
        integer(scores(result).len())
    });
    push_column(tensors, ids::EXACT, results, |result| {
        i64::from(matches!(
            result.output,
            Some(Output::Ranking { is_exact: true, .. })
        ))
    });
}

fn push_continuations(tensors: &mut TensorsBuilder, results: &[&RowResult]) {
    let continuations = results.iter().map(|result| scores(result).len());
    let n_continuations = continuations.max().unwrap_or_default().max(1);
    let length = |result: &RowResult, continuation| {
        item_ids(result).map_or(0, |item_ids| row_length(item_ids, continuation))
    };
    let each = || 0..n_continuations;
    let lengths = results
        .iter()
        .flat_map(|result| each().map(|continuation| length(result, continuation)));
    let n_events = lengths.max().unwrap_or_default().max(1);
    let items = results.iter().flat_map(|result| {
        each().flat_map(|continuation| {
            let row = item_ids(result).and_then(|item_ids| item_ids.row(continuation));
            let padding = std::iter::repeat("");
            row.into_iter().flatten().chain(padding).take(n_events)
        })
    });
    tensors.push(
        ids::ITEM_IDS,
        &[results.len(), n_continuations, n_events],
        items,
    );
    tensors.push_rows(
        ids::SCORES,
        n_continuations,
        results.iter().map(|result| scores(result).iter().copied()),
    );
    push_column(tensors, ids::COUNTS, results, |result| {
        integer(scores(result).len())
    });
    tensors.push_rows(
        ids::CONTINUATION_LENGTHS,
        n_continuations,
        results
            .iter()
            .map(|result| each().map(move |continuation| integer(length(result, continuation)))),
    );
}

fn push_column(
    tensors: &mut TensorsBuilder,
    name: &str,
    results: &[&RowResult],
    value: impl Fn(&RowResult) -> i64,
) {
    tensors.push_rows(name, 1, results.iter().map(|result| [value(result)]));
}

fn item_ids(result: &RowResult) -> Option<&Texts> {
    match &result.output {
        Some(Output::Ranking { item_ids, .. } | Output::Continuations { item_ids, .. }) => {
            Some(item_ids)
        }
        _ => None,
    }
}

fn scores(result: &RowResult) -> &[f32] {
    match &result.output {
        Some(Output::Ranking { scores, .. } | Output::Continuations { scores, .. }) => scores,
        _ => &[],
    }
}

fn row_length(texts: &Texts, row: usize) -> usize {
    texts.row(row).map_or(0, |texts| texts.len())
}

fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
