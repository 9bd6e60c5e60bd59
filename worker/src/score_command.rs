//! `assay-worker score`: scores a prediction file against a suite's folder, without database or
//! Redis. It uses the platform's scorer and formats, so an operator can see a job's
//! result before a suite is published.

use std::fs::File;
use std::path::Path;

use assay_eval::offline::{self, Report};
use assay_eval::suite::FolderRules;
use assay_eval::{Metric, content};

/// Scores a prediction file against the answers in a suite's folder. The file is NDJSON,
/// a JSON array or CSV, and may be compressed with gzip or zstd. `metric` replaces the suite's metric.
pub fn score(suite: &Path, predictions: &Path, metric: Option<Metric>) -> Result<Report, String> {
    let rules = FolderRules::read(suite, metric).map_err(|bad| bad.to_string())?;
    let answers = offline::read_answers_at(suite, &rules).map_err(|bad| bad.to_string())?;
    let name = predictions.display().to_string();
    let (bytes, format) = File::open(predictions)
        .and_then(|file| content::open(file, &name))
        .map_err(|error| format!("{name}: {error}"))?;
    offline::score(&answers, rules.metric, bytes, format)
        .map_err(|error| format!("{name}: {error}"))
}
