//! Scoring of predictions from their file's bytes.

use std::io::BufRead;
use std::ops::ControlFlow;

use crate::content::{ContentFormat, ReadEnd, read_content};
use crate::error::FieldError;
use crate::metric::Metric;
use crate::prediction::{
    CellForm, HashedPredictions, Prediction, PredictionRules, PredictionSink, location,
};
use crate::score::{Failure, Score, Scorer};

/// Scores predictions, and returns the SHA-256 of their normal form with the score. Fails with the first
/// invalid prediction's place. The error quotes no prediction.
pub(crate) fn score_and_hash(
    scorer: Scorer<'_>,
    metric: Metric,
    predictions: impl BufRead,
    format: ContentFormat,
) -> Result<(Score, [u8; 32]), String> {
    let mut sink = WithoutValues {
        rules: scorer.rules().clone(),
        sink: HashedPredictions::new(scorer),
    };
    read_into(&mut sink, metric, predictions, format)?;
    let (scorer, sha256) = sink.sink.finish();
    Ok((scorer.finish().map_err(message)?, sha256))
}

pub(crate) fn read_into(
    sink: &mut impl for<'a> PredictionSink<'a, Stop = Failure>,
    metric: Metric,
    predictions: impl BufRead,
    format: ContentFormat,
) -> Result<(), String> {
    let never_stop = || ControlFlow::Continue(());
    match read_content(predictions, format, CellForm::of(metric), never_stop, sink) {
        ReadEnd::Complete => Ok(()),
        ReadEnd::Stopped(failure) => Err(message(failure)),
        ReadEnd::Invalid(error) => Err(error.to_string()),
    }
}

/// A sink that passes predictions on, and errors without the values that they quote: predictions in a
/// suite's folder are as secret as the answers.
struct WithoutValues<S> {
    /// The rules of `sink`, whose errors quote values.
    rules: PredictionRules,
    sink: S,
}

impl<'a, S: PredictionSink<'a>> PredictionSink<'a> for WithoutValues<S> {
    type Stop = S::Stop;

    fn prefetch(&mut self, item_ids: &[&str]) {
        self.sink.prefetch(item_ids);
    }

    fn take(
        &mut self,
        prediction: Result<Prediction<'_, 'a>, FieldError>,
    ) -> ControlFlow<Self::Stop> {
        let checked = prediction.and_then(|prediction| {
            let fits = self.rules.check(prediction.value);
            fits.map_err(|(reason, message)| {
                let place = location(prediction.index, prediction.line);
                FieldError::new(format!("{place}.prediction"), reason, message)
            })?;
            Ok(prediction)
        });
        self.sink.take(checked.map_err(|error| {
            let FieldError { field, reason, .. } = &error;
            if field.ends_with(".item_id") {
                return error;
            }
            // A field that is not known may be named like a value.
            let end = field.find(".prediction").map_or_else(
                || field.find('.').unwrap_or(field.len()),
                |start| start + ".prediction".len(),
            );
            FieldError::new(&field[..end], reason, without_value(reason))
        }))
    }
}

/// Returns the message for a field error's reason that quotes no value.
pub(crate) fn without_value(reason: &str) -> &'static str {
    match reason {
        "type" => "must have the form of a prediction that the metric takes",
        "range" => "is too long, or has a number out of range, or shares whose sum is not 1",
        "duplicate" => "names an id, a label or a level twice",
        "required" => "is missing, or has no value for a level",
        "unknown_field" => "names a label, a level or a field that the suite does not have",
        _ => "is not valid JSON or CSV, or has a NUL character",
    }
}

pub(crate) fn message(failure: Failure) -> String {
    match failure {
        Failure::InvalidPredictions(message) => message,
        Failure::Stopped => "stopped".into(),
    }
}
