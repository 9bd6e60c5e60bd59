//! The functions of the module.

use std::path::PathBuf;

use assay_eval::content::{Compression, ContentFormat};
use assay_eval::offline::{self, Report};
use assay_eval::prediction::Layout;
use assay_eval::suite::{AnswerLines, metric_and_clip};
use assay_eval::{Clip, Metric};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::chunks::Chunks;

/// Scores predictions, and returns the figures as JSON.
///
/// `predictions` and `answers` are iterables of `bytes`, which are read once. They may be cut
/// anywhere. Answers are NDJSON with `item_id` and `answer`. The `layout` of predictions is
/// `lines` (NDJSON) or `array`, and their `compression` is `gzip`, `zstd` or `None`.
///
/// Errors name the two as `predictions_name` and `answers_name`.
///
/// Raises `ValueError` with the location of the first invalid prediction or answer.
#[pyfunction]
#[pyo3(signature = (
    predictions, answers, metric, clip=None, *, layout="lines", compression=None,
    predictions_name=None, answers_name="answers"
))]
#[expect(
    clippy::too_many_arguments,
    reason = "Python passes them by name, with defaults"
)]
pub fn score(
    py: Python<'_>,
    predictions: &Bound<'_, PyAny>,
    answers: &Bound<'_, PyAny>,
    metric: &str,
    clip: Option<(f64, f64)>,
    layout: &str,
    compression: Option<&str>,
    predictions_name: Option<&str>,
    answers_name: &str,
) -> PyResult<String> {
    let metric = parse_metric(metric)?;
    let clip = clip
        .map(|(low, high)| metric.clip(low, high))
        .transpose()
        .map_err(PyValueError::new_err)?;
    let format = ContentFormat {
        layout: parse_layout(layout)?,
        compression: parse_compression(compression)?,
        bytes_max: u64::MAX,
    };
    let mut answers = Chunks::new(answers)?;
    let mut predictions = Chunks::new(predictions)?;
    let scored = py.detach(|| {
        // The size is only a hint for the first allocation.
        let lines = AnswerLines::new(&mut answers, answers_name.into(), 0, metric);
        let table = offline::read_answers(lines, metric, clip).map_err(|bad| bad.to_string())?;
        let scored = offline::score(&table, metric, &mut predictions, format);
        scored.map_err(|error| match predictions_name {
            Some(name) => format!("{name}: {error}"),
            None => error,
        })
    });
    // An exception of an iterator is the cause of the failure that it leads to.
    if let Some(raised) = answers.take_raised().or_else(|| predictions.take_raised()) {
        return Err(raised);
    }
    to_json(&scored.map_err(PyValueError::new_err)?)
}

/// Returns the metric for the answers in a folder, and the bounds of the loss of an item, if it has
/// them. `metric` replaces the metric of the suite, whose bounds are for its own metric only.
///
/// Raises `ValueError` if `suite.toml` is invalid, or if it is missing without `metric`.
#[pyfunction]
#[pyo3(signature = (folder, metric=None))]
pub fn read_suite(folder: PathBuf, metric: Option<&str>) -> PyResult<(String, Option<(f64, f64)>)> {
    let named = metric.map(parse_metric).transpose()?;
    let (metric, clip): (Metric, Option<Clip>) =
        metric_and_clip(&folder, named).map_err(|bad| PyValueError::new_err(bad.to_string()))?;
    Ok((metric.to_string(), clip.map(|clip| (clip.low, clip.high))))
}

fn to_json(report: &Report) -> PyResult<String> {
    serde_json::to_string(report).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn parse_metric(name: &str) -> PyResult<Metric> {
    name.parse()
        .map_err(|error| PyValueError::new_err(format!("metric: {error}")))
}

fn parse_layout(name: &str) -> PyResult<Layout> {
    match name {
        "lines" => Ok(Layout::Lines),
        "array" => Ok(Layout::Array),
        _ => Err(PyValueError::new_err(
            "`layout` must be \"lines\" or \"array\".",
        )),
    }
}

fn parse_compression(name: Option<&str>) -> PyResult<Compression> {
    match name {
        None => Ok(Compression::None),
        Some("gzip") => Ok(Compression::Gzip),
        Some("zstd") => Ok(Compression::Zstd),
        Some(_) => Err(PyValueError::new_err(
            "`compression` must be \"gzip\", \"zstd\" or None.",
        )),
    }
}
