//! The operations for models whose engine reads codes, by the outputs that the engine returns.

use std::collections::HashSet;

use assay_core::model::error::Result;
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::PredictOutput;
use assay_core::model::serving::{
    Continuations, EmbedOptions, EventCounts, GenerateOptions, HistoryOptions, PredictOptions,
    Ranking, TOP_K, Vector,
};
use assay_inference::ids::{EMBEDDING, SCORES};
use assay_inference::parameters::Parameters;
use assay_inference::tensors::Tensors;

use crate::calls::Admitted;
use crate::checks::{Rows, check_dimensions, check_finite, check_order, invalid};
use crate::code_calls::{CodeCall, Codes, Row};
use crate::failure::Failure;
use crate::item_tables::Items;
use crate::logits::{Scores, Wanted, draw_from};

/// Output `INT64` [B, K]: the most probable items, as positions in `items.ndjson`.
pub const ITEMS: &str = "items";

/// Output `FP32` [B, V]: the logits for codes on the only level.
pub const LOGITS: &str = "logits";

/// Output `INT64` [B, S, N]: continuations, as positions in `items.ndjson`.
pub const CONTINUATIONS: &str = "continuations";

impl Codes<'_> {
    /// Ranks items for each sequence.
    pub async fn predict(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        options: &PredictOptions,
    ) -> Result<Rows<Ranking>> {
        match self.outputs.predict {
            Some(PredictOutput::Logits) => {
                if sequences.iter().any(|sequence| sequence.options.is_none()) {
                    self.items()?;
                }
                self.by_logits(admitted, sequences, &options.history, |row, scores| {
                    self.ranking(row, scores, options)
                })
                .await
            }
            Some(PredictOutput::TopK) => {
                if sequences.iter().any(|sequence| sequence.options.is_some()) {
                    return Err(self.not_offered("ranks no options"));
                }
                let items = self.items()?;
                let n = options.top_k.unwrap_or(TOP_K.0) as usize;
                let history = &options.history;
                self.by_top_k(admitted, sequences, history, |row, best| {
                    let mut best = named(items, row, best, options.exclude_seen)?;
                    best.truncate(n);
                    let (item_ids, scores) = best.into_iter().unzip();
                    let scores: Vec<f64> = scores;
                    Ok(Ranking {
                        counts: row.counts,
                        item_ids,
                        scores: scores.into_iter().map(Some).collect(),
                        is_exact: None,
                    })
                })
                .await
            }
            None => Err(self.not_offered("does not predict")),
        }
    }

    /// Returns each sequence's next items, as a continuation step needs them. Sequences' options
    /// are ignored. `wanted` is parallel to the sequences.
    pub async fn next_items(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        history: &HistoryOptions,
        exclude_seen: bool,
        wanted: &[Wanted<'_>],
    ) -> Result<Rows<(EventCounts, Vec<(String, f64)>)>> {
        let items = self.items()?;
        match self.outputs.predict {
            Some(PredictOutput::Logits) => {
                self.by_logits(admitted, sequences, history, |row, scores| {
                    let excluded = self.seen(row, exclude_seen);
                    let chosen = scores.choose(&items.table, &excluded, wanted[row.at])?;
                    let chosen = chosen.into_iter().filter_map(|(position, score)| {
                        Some((items.table.item_at(position)?.to_owned(), score))
                    });
                    Ok((row.counts, chosen.collect()))
                })
                .await
            }
            Some(PredictOutput::TopK) => {
                self.by_top_k(admitted, sequences, history, |row, best| {
                    let mut best = named(items, row, best, exclude_seen)?;
                    let chosen = match wanted[row.at] {
                        Wanted::Best(n) => {
                            best.truncate(n);
                            best
                        }
                        Wanted::Drawn {
                            temperature,
                            numbers,
                        } => draw_from(&best, temperature, numbers)?,
                    };
                    Ok((row.counts, chosen))
                })
                .await
            }
            None => Err(self.not_offered("does not predict")),
        }
    }

    /// Continues each sequence by the output `continuations`.
    pub async fn continuations(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        options: &GenerateOptions,
    ) -> Result<Rows<Continuations>> {
        let items = self.items()?;
        let (n, length) = (options.n_continuations as usize, options.n_events as usize);
        let read = |tensors: &Tensors<'_>, rows: &[Row<'_>]| {
            let continuations = tensors.read_required::<i64, 3>(CONTINUATIONS)?;
            let scores = tensors.read_required::<f32, 2>(SCORES)?;
            if scores.shape[1] != continuations.shape[1] {
                return Err(invalid(
                    "`continuations` and `scores` have different shapes",
                ));
            }
            if continuations.shape[1] < n || continuations.shape[2] != length {
                return Err(invalid("`continuations` has another shape than requested"));
            }
            let rows = rows.iter().enumerate().map(|(at, row)| {
                let scores = scores.row(at);
                check_order(scores)?;
                let named = continuations
                    .row(at)
                    .chunks(length.max(1))
                    .zip(scores)
                    .take(n);
                let named = named.map(|(positions, score)| {
                    let ids = positions.iter().map(|position| items.id(*position));
                    let ids = ids.map(|id| id.map(ToOwned::to_owned));
                    let ids = ids.collect::<Option<Vec<_>>>().ok_or_else(no_item)?;
                    Ok((ids, f64::from(*score)))
                });
                Ok(Continuations {
                    counts: row.counts,
                    continuations: named.collect::<Result<_, Failure>>()?,
                })
            });
            rows.collect()
        };
        let call = CodeCall {
            history: &options.history,
            parameters: Parameters::from([
                ("n_events".into(), i64::from(options.n_events).into()),
                (
                    "n_continuations".into(),
                    i64::from(options.n_continuations).into(),
                ),
            ]),
            outputs: &[CONTINUATIONS, SCORES],
            n_logits: 0,
        };
        self.infer(admitted, sequences, &call, read).await
    }

    /// Computes each sequence's vector.
    pub async fn embed(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        options: &EmbedOptions,
    ) -> Result<Rows<Vector>> {
        if !self.outputs.embedding {
            return Err(self.not_offered("does not embed"));
        }
        let read = |tensors: &Tensors<'_>, rows: &[Row<'_>]| {
            let vectors = tensors.read_required::<f32, 2>(EMBEDDING)?;
            check_dimensions(vectors.shape[1], self.model)?;
            let rows = rows.iter().enumerate().map(|(at, row)| {
                let mut embedding = vectors.row(at).to_vec();
                check_finite(&embedding)?;
                if options.normalize {
                    normalize(&mut embedding);
                }
                Ok(Vector {
                    counts: row.counts,
                    embedding,
                })
            });
            rows.collect()
        };
        let call = CodeCall {
            history: &options.history,
            parameters: Parameters::new(),
            outputs: &[EMBEDDING],
            n_logits: 0,
        };
        self.infer(admitted, sequences, &call, read).await
    }

    async fn by_logits<T>(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        history: &HistoryOptions,
        read_row: impl Fn(&Row<'_>, &Scores<'_>) -> Result<T, Failure>,
    ) -> Result<Rows<T>> {
        let &[n_codes] = self.level_sizes.as_slice() else {
            return Err(self.not_offered("returns logits, which needs a codebook of one level"));
        };
        let read = |tensors: &Tensors<'_>, rows: &[Row<'_>]| {
            let logits = tensors.read_required::<f32, 2>(LOGITS)?;
            if logits.shape[1] != n_codes {
                return Err(invalid("`logits` has another number of columns than codes"));
            }
            let rows = rows.iter().enumerate();
            rows.map(|(at, row)| read_row(row, &Scores::new(logits.row(at))?))
                .collect()
        };
        let call = CodeCall {
            history,
            parameters: Parameters::new(),
            outputs: &[LOGITS],
            n_logits: n_codes,
        };
        self.infer(admitted, sequences, &call, read).await
    }

    async fn by_top_k<T>(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        history: &HistoryOptions,
        read_row: impl Fn(&Row<'_>, &[(i64, f32)]) -> Result<T, Failure>,
    ) -> Result<Rows<T>> {
        let read = |tensors: &Tensors<'_>, rows: &[Row<'_>]| {
            let items = tensors.read_required::<i64, 2>(ITEMS)?;
            let scores = tensors.read_required::<f32, 2>(SCORES)?;
            if items.shape != scores.shape {
                return Err(invalid("`items` and `scores` have different shapes"));
            }
            let rows = rows.iter().enumerate().map(|(at, row)| {
                check_order(scores.row(at))?;
                let best = items.row(at).iter().copied();
                let best: Vec<_> = best.zip(scores.row(at).iter().copied()).collect();
                read_row(row, &best)
            });
            rows.collect()
        };
        let call = CodeCall {
            history,
            parameters: Parameters::new(),
            outputs: &[ITEMS, SCORES],
            n_logits: 0,
        };
        self.infer(admitted, sequences, &call, read).await
    }

    /// Ranks a sequence's options, or the catalog.
    fn ranking(
        &self,
        row: &Row<'_>,
        scores: &Scores<'_>,
        options: &PredictOptions,
    ) -> Result<Ranking, Failure> {
        let Some(given) = &row.sequence.options else {
            let Some(items) = &self.items else {
                return Err(invalid("the package has no item table to rank"));
            };
            let n = options.top_k.unwrap_or(TOP_K.0) as usize;
            let excluded = self.seen(row, options.exclude_seen);
            let best = scores.choose(&items.table, &excluded, Wanted::Best(n))?;
            let best = best.into_iter().filter_map(|(position, score)| {
                Some((items.table.item_at(position)?.to_owned(), Some(score)))
            });
            let (item_ids, scores) = best.unzip();
            return Ok(Ranking {
                counts: row.counts,
                item_ids,
                scores,
                is_exact: Some(true),
            });
        };
        let seen = seen_ids(row.sequence, options.exclude_seen);
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let mut codes = Vec::new();
        for option in given.iter().map(AsRef::as_ref) {
            codes.clear();
            if seen.contains(option) {
                continue;
            }
            let code = self.push_code(option, &mut codes).then(|| codes.first());
            match code
                .flatten()
                .and_then(|code| Some((*code, scores.of(*code)?)))
            {
                Some((code, score)) => known.push((option, code, score)),
                None => unknown.push(option),
            }
        }
        known.sort_unstable_by(|(_, one_code, one), (_, other_code, other)| {
            other.total_cmp(one).then(one_code.cmp(other_code))
        });
        let n = options.top_k.map_or(given.len(), |top_k| top_k as usize);
        let known = known
            .into_iter()
            .map(|(option, _, score)| (option, Some(score)));
        let unknown = unknown.into_iter().map(|option| (option, None));
        let best = known.chain(unknown).take(n);
        let (item_ids, scores) = best
            .map(|(option, score)| (option.to_owned(), score))
            .unzip();
        Ok(Ranking {
            counts: row.counts,
            item_ids,
            scores,
            is_exact: Some(true),
        })
    }
}

/// Returns the item ids that the engine named by their positions in `items.ndjson`.
fn named(
    items: &Items,
    row: &Row<'_>,
    best: &[(i64, f32)],
    exclude_seen: bool,
) -> Result<Vec<(String, f64)>, Failure> {
    let seen = seen_ids(row.sequence, exclude_seen);
    let mut returned = HashSet::with_capacity(best.len());
    let mut named = Vec::with_capacity(best.len());
    for (position, score) in best {
        if !returned.insert(*position) {
            return Err(invalid("a row has an item twice"));
        }
        let id = items.id(*position).ok_or_else(no_item)?;
        if !seen.contains(id) {
            named.push((id.to_owned(), f64::from(*score)));
        }
    }
    Ok(named)
}

/// Returns all events' items, or nothing if seen items are not excluded.
fn seen_ids<'s>(sequence: &'s Sequence<'_>, exclude_seen: bool) -> HashSet<&'s str> {
    let events = sequence.events.iter().filter(|_| exclude_seen);
    events.map(|event| event.item_id.as_ref()).collect()
}

fn no_item() -> Failure {
    invalid("a position is not a line of items.ndjson")
}

/// Scales a vector to length 1. A zero vector stays as it is.
fn normalize(vector: &mut [f32]) {
    let squares = vector.iter().map(|value| f64::from(*value).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if length > 0.0 {
        for value in vector {
            *value = (f64::from(*value) / length) as f32;
        }
    }
}
