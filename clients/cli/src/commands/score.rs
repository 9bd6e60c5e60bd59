//! The offline scorer: a job's figures, without a platform.

use std::path::Path;

use assay_eval::suite::{BadSuite, FolderRules};
use assay_eval::{Metric, offline};
use serde_json::json;

use super::context::Context;
use super::jobs::warn_of_unmatched;
use crate::failure::{Exit, Failure, Result};
use crate::output::View;
use crate::predictions;

const REPORT: View = View {
    columns: &[
        "metric",
        "value",
        "stderr",
        "ci95",
        "n",
        "n_submitted",
        "n_unmatched",
        "n_missing",
    ],
    id: "metric",
};

/// `assay score`
pub fn score(context: &Context, answers: &Path, metric: Option<&str>, file: &str) -> Result<()> {
    let invalid = |message: String| Failure::new(Exit::InvalidInput, message);
    let named = metric
        .map(str::parse::<Metric>)
        .transpose()
        .map_err(|error| Failure::new(Exit::Usage, error))?;
    let bad = |bad: BadSuite| invalid(bad.to_string());
    let rules = if answers.is_dir() {
        FolderRules::read(answers, named).map_err(bad)?
    } else {
        let missing = || {
            Failure::new(Exit::Usage, "--metric is missing")
                .with_advice("A file of answers does not name its metric; a suite's folder does.")
        };
        FolderRules::for_metric(named.ok_or_else(missing)?)
    };
    let table = offline::read_answers_at(answers, &rules).map_err(bad)?;
    let (bytes, format) = predictions::open(file)?;
    let report = offline::score(&table, rules.metric, bytes, format)
        .map_err(|message| invalid(format!("{file}: {message}")))?;
    let report = json!(report);
    context.output.object(REPORT, &report)?;
    warn_of_unmatched(context, &report);
    Ok(())
}
