//! The prediction readers' outputs, owned, for comparisons.

use std::ops::ControlFlow;

use assay_eval::FieldError;
use assay_eval::prediction::{
    Layout, Prediction, PredictionSink, Stream, SubmissionDigest, Value, location, read,
};

/// One prediction or field error that a reader emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Prediction {
        named: String,
        item_id: String,
        predicted: Predicted,
    },
    Error(FieldError),
}

/// A predicted value. Numbers are stored as bits, so that NaN equals itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicted {
    Label(String),
    Ranking(Vec<String>),
    Number(u64),
    Weights(Vec<(String, u64)>),
    Failed,
}

impl Predicted {
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Label(label) => vec![label],
            Self::Ranking(ids) => ids.iter().map(String::as_str).collect(),
            Self::Number(_) | Self::Failed => Vec::new(),
            Self::Weights(weights) => weights.iter().map(|(label, _)| label.as_str()).collect(),
        }
    }

    /// Returns `true` if no number is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        let finite = |bits: &u64| f64::from_bits(*bits).is_finite();
        match self {
            Self::Label(_) | Self::Ranking(_) | Self::Failed => true,
            Self::Number(bits) => finite(bits),
            Self::Weights(weights) => weights.iter().all(|(_, bits)| finite(bits)),
        }
    }
}

impl Output {
    pub fn of(next: &Result<Prediction<'_, '_>, FieldError>) -> Self {
        match next {
            Err(error) => Self::Error(error.clone()),
            Ok(Prediction {
                index,
                line,
                item_id,
                value,
            }) => Self::Prediction {
                named: location(*index, *line),
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
                    Value::Failed => Predicted::Failed,
                },
            },
        }
    }

    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// Returns all strings' byte count.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Error(_) => 0,
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

/// A sink that collects at most `limit` outputs, and the digest of the predictions.
pub struct Collector {
    pub outputs: Vec<Output>,
    pub digest: SubmissionDigest,
    limit: usize,
}

impl Collector {
    pub fn with_limit(limit: usize) -> Self {
        Self {
            outputs: Vec::new(),
            digest: SubmissionDigest::default(),
            limit,
        }
    }
}

impl<'a> PredictionSink<'a> for Collector {
    type Stop = ();

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        assert!(self.outputs.len() < self.limit, "the reader did not stop");
        self.outputs.push(Output::of(&prediction));
        if let Ok(prediction) = prediction {
            self.digest.add(&prediction);
        }
        if self.outputs.len() < self.limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Returns the outputs of the reader for a complete array, and its result.
pub fn inline(json: &[u8], limit: usize) -> (Vec<Output>, assay_core::Result<ControlFlow<()>>) {
    let mut collector = Collector::with_limit(limit);
    let ended = read(json, &mut collector);
    (collector.outputs, ended.map_err(assay_core::Error::from))
}

/// Returns the stream's outputs for bytes that arrive in these pieces.
pub fn streamed<'a>(
    layout: Layout,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> Vec<Output> {
    let mut collector = Collector::with_limit(limit);
    let mut stream = Stream::new(layout);
    let fed = pieces
        .into_iter()
        .try_for_each(|piece| stream.feed(piece, &mut collector));
    if fed.is_continue() {
        let _: ControlFlow<()> = stream.finish(&mut collector);
    }
    collector.outputs
}
