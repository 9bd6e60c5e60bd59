//! The `ids` profile's results.

use std::collections::HashSet;

use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{Profile, ServedModel};
use assay_core::model::serving::{
    Continuations, EmbedOptions, EventCounts, GenerateOptions, HistoryOptions, OnLong, OnUnknown,
    PredictOptions, Ranking, Refusal, TOP_K, Vector,
};
use assay_inference::ids;
use assay_inference::tensors::Tensors;
use assay_inference::v2::ModelInferResponse;

use crate::checks::{Rows, check_dimensions, check_finite, check_order, invalid};
use crate::failure::Failure;

/// Reads the `predict` response.
pub fn read_rankings(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &PredictOptions,
    response: &ModelInferResponse,
) -> Result<Rows<Ranking>, Failure> {
    let response = Response::read(model, sequences, &options.history, response)?;
    let items = response.tensors.read_required::<&str, 2>(ids::ITEM_IDS)?;
    let scores = response.tensors.read_required::<f32, 2>(ids::SCORES)?;
    if items.shape != scores.shape {
        return Err(invalid("`item_ids` and `scores` have different shapes"));
    }
    let n_returned = response.column(ids::COUNTS, |_| items.shape[1] as i64)?;
    let n_scored = response.column(ids::N_SCORED, |row| {
        n_returned.get(row).copied().unwrap_or(0)
    })?;
    // A previous release's engine does not return it.
    let exact = response.tensors.read::<i64, 2>(ids::EXACT)?;
    if exact.as_ref().is_some_and(|exact| exact.shape[1] != 1) {
        return Err(invalid("`exact` has more than one value per row"));
    }
    response.rows(|row, sequence, counts| {
        let n = size(n_returned[row], items.shape[1], ids::COUNTS)?;
        let n_scored = size(n_scored[row], n, ids::N_SCORED)?;
        let wanted = match &sequence.options {
            Some(given) => options
                .top_k
                .map_or(given.len(), |top_k| given.len().min(top_k as usize)),
            None => options.top_k.unwrap_or(TOP_K.0) as usize,
        };
        if sequence.options.is_some() && !options.exclude_seen && n < wanted {
            return Err(invalid("a row has fewer items than options"));
        }
        // Some models return a fixed item count.
        let (n, n_scored) = (n.min(wanted), n_scored.min(wanted));
        let items = &items.row(row)[..n];
        let scores = &scores.row(row)[..n_scored];
        check_items(items, sequence)?;
        check_order(scores)?;
        let unscored = std::iter::repeat_n(None, n - n_scored);
        Ok(Ranking {
            counts,
            item_ids: items.iter().map(|&item| item.to_owned()).collect(),
            scores: scores
                .iter()
                .map(|score| Some(f64::from(*score)))
                .chain(unscored)
                .collect(),
            is_exact: exact.as_ref().map(|exact| exact.elements[row] != 0),
        })
    })
}

/// Reads the `generate` response.
pub fn read_continuations(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &GenerateOptions,
    response: &ModelInferResponse,
) -> Result<Rows<Continuations>, Failure> {
    let response = Response::read(model, sequences, &options.history, response)?;
    let items = response.tensors.read_required::<&str, 3>(ids::ITEM_IDS)?;
    let scores = response.tensors.read_required::<f32, 2>(ids::SCORES)?;
    let [_, s, n] = items.shape;
    if scores.shape[1] != s {
        return Err(invalid("`item_ids` and `scores` have different shapes"));
    }
    let n_returned = response.column(ids::COUNTS, |_| s as i64)?;
    let lengths = response.tensors.read::<i64, 2>(ids::CONTINUATION_LENGTHS)?;
    if lengths.is_none() && model.profile == Profile::Embedded {
        return Err(invalid("`continuation_lengths` is missing"));
    }
    if lengths
        .as_ref()
        .is_some_and(|lengths| lengths.shape[1] != s)
    {
        return Err(invalid("`continuation_lengths` has another shape"));
    }
    response.rows(|row, _, counts| {
        let n_returned = size(n_returned[row], s, ids::COUNTS)?;
        if !(1..=options.n_continuations as usize).contains(&n_returned) {
            return Err(invalid("a row has a wrong number of continuations"));
        }
        let mut continuations = Vec::with_capacity(n_returned);
        let rows = items.row(row).chunks(n.max(1)).zip(scores.row(row));
        for (at, (items, score)) in rows.take(n_returned).enumerate() {
            let length = match &lengths {
                Some(lengths) => size(lengths.row(row)[at], n, ids::CONTINUATION_LENGTHS)?,
                None => n,
            };
            let items = &items[..length];
            if length > options.n_events as usize || items.contains(&"") || !score.is_finite() {
                return Err(invalid("a continuation has a wrong length, item or score"));
            }
            let items = items.iter().map(|&item| item.to_owned()).collect();
            continuations.push((items, f64::from(*score)));
        }
        if continuations.len() != n_returned {
            return Err(invalid("a continuation is missing"));
        }
        Ok(Continuations {
            counts,
            continuations,
        })
    })
}

/// Reads the `embed` response.
pub fn read_vectors(
    model: &ServedModel,
    sequences: &[Sequence<'_>],
    options: &EmbedOptions,
    response: &ModelInferResponse,
) -> Result<Rows<Vector>, Failure> {
    let response = Response::read(model, sequences, &options.history, response)?;
    let vectors = response.tensors.read_required::<f32, 2>(ids::EMBEDDING)?;
    check_dimensions(vectors.shape[1], model)?;
    response.rows(|row, _, counts| {
        let embedding = vectors.row(row).to_vec();
        check_finite(&embedding)?;
        Ok(Vector { counts, embedding })
    })
}

/// A response, and the outputs that all operations have.
struct Response<'r, 's> {
    model: &'s ServedModel,
    sequences: &'s [Sequence<'s>],
    tensors: Tensors<'r>,
    rows: Vec<Result<EventCounts, Refusal>>,
}

impl<'r, 's> Response<'r, 's> {
    fn read(
        model: &'s ServedModel,
        sequences: &'s [Sequence<'s>],
        options: &HistoryOptions,
        response: &'r ModelInferResponse,
    ) -> Result<Self, Failure> {
        let tensors = Tensors::from_response(response)?.with_rows(sequences.len());
        let mut response = Self {
            model,
            sequences,
            tensors,
            rows: Vec::new(),
        };
        let n_unknown = response.column(ids::N_UNKNOWN, |_| 0)?;
        let n_used = response.column(ids::N_USED, |row| {
            let n_unknown = n_unknown.get(row).copied().unwrap_or(0);
            let known = response.n_events(row).saturating_sub(n_unknown);
            known.min(i64::from(model.context_length))
        })?;
        let refusals = response.column(ids::REFUSALS, |_| ids::NOT_REFUSED)?;
        let rows = (0..sequences.len()).map(|row| {
            let n_events = response.n_events(row);
            match refusals[row] {
                ids::NOT_REFUSED => {}
                ids::TOO_LONG if options.on_long == OnLong::Refuse => {
                    return Ok(Err(Refusal::TooLong));
                }
                event
                    if options.on_unknown == OnUnknown::Refuse
                        && (1..=n_events).contains(&event) =>
                {
                    let event = u32::try_from(event - 1).ok();
                    return Ok(Err(Refusal::UnknownItem { event }));
                }
                _ => return Err(invalid("a row is refused without a reason")),
            }
            let (used, unknown) = (n_used[row], n_unknown[row]);
            let is_valid = used >= 0
                && unknown >= 0
                && used <= i64::from(model.context_length)
                && used.checked_add(unknown).is_some_and(|sum| sum <= n_events);
            let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
            if is_valid {
                Ok(Ok(EventCounts {
                    n_used: count(used),
                    n_unknown: count(unknown),
                }))
            } else {
                Err(invalid("a row has wrong numbers of events"))
            }
        });
        response.rows = rows.collect::<Result<_, _>>()?;
        Ok(response)
    }

    fn n_events(&self, row: usize) -> i64 {
        self.sequences
            .get(row)
            .map_or(0, |sequence| sequence.events.len() as i64)
    }

    /// Returns an output's values with one integer per row. External engines may leave it out.
    fn column(&self, name: &str, default: impl Fn(usize) -> i64) -> Result<Vec<i64>, Failure> {
        match self.tensors.read::<i64, 2>(name)? {
            Some(values) if values.shape[1] == 1 => Ok(values.elements),
            Some(_) => Err(invalid(&format!(
                "`{name}` has more than one value per row"
            ))),
            None if self.model.profile == Profile::Embedded => {
                Err(invalid(&format!("`{name}` is missing")))
            }
            None => Ok((0..self.sequences.len()).map(default).collect()),
        }
    }

    /// Reads each row that is not refused.
    fn rows<T>(
        self,
        read: impl Fn(usize, &Sequence<'_>, EventCounts) -> Result<T, Failure>,
    ) -> Result<Rows<T>, Failure> {
        let rows = self.rows.into_iter().zip(self.sequences).enumerate();
        rows.map(|(row, (counts, sequence))| match counts {
            Ok(counts) => read(row, sequence, counts).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        })
        .collect()
    }
}

/// Checks that a ranking's items are distinct, and are the sequence's options if it has any.
/// Another row's result does not pass for this one.
fn check_items(items: &[&str], sequence: &Sequence<'_>) -> Result<(), Failure> {
    let mut allowed: Option<HashSet<&str>> = sequence
        .options
        .as_ref()
        .map(|options| options.iter().map(AsRef::as_ref).collect());
    let mut seen = HashSet::new();
    for &item in items {
        let is_valid = match &mut allowed {
            Some(allowed) => allowed.remove(item),
            None => !item.is_empty() && seen.insert(item),
        };
        if !is_valid {
            return Err(invalid("a row has an item that is repeated or no option"));
        }
    }
    Ok(())
}

/// Returns an element count that the engine sent, which is at most `max`.
fn size(value: i64, max: usize, name: &str) -> Result<usize, Failure> {
    usize::try_from(value)
        .ok()
        .filter(|value| *value <= max)
        .ok_or_else(|| invalid(&format!("`{name}` has a value that is no size")))
}
