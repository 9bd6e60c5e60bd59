//! What a reader of predictions hands on, kept to be compared.

use std::ops::ControlFlow;

use assay_eval::FieldError;
use assay_eval::prediction::{Layout, Prediction, Stream, SubmissionDigest, Value, name, read};

/// One thing that was handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Prediction {
        named: String,
        item_id: String,
        predicted: Predicted,
    },
    Fault(FieldError),
}

/// What was predicted. Numbers are their bits, so that each is equal to itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicted {
    Label(String),
    Ranking(Vec<String>),
    Number(u64),
    Weights(Vec<(String, u64)>),
}

impl Predicted {
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Label(label) => vec![label],
            Self::Ranking(ids) => ids.iter().map(String::as_str).collect(),
            Self::Number(_) => Vec::new(),
            Self::Weights(weights) => weights.iter().map(|(label, _)| label.as_str()).collect(),
        }
    }

    /// Without a number that is none.
    pub fn is_finite(&self) -> bool {
        let finite = |bits: &u64| f64::from_bits(*bits).is_finite();
        match self {
            Self::Label(_) | Self::Ranking(_) => true,
            Self::Number(bits) => finite(bits),
            Self::Weights(weights) => weights.iter().all(|(_, bits)| finite(bits)),
        }
    }
}

impl Told {
    pub fn of(next: &Result<Prediction<'_, '_>, FieldError>) -> Self {
        match next {
            Err(fault) => Self::Fault(fault.clone()),
            Ok(Prediction {
                index,
                line,
                item_id,
                value,
            }) => Self::Prediction {
                named: name(*index, *line),
                item_id: item_id.to_string(),
                predicted: match value {
                    Value::Label(label) => Predicted::Label(label.to_string()),
                    Value::Ranking(ids) => {
                        Predicted::Ranking(ids.iter().map(ToString::to_string).collect())
                    }
                    Value::Number(number) => Predicted::Number(number.to_bits()),
                    Value::Probabilities(weights) => Predicted::Weights(
                        weights
                            .iter()
                            .map(|(label, weight)| (label.to_string(), weight.to_bits()))
                            .collect(),
                    ),
                },
            },
        }
    }

    pub const fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }

    /// How many bytes of texts it holds.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Fault(_) => 0,
            Self::Prediction {
                item_id, predicted, ..
            } => {
                item_id.len()
                    + predicted
                        .texts()
                        .iter()
                        .map(|text| text.len())
                        .sum::<usize>()
            }
        }
    }
}

/// All that was handed on until `enough`, and the digest of the predictions.
pub struct Heard {
    pub told: Vec<Told>,
    pub digest: SubmissionDigest,
    enough: usize,
}

impl Heard {
    pub fn until(enough: usize) -> Self {
        Self {
            told: Vec::new(),
            digest: SubmissionDigest::default(),
            enough,
        }
    }

    pub fn hear(&mut self, next: Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<()> {
        assert!(self.told.len() < self.enough, "more came than was wanted");
        self.told.push(Told::of(&next));
        if let Ok(prediction) = next {
            self.digest.add(&prediction);
        }
        if self.told.len() < self.enough {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// What the reader of a whole array hands on, and how it ended.
pub fn inline(json: &[u8], enough: usize) -> (Vec<Told>, assay_core::Result<ControlFlow<()>>) {
    let mut heard = Heard::until(enough);
    let ended = read(json, |next| heard.hear(next));
    (heard.told, ended.map_err(assay_core::Error::from))
}

/// What the stream hands on when the bytes come in these pieces.
pub fn streamed<'a>(
    layout: Layout,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    enough: usize,
) -> Vec<Told> {
    let mut heard = Heard::until(enough);
    let mut stream = Stream::new(layout);
    let mut each = |next: Result<Prediction<'_, '_>, FieldError>| heard.hear(next);
    let fed = pieces
        .into_iter()
        .try_for_each(|piece| stream.feed(piece, &mut each));
    if fed.is_continue() {
        let _: ControlFlow<()> = stream.finish(&mut each);
    }
    heard.told
}
