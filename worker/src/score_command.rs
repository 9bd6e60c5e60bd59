//! `assay-worker score`: a suite's folder and a file of predictions, scored here and now, with nothing else running. It is
//! the platform's scorer on the platform's forms; so an operator sees what a job would find before a suite is published.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::ops::ControlFlow;
use std::path::Path;

use assay_core::model::upload::{ContentEncoding, ContentType};
use assay_core::runtime::suite_folder::{AnswerLines, metric_of};
use assay_core::runtime::upload_reader::{Content, Ended, decode};
use assay_eval::score::Figures;
use assay_eval::{Clip, Metric};
use serde::Serialize;

use assay_eval::score::{AnswerTable, Builder, Failure, Prefetch, Progress, Score, Scorer};

/// How much of a file is read at once.
const READ: usize = 256 * 1024;

/// What is printed: the figures of a job's result.
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

/// Scores a file of predictions, JSON or a line each, compressed or not, by the answers in a suite's folder, or by
/// another metric than the suite's.
pub fn score(suite: &Path, predictions: &Path, metric: Option<Metric>) -> Result<Printed, String> {
    let (metric, clip) = match metric {
        Some(metric) => (metric, None),
        None => metric_of(suite).map_err(|bad| bad.to_string())?,
    };
    let table = table(suite, metric, clip)?;
    let Score {
        n,
        n_submitted,
        n_unmatched,
        n_missing,
        figures,
        items: _,
        sealed: _,
    } = tally(&table, metric, predictions)?;
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

fn table(suite: &Path, metric: Metric, clip: Option<Clip>) -> Result<AnswerTable, String> {
    let mut lines = AnswerLines::open(suite, metric).map_err(|bad| bad.to_string())?;
    let mut builder = Builder::new(metric, lines.about()).clip(clip);
    let read = lines.each(|item_id, answer| {
        builder
            .push(item_id, answer)
            .map_err(|error| error.to_string())
    });
    read.map_err(|bad| bad.to_string())?;
    builder.finish().map_err(|error| error.to_string())
}

fn tally(table: &AnswerTable, metric: Metric, predictions: &Path) -> Result<Score, String> {
    let unreadable = |error: std::io::Error| format!("{}: {error}", predictions.display());
    let content = content_of(predictions).map_err(unreadable)?;
    let bytes = BufReader::with_capacity(READ, File::open(predictions).map_err(unreadable)?);
    let progress = Progress::default();
    let prefetch = Prefetch::default();
    let mut tally = Scorer::new(table, metric, &progress, &prefetch);
    let mut ahead = |item_ids: &[&str]| prefetch.load(table, item_ids);
    let scored = match decode(
        bytes,
        content,
        || ControlFlow::Continue(()),
        &mut ahead,
        &mut |next| tally.add(next),
    ) {
        Ended::Whole => tally.finish(),
        Ended::Stopped(failure) => Err(failure),
        Ended::Fault(fault) => return Err(format!("{}: {fault:?}", predictions.display())),
    };
    scored.map_err(|failure| match failure {
        Failure::InvalidPredictions(told) => format!("{}: {told}", predictions.display()),
        Failure::Stopped => "stopped".into(),
    })
}

/// How a file is written: by its first bytes, and an array by its bracket.
fn content_of(path: &Path) -> std::io::Result<Content> {
    let mut first = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut first)?;
    let content_encoding = match first.as_slice() {
        [0x1f, 0x8b, ..] => ContentEncoding::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => ContentEncoding::Zstd,
        _ => ContentEncoding::Identity,
    };
    let name = path.to_string_lossy();
    let named_array = [".json", ".json.gz", ".json.zst"]
        .iter()
        .any(|end| name.ends_with(end));
    let begins_array = content_encoding == ContentEncoding::Identity && {
        let mut bytes = BufReader::new(File::open(path)?);
        bytes.fill_buf()?.trim_ascii_start().first() == Some(&b'[')
    };
    let content_type = if named_array || begins_array {
        ContentType::Json
    } else {
        ContentType::Ndjson
    };
    Ok(Content {
        content_type,
        content_encoding,
        bytes_max: u64::MAX,
        hashed: false,
    })
}
