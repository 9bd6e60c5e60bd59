//! `assay-worker score`: scores a file of predictions against a suite's folder, without database or
//! Redis. It uses the scorer and the formats of the platform, so an operator can see the result of
//! a job before a suite is published.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use assay_core::model::upload::{ContentEncoding, ContentType};
use assay_core::runtime::upload_reader::{ContentFormat, ReadEnd, read_content};
use assay_eval::score::{AnswerTable, Builder, Failure, Figures, Progress, Score, Scorer};
use assay_eval::suite::{AnswerLines, metric_and_clip};
use assay_eval::{Clip, Metric};
use serde::Serialize;

/// Number of bytes that are read from a file at once.
const READ_BYTES: usize = 256 * 1024;

/// The printed object: the figures of a job's result.
#[derive(Serialize)]
pub struct Printed {
    metric: String,
    value: f64,
    stderr: Option<f64>,
    ci95: Option<[f64; 2]>,
    ci_method: Option<&'static str>,
    metrics: BTreeMap<String, f64>,
    n: i64,
    n_submitted: i64,
    n_unmatched: i64,
    n_missing: i64,
}

/// Scores a file of predictions against the answers in a suite's folder. The file is a JSON array
/// or NDJSON, and may be compressed with gzip or zstd. `metric` replaces the suite's metric.
pub fn score(suite: &Path, predictions: &Path, metric: Option<Metric>) -> Result<Printed, String> {
    let (metric, clip) = match metric {
        Some(metric) => (metric, None),
        None => metric_and_clip(suite).map_err(|bad| bad.to_string())?,
    };
    let table = read_answers(suite, metric, clip)?;
    let Score {
        n,
        n_submitted,
        n_unmatched,
        n_missing,
        figures,
        items: _,
        sealed: _,
    } = score_file(&table, metric, predictions)?;
    let Figures {
        value,
        estimate,
        metrics,
    } = figures;
    Ok(Printed {
        metric: metric.to_string(),
        value,
        stderr: estimate.map(|estimate| estimate.stderr),
        ci95: estimate.map(|estimate| estimate.ci95),
        ci_method: estimate.map(|estimate| estimate.method),
        metrics,
        n,
        n_submitted,
        n_unmatched,
        n_missing,
    })
}

fn read_answers(suite: &Path, metric: Metric, clip: Option<Clip>) -> Result<AnswerTable, String> {
    let mut lines = AnswerLines::open(suite, metric).map_err(|bad| bad.to_string())?;
    let mut builder = Builder::new(metric, lines.estimate()).clip(clip);
    let read = lines.for_each(|item_id, answer| {
        builder
            .push(item_id, answer)
            .map_err(|error| error.to_string())
    });
    read.map_err(|bad| bad.to_string())?;
    builder.finish().map_err(|error| error.to_string())
}

fn score_file(table: &AnswerTable, metric: Metric, predictions: &Path) -> Result<Score, String> {
    let unreadable = |error: std::io::Error| format!("{}: {error}", predictions.display());
    let format = detect_format(predictions).map_err(unreadable)?;
    let bytes = BufReader::with_capacity(READ_BYTES, File::open(predictions).map_err(unreadable)?);
    let progress = Progress::default();
    let mut scorer = Scorer::new(table, metric, &progress);
    let end = read_content(bytes, format, || ControlFlow::Continue(()), &mut scorer);
    let scored = match end {
        ReadEnd::Complete => scorer.finish(),
        ReadEnd::Stopped(failure) => Err(failure),
        ReadEnd::Invalid(error) => return Err(format!("{}: {error}", predictions.display())),
    };
    scored.map_err(|failure| match failure {
        Failure::InvalidPredictions(message) => format!("{}: {message}", predictions.display()),
        Failure::Stopped => "stopped".into(),
    })
}

/// Detects the compression of a file from its first bytes, and the format of the predictions from
/// its name or from an opening bracket.
fn detect_format(path: &Path) -> std::io::Result<ContentFormat> {
    let mut first = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut first)?;
    let content_encoding = match first.as_slice() {
        [0x1f, 0x8b, ..] => ContentEncoding::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => ContentEncoding::Zstd,
        _ => ContentEncoding::Identity,
    };
    let name = path.to_string_lossy();
    let is_named_array = [".json", ".json.gz", ".json.zst"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    let starts_with_bracket = content_encoding == ContentEncoding::Identity && {
        let mut bytes = BufReader::new(File::open(path)?);
        bytes.fill_buf()?.trim_ascii_start().first() == Some(&b'[')
    };
    let content_type = if is_named_array || starts_with_bracket {
        ContentType::Json
    } else {
        ContentType::Ndjson
    };
    Ok(ContentFormat {
        content_type,
        content_encoding,
        bytes_max: u64::MAX,
        compute_sha256: false,
    })
}
