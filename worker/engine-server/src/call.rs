//! A call's inputs and parameters, checked. Everything is checked before the call is admitted,
//! so that no thread computes a row from an invalid call.

use std::str::FromStr;

use assay_engine::{
    EmbedOptions, GenerateMode, GenerateOptions, OnLong, OnUnknown, Pooling, PredictOptions,
};
use assay_inference::ids;
use assay_inference::parameters::{self, Parameters};
use assay_inference::tensors::{Element, InvalidMessage, Tensors};
use assay_inference::v2::ModelInferRequest;

use crate::texts::Texts;

/// A sequence's maximum event count.
const EVENTS_MAX: usize = 10_000;

/// A sequence's maximum option count.
const OPTIONS_MAX: usize = 1_000;

/// Largest `top_k`.
const TOP_K_MAX: usize = 500;

/// A continuation's maximum event count.
const N_EVENTS_MAX: usize = 50;

/// A sequence's maximum continuation count.
const N_CONTINUATIONS_MAX: usize = 10;

/// The profile's inputs.
const INPUTS: [&str; 7] = [
    ids::ITEM_IDS,
    ids::LENGTHS,
    ids::TYPES,
    ids::OPTIONS,
    ids::OPTION_COUNTS,
    ids::SEQUENCE_IDS,
    ids::TEMPERATURE,
];

/// The profile's parameters.
const PARAMETERS: [&str; 11] = [
    ids::OPERATION,
    ids::ON_LONG,
    ids::ON_UNKNOWN,
    ids::EXCLUDE_SEEN,
    ids::TOP_K,
    ids::N_EVENTS,
    ids::N_CONTINUATIONS,
    ids::MODE,
    ids::SEED,
    ids::POOLING,
    ids::NORMALIZE,
];

/// A call's sequences, and the operation to compute for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Each sequence's item ids, by event.
    pub events: Texts,
    /// Each sequence's event types, empty for an event without a type. `None` if no
    /// event has a type.
    pub types: Option<Texts>,
    /// The rule for sequences with more events than the model looks back on.
    pub on_long: OnLong,
    /// The rule for events whose item the model does not know.
    pub on_unknown: OnUnknown,
    /// The operation, with its parameters.
    pub operation: Operation,
}

/// An operation and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Ranks items.
    Predict {
        /// Each sequence's options; absent for a sequence that ranks the catalog.
        options: Texts,
        /// All sequences' parameters.
        parameters: PredictOptions,
    },
    /// Continues sequences.
    Generate {
        /// Each sequence's id, one string in each row. Empty if no random numbers are drawn.
        sequence_ids: Texts,
        /// Each sequence's parameters.
        parameters: Vec<GenerateOptions>,
    },
    /// Returns vectors.
    Embed(EmbedOptions),
}

impl Call {
    /// Reads a request's inputs and parameters.
    ///
    /// # Errors
    /// A sentence that names the input or parameter that is wrong. It contains no item.
    pub fn read(request: &ModelInferRequest) -> Result<Self, InvalidMessage> {
        let tensors = Tensors::from_request(request)?;
        let parameters = &request.parameters;
        reject_unknown("input", tensors.names(), &INPUTS)?;
        reject_unknown(
            "parameter",
            parameters.keys().map(String::as_str),
            &PARAMETERS,
        )?;
        let item_ids = tensors.read_required::<&str, 2>(ids::ITEM_IDS)?;
        let [rows, width] = item_ids.shape;
        if !(1..=ids::ROWS_MAX).contains(&rows) {
            return Err(InvalidMessage::new(format!(
                "The tensor `{}` must have 1 to {} rows.",
                ids::ITEM_IDS,
                ids::ROWS_MAX
            )));
        }
        let tensors = tensors.with_rows(rows);
        let lengths = required_column(&tensors, ids::LENGTHS)?;
        let lengths = counts(ids::LENGTHS, &lengths, width.min(EVENTS_MAX))?;
        let mut events = Texts::default();
        for (row, length) in lengths.iter().enumerate() {
            events.push_row(item_ids.row(row).iter().take(*length).copied());
        }
        let types = match tensors.read::<&str, 2>(ids::TYPES)? {
            None => None,
            Some(types) if types.shape == item_ids.shape => {
                let mut texts = Texts::default();
                for (row, length) in lengths.iter().enumerate() {
                    texts.push_row(types.row(row).iter().take(*length).copied());
                }
                Some(texts)
            }
            Some(_) => {
                return Err(InvalidMessage::new(format!(
                    "The tensor `{}` must have the shape of `{}`.",
                    ids::TYPES,
                    ids::ITEM_IDS
                )));
            }
        };
        let on_long = [("truncate", OnLong::Truncate), ("refuse", OnLong::Refuse)];
        let on_unknown = [("skip", OnUnknown::Skip), ("refuse", OnUnknown::Refuse)];
        Ok(Self {
            events,
            types,
            on_long: choice(parameters, ids::ON_LONG, &on_long)?.unwrap_or_default(),
            on_unknown: choice(parameters, ids::ON_UNKNOWN, &on_unknown)?.unwrap_or_default(),
            operation: Operation::read(&tensors, parameters, rows)?,
        })
    }

    /// Returns the sequence count.
    pub fn rows(&self) -> usize {
        self.events.len()
    }
}

impl Operation {
    /// Returns the name, as in the parameter `operation`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Predict { .. } => "predict",
            Self::Generate { .. } => "generate",
            Self::Embed(_) => "embed",
        }
    }

    fn read(
        tensors: &Tensors<'_>,
        parameters: &Parameters,
        rows: usize,
    ) -> Result<Self, InvalidMessage> {
        match parameters::string(parameters, ids::OPERATION)? {
            Some("predict") => read_predict(tensors, parameters, rows),
            Some("generate") => read_generate(tensors, parameters, rows),
            Some("embed") => read_embed(parameters),
            _ => Err(InvalidMessage::new(format!(
                "The parameter `{}` must be `predict`, `generate` or `embed`.",
                ids::OPERATION
            ))),
        }
    }
}

fn read_predict(
    tensors: &Tensors<'_>,
    parameters: &Parameters,
    rows: usize,
) -> Result<Operation, InvalidMessage> {
    let mut options = Texts::default();
    match tensors.read::<&str, 2>(ids::OPTIONS)? {
        None => (0..rows).for_each(|_| options.push_absent_row()),
        Some(given) => {
            let option_counts = required_column(tensors, ids::OPTION_COUNTS)?;
            let max = given.shape[1].min(OPTIONS_MAX);
            for (row, count) in option_counts.iter().enumerate() {
                if *count == ids::NO_OPTIONS {
                    options.push_absent_row();
                } else {
                    let count = one_count(ids::OPTION_COUNTS, *count, max)?;
                    options.push_row(given.row(row).iter().take(count).copied());
                }
            }
        }
    }
    Ok(Operation::Predict {
        options,
        parameters: PredictOptions {
            top_k: integer(parameters, ids::TOP_K, TOP_K_MAX)?,
            exclude_seen: parameters::boolean(parameters, ids::EXCLUDE_SEEN)?.unwrap_or_default(),
        },
    })
}

fn read_generate(
    tensors: &Tensors<'_>,
    parameters: &Parameters,
    rows: usize,
) -> Result<Operation, InvalidMessage> {
    let missing = |name: &str| InvalidMessage::new(format!("The parameter `{name}` is missing."));
    let mode = [("beam", false), ("sample", true)];
    let is_sample = choice(parameters, ids::MODE, &mode)?.unwrap_or_default();
    let full_options = GenerateOptions {
        n_events: integer(parameters, ids::N_EVENTS, N_EVENTS_MAX)?
            .ok_or_else(|| missing(ids::N_EVENTS))?,
        n_continuations: integer(parameters, ids::N_CONTINUATIONS, N_CONTINUATIONS_MAX)?
            .unwrap_or(1),
        mode: GenerateMode::Beam,
        exclude_seen: parameters::boolean(parameters, ids::EXCLUDE_SEEN)?.unwrap_or_default(),
    };
    let mut sequence_ids = Texts::default();
    if !is_sample {
        return Ok(Operation::Generate {
            sequence_ids,
            parameters: vec![full_options; rows],
        });
    }
    for sequence_id in required_column::<&str>(tensors, ids::SEQUENCE_IDS)? {
        sequence_ids.push_row([sequence_id]);
    }
    let seed = parameters::string(parameters, ids::SEED)?.ok_or_else(|| missing(ids::SEED))?;
    let seed = u64::from_str(seed).map_err(|_| {
        InvalidMessage::new(format!(
            "The parameter `{}` must be a decimal integer below 2^64.",
            ids::SEED
        ))
    })?;
    let temperatures: Vec<f64> = required_column(tensors, ids::TEMPERATURE)?;
    let with_temperature = |temperature: f64| {
        let temperature = temperature as f32;
        // A subnormal divisor would make all weights infinite or zero.
        match temperature.is_normal() && temperature > 0.0 {
            true => Ok(GenerateOptions {
                mode: GenerateMode::Sample { temperature, seed },
                ..full_options
            }),
            false => Err(InvalidMessage::new(format!(
                "The tensor `{}` must have positive numbers only.",
                ids::TEMPERATURE
            ))),
        }
    };
    let parameters = temperatures.into_iter().map(with_temperature);
    Ok(Operation::Generate {
        sequence_ids,
        parameters: parameters.collect::<Result<_, _>>()?,
    })
}

fn read_embed(parameters: &Parameters) -> Result<Operation, InvalidMessage> {
    let pooling = [("last", Pooling::Last), ("mean", Pooling::Mean)];
    Ok(Operation::Embed(EmbedOptions {
        pooling: choice(parameters, ids::POOLING, &pooling)?.unwrap_or_default(),
        normalize: parameters::boolean(parameters, ids::NORMALIZE)?.unwrap_or(true),
    }))
}

/// Rejects names that the profile does not have. An engine that ignored one would compute something
/// else than the caller asked for.
fn reject_unknown<'n>(
    kind: &str,
    mut names: impl Iterator<Item = &'n str>,
    known: &[&str],
) -> Result<(), InvalidMessage> {
    match names.all(|name| known.contains(&name)) {
        true => Ok(()),
        false => Err(InvalidMessage::new(format!(
            "The call has an unknown {kind}. Known are {}.",
            known.join(", ")
        ))),
    }
}

/// Reads a tensor with the shape [B, 1].
fn required_column<'m, T: Element<'m>>(
    tensors: &Tensors<'m>,
    name: &str,
) -> Result<Vec<T>, InvalidMessage> {
    let values = tensors.read_required::<T, 2>(name)?;
    match values.shape[1] {
        1 => Ok(values.elements),
        _ => Err(InvalidMessage::new(format!(
            "The tensor `{name}` must have one element in each row."
        ))),
    }
}

fn counts(name: &str, given: &[i64], max: usize) -> Result<Vec<usize>, InvalidMessage> {
    given
        .iter()
        .map(|count| one_count(name, *count, max))
        .collect()
}

fn one_count(name: &str, count: i64, max: usize) -> Result<usize, InvalidMessage> {
    usize::try_from(count)
        .ok()
        .filter(|count| *count <= max)
        .ok_or_else(|| {
            InvalidMessage::new(format!(
                "The tensor `{name}` must have numbers from 0 to {max}."
            ))
        })
}

/// Returns an integer parameter that is at least 1.
fn integer(
    parameters: &Parameters,
    name: &str,
    max: usize,
) -> Result<Option<usize>, InvalidMessage> {
    let Some(value) = parameters::integer(parameters, name)? else {
        return Ok(None);
    };
    usize::try_from(value)
        .ok()
        .filter(|value| (1..=max).contains(value))
        .map(Some)
        .ok_or_else(|| {
            InvalidMessage::new(format!("The parameter `{name}` must be from 1 to {max}."))
        })
}

/// Returns the value that a string parameter names.
fn choice<T: Copy>(
    parameters: &Parameters,
    name: &str,
    choices: &[(&str, T)],
) -> Result<Option<T>, InvalidMessage> {
    let Some(given) = parameters::string(parameters, name)? else {
        return Ok(None);
    };
    let found = choices.iter().find(|(choice, _)| *choice == given);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let choices: Vec<String> = choices
            .iter()
            .map(|(choice, _)| format!("`{choice}`"))
            .collect();
        InvalidMessage::new(format!(
            "The parameter `{name}` must be {}.",
            choices.join(" or ")
        ))
    })
}

#[cfg(test)]
mod tests;
