//! The profile `codes`: the client encodes items by the package's item table, and the engine runs a
//! bare network.

use std::collections::HashSet;
use std::sync::Arc;

use assay_core::model::error::{Error, Result};
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{CodeOutputs, ServedModel};
use assay_core::model::serving::{EventCounts, HistoryOptions, OnLong, OnUnknown, Refusal};
use assay_engine::read_code;
use assay_inference::ids::{LENGTHS, ROWS_MAX};
use assay_inference::parameters::Parameters;
use assay_inference::tensors::{Tensors, TensorsBuilder};
use assay_inference::v2::{InferRequestedOutput, ModelInferRequest};

use crate::batches::{CALL_MAX_EXTERNAL, RowSize, split};
use crate::calls::Admitted;
use crate::checks::Rows;
use crate::failure::Failure;
use crate::item_tables::Items;

/// Input `INT64` [B, T, L]: the event codes.
pub const CODES: &str = "codes";

/// The most logits in a response, unless one row has more. They are ranked in some
/// milliseconds, which delay other requests on the same thread.
const LOGITS_MAX: usize = 1 << 18;

/// A model whose engine reads codes.
pub struct Codes<'m> {
    pub model: &'m ServedModel,
    /// The model's name in the engine.
    name: &'m str,
    pub outputs: CodeOutputs,
    pub level_sizes: Vec<usize>,
    pub items: Option<Arc<Items>>,
}

/// A sequence that is sent, and its codes.
pub struct Row<'s> {
    /// The sequence's position among the operation's.
    pub at: usize,
    pub sequence: &'s Sequence<'s>,
    codes: Vec<u32>,
    pub counts: EventCounts,
}

/// The options for one operation's calls.
pub struct CodeCall<'c> {
    /// The history's handling.
    pub history: &'c HistoryOptions,
    /// The calls' parameters.
    pub parameters: Parameters,
    /// The outputs to compute.
    pub outputs: &'c [&'c str],
    /// A row's logit count.
    pub n_logits: usize,
}

impl<'m> Codes<'m> {
    /// Creates a model's client.
    pub fn new(
        model: &'m ServedModel,
        name: &'m str,
        outputs: CodeOutputs,
        items: Option<Arc<Items>>,
    ) -> Self {
        Self {
            model,
            name,
            outputs,
            level_sizes: model.level_sizes(),
            items,
        }
    }

    /// Sends the sequences that are not refused, in calls with a bounded size. `read` returns each
    /// row's result in a call.
    pub async fn infer<T>(
        &self,
        admitted: &mut Admitted,
        sequences: &[Sequence<'_>],
        call: &CodeCall<'_>,
        read: impl Fn(&Tensors<'_>, &[Row<'_>]) -> Result<Vec<T>, Failure>,
    ) -> Result<Rows<T>> {
        let mut refusals = Vec::with_capacity(sequences.len());
        let mut rows = Vec::with_capacity(sequences.len());
        for (at, sequence) in sequences.iter().enumerate() {
            match self.encode(at, sequence, call.history) {
                Ok(row) => {
                    refusals.push(None);
                    rows.push(row);
                }
                Err(refusal) => refusals.push(Some(refusal)),
            }
        }
        let sizes = rows.iter().map(|row| RowSize {
            own: 0,
            padded: (row.codes.len() + 1) * size_of::<i64>(),
        });
        let rows_max = (LOGITS_MAX / call.n_logits.max(1)).clamp(1, ROWS_MAX);
        let mut results = Vec::with_capacity(rows.len());
        for range in split(sizes, rows_max, CALL_MAX_EXTERNAL) {
            let rows = &rows[range];
            let request = self.request(rows, call);
            let found = admitted.infer(request, |response| {
                read(
                    &Tensors::from_response(response)?.with_rows(rows.len()),
                    rows,
                )
            });
            results.extend(found.await?);
        }
        let mut results = results.into_iter();
        let all = refusals.into_iter().map(|refusal| match refusal {
            Some(refusal) => Some(Err(refusal)),
            None => results.next().map(Ok),
        });
        all.collect::<Option<_>>()
            .ok_or_else(|| Error::internal("a call to an engine returned too few rows"))
    }

    /// Encodes the events that enter the model: unknown ones are left out first, then the oldest
    /// beyond the context length.
    fn encode<'s>(
        &self,
        at: usize,
        sequence: &'s Sequence<'s>,
        options: &HistoryOptions,
    ) -> Result<Row<'s>, Refusal> {
        let n_levels = self.level_sizes.len().max(1);
        let mut codes = Vec::with_capacity(sequence.events.len() * n_levels);
        let mut n_unknown = 0;
        for (number, event) in sequence.events.iter().enumerate() {
            if self.push_code(&event.item_id, &mut codes) {
                continue;
            }
            if options.on_unknown == OnUnknown::Refuse {
                let event = u32::try_from(number).ok();
                return Err(Refusal::UnknownItem { event });
            }
            n_unknown += 1;
        }
        let context_length = self.model.context_length as usize;
        let n_known = codes.len() / n_levels;
        if n_known > context_length && options.on_long == OnLong::Refuse {
            return Err(Refusal::TooLong);
        }
        let surplus = n_known.saturating_sub(context_length);
        codes.drain(..surplus * n_levels);
        Ok(Row {
            at,
            sequence,
            codes,
            counts: EventCounts {
                n_used: u32::try_from(n_known - surplus).unwrap_or(u32::MAX),
                n_unknown,
            },
        })
    }

    /// Appends an item's code. Returns `false` if the model does not know the item. Without an
    /// item table, items are named by their codes.
    pub fn push_code(&self, item_id: &str, codes: &mut Vec<u32>) -> bool {
        match &self.items {
            None => read_code(item_id, &self.level_sizes, codes),
            Some(items) => match items.table.code_of(item_id) {
                Some(code) => {
                    codes.extend_from_slice(code);
                    true
                }
                None => false,
            },
        }
    }

    fn request(&self, rows: &[Row<'_>], call: &CodeCall<'_>) -> ModelInferRequest {
        let n_levels = self.level_sizes.len();
        let width = rows.iter().map(|row| row.codes.len()).max().unwrap_or(0);
        let width = width.max(n_levels);
        let mut tensors = TensorsBuilder::default();
        let codes = rows.iter().flat_map(|row| {
            let codes = row.codes.iter().map(|code| i64::from(*code));
            codes.chain(std::iter::repeat(0)).take(width)
        });
        let shape = [rows.len(), width / n_levels.max(1), n_levels];
        tensors.push(CODES, &shape, codes);
        let lengths = rows.iter().map(|row| i64::from(row.counts.n_used));
        tensors.push(LENGTHS, &[rows.len(), 1], lengths);
        let outputs = call.outputs.iter().map(|name| InferRequestedOutput {
            name: (*name).to_owned(),
            ..InferRequestedOutput::default()
        });
        let mut request = ModelInferRequest {
            model_name: self.name.to_owned(),
            model_version: self.model.version.clone(),
            parameters: call.parameters.clone(),
            outputs: outputs.collect(),
            ..ModelInferRequest::default()
        };
        tensors.into_request(&mut request);
        request
    }

    /// Returns the first code components for all events that the model knows, or nothing if
    /// seen items are not excluded.
    pub fn seen(&self, row: &Row<'_>, exclude_seen: bool) -> HashSet<u32> {
        if !exclude_seen {
            return HashSet::new();
        }
        let mut codes = Vec::new();
        let events = row.sequence.events.iter();
        let seen = events.filter_map(|event| {
            codes.clear();
            self.push_code(&event.item_id, &mut codes);
            codes.first().copied()
        });
        seen.collect()
    }

    /// Returns the item table, which operations that return catalog items need.
    pub fn items(&self) -> Result<&Items> {
        let items = self.items.as_deref();
        items.ok_or_else(|| self.not_offered("has no item table, which returning items needs"))
    }

    /// The error for an operation that the API must refuse before it calls the engine.
    pub fn not_offered(&self, reason: &str) -> Error {
        Error::internal(format!(
            "version {} of model {} {reason}",
            self.model.version, self.model.id
        ))
    }
}
