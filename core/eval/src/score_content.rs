//! Scoring of predictions from their file's bytes.

use std::io::BufRead;
use std::ops::ControlFlow;

use crate::content::{ContentFormat, ReadEnd, read_content};
use crate::metric::Metric;
use crate::prediction::{CellForm, HashedPredictions, PredictionSink};
use crate::score::{Failure, Score, Scorer};

/// Scores predictions, and returns the SHA-256 of their normal form with the score. Fails with the first
/// invalid prediction's place.
pub(crate) fn score_and_hash(
    scorer: Scorer<'_>,
    metric: Metric,
    predictions: impl BufRead,
    format: ContentFormat,
) -> Result<(Score, [u8; 32]), String> {
    let mut hashed = HashedPredictions::new(scorer);
    read_into(&mut hashed, metric, predictions, format)?;
    let (scorer, sha256) = hashed.finish();
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

pub(crate) fn message(failure: Failure) -> String {
    match failure {
        Failure::InvalidPredictions(message) => message,
        Failure::Stopped => "stopped".into(),
    }
}
