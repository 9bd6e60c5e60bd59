//! The module's functions.

use std::ops::ControlFlow;
use std::path::PathBuf;

use assay_eval::content::{self, ReadEnd, read_content};
use assay_eval::offline::{self, Report};
use assay_eval::prediction::{CellForm, FitCheck, PredictionRules};
use assay_eval::suite::{AnswerLines, FolderGroups, FolderRules};
use assay_eval::{Metric, QuantileLevels};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::chunks::Chunks;

/// Scores predictions, and returns the figures as JSON.
///
/// `predictions` and `answers` are iterables of `bytes`, which are read once. They may be cut
/// anywhere. Answers are NDJSON with `item_id` and `answer`. Predictions are NDJSON, a JSON array or
/// CSV, possibly compressed, as their content shows.
///
/// `quantiles` are the levels of predicted quantiles, for `pinball` and `wis` without `suite`, whose own levels
/// count otherwise.
///
/// `suite` is the folder of the suite, if its items may be in clusters or slices, or if it may have a
/// retest.
///
/// Errors name the two as `predictions_name` and `answers_name`.
///
/// Raises `ValueError` with the location of the first invalid prediction or answer.
#[pyfunction]
#[pyo3(signature = (
    predictions, answers, metric, clip=None, *, quantiles=None, suite=None, predictions_name=None,
    answers_name="answers"
))]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an argument of the Python function"
)]
pub fn score(
    py: Python<'_>,
    predictions: &Bound<'_, PyAny>,
    answers: &Bound<'_, PyAny>,
    metric: &str,
    clip: Option<(f64, f64)>,
    quantiles: Option<Vec<f64>>,
    suite: Option<PathBuf>,
    predictions_name: Option<&str>,
    answers_name: &str,
) -> PyResult<String> {
    let metric = parse_metric(metric)?;
    let clip = clip
        .map(|(low, high)| metric.clip(low, high))
        .transpose()
        .map_err(PyValueError::new_err)?;
    let levels = parse_levels(quantiles)?;
    let mut answers = Chunks::new(answers)?;
    let mut predictions = Chunks::new(predictions)?;
    let scored = py.detach(|| {
        // The size is only a hint for the first allocation.
        let lines = AnswerLines::new(&mut answers, answers_name.into(), 0, metric);
        let read_table = || {
            let Some(suite) = &suite else {
                let rules = FolderRules {
                    clip,
                    quantiles: levels,
                    ..FolderRules::for_metric(metric)
                };
                return offline::read_answers(lines, &rules, &FolderGroups::default());
            };
            let rules = FolderRules {
                clip,
                ..FolderRules::read(suite, Some(metric))?
            };
            let groups = rules.groups(suite)?;
            let lines = lines.labels(&rules.labels);
            let mut table = offline::read_answers(lines, &rules, &groups)?;
            offline::read_retest(&mut table, &rules, suite)?;
            offline::read_catalog(&mut table, &rules, suite)?;
            Ok(table)
        };
        let table = read_table().map_err(|bad| bad.to_string())?;
        let named = |error: String| match predictions_name {
            Some(name) => format!("{name}: {error}"),
            None => error,
        };
        let (bytes, format) = content::open(&mut predictions, predictions_name.unwrap_or_default())
            .map_err(|error| named(error.to_string()))?;
        offline::score(&table, metric, bytes, format).map_err(named)
    });
    // An exception of an iterator is the cause of the failure that it leads to.
    if let Some(raised) = answers.take_raised().or_else(|| predictions.take_raised()) {
        return Err(raised);
    }
    to_json(&scored.map_err(PyValueError::new_err)?)
}

/// Compares predictions with the items of a suite, and returns the comparison as JSON: the numbers of
/// items, of items with a prediction and of predictions for other items, and the errors for which a job
/// would fail.
///
/// `predictions` is an iterable of `bytes`, which may be cut anywhere: NDJSON, a JSON array or CSV,
/// possibly compressed, as their content shows. `predictions_name` is the name of their file. `quantiles` are the
/// suite's levels, if its predictions are quantiles.
///
/// Raises `ValueError` if the predictions cannot be decompressed.
#[pyfunction]
#[pyo3(signature = (predictions, item_ids, metric, *, quantiles=None, predictions_name=None))]
pub fn check(
    py: Python<'_>,
    predictions: &Bound<'_, PyAny>,
    item_ids: Vec<String>,
    metric: &str,
    quantiles: Option<Vec<f64>>,
    predictions_name: Option<&str>,
) -> PyResult<String> {
    let metric = parse_metric(metric)?;
    let rules = PredictionRules::new(metric, parse_levels(quantiles)?)
        .map_err(|corrupt| PyValueError::new_err(corrupt.to_string()))?;
    let mut predictions = Chunks::new(predictions)?;
    let checked = py.detach(|| {
        let (bytes, format) = content::open(&mut predictions, predictions_name.unwrap_or_default())
            .map_err(|error| error.to_string())?;
        let mut check = FitCheck::new(rules, item_ids);
        let go_on = || ControlFlow::Continue(());
        match read_content(bytes, format, CellForm::of(metric), go_on, &mut check) {
            ReadEnd::Complete | ReadEnd::Stopped(()) => Ok(check.finish()),
            ReadEnd::Invalid(error) => Err(error.to_string()),
        }
    });
    if let Some(raised) = predictions.take_raised() {
        return Err(raised);
    }
    let fit = checked.map_err(PyValueError::new_err)?;
    serde_json::to_string(&fit).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns the metric for the answers in a folder, and the bounds of the loss of an item, if it has
/// them. `metric` replaces the metric of the suite, whose bounds are for its own metric only.
///
/// Raises `ValueError` if `suite.toml` is invalid, or if it is missing without `metric`.
#[pyfunction]
#[pyo3(signature = (folder, metric=None))]
pub fn read_suite(folder: PathBuf, metric: Option<&str>) -> PyResult<(String, Option<(f64, f64)>)> {
    let named = metric.map(parse_metric).transpose()?;
    let FolderRules { metric, clip, .. } =
        FolderRules::read(&folder, named).map_err(|bad| PyValueError::new_err(bad.to_string()))?;
    Ok((metric.to_string(), clip.map(|clip| (clip.low, clip.high))))
}

fn to_json(report: &Report) -> PyResult<String> {
    serde_json::to_string(report).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parse_levels(quantiles: Option<Vec<f64>>) -> PyResult<Option<QuantileLevels>> {
    let levels = quantiles.map(|levels| QuantileLevels::new(&levels));
    levels
        .transpose()
        .map_err(|reason| PyValueError::new_err(format!("quantiles: {reason}")))
}

fn parse_metric(name: &str) -> PyResult<Metric> {
    name.parse()
        .map_err(|error| PyValueError::new_err(format!("metric: {error}")))
}
