//! A job's value as evaluation results in a model's repository on the Hugging Face Hub.

use crate::report::{ExportError, ExportedFile, Report};
use crate::text::{line, yaml};

/// The benchmark that the value is for. The Hub defines both ids.
#[derive(Debug, Clone, Copy)]
pub struct HuggingFace<'a> {
    /// The Hub's dataset, such as `acme/votes`.
    pub dataset_id: &'a str,
    /// The task in the dataset's `eval.yaml`.
    pub task_id: &'a str,
}

/// Returns the file for a model's repository. It has no `verifyToken`: the Hub accepts only its own.
///
/// # Errors
/// If the job has no figures to export.
pub fn hugging_face(
    report: &Report<'_>,
    benchmark: HuggingFace<'_>,
) -> Result<ExportedFile, ExportError> {
    report.check()?;
    let receipt = report.receipt()?;
    let claim = &receipt.statement.predicate;
    let notes = format!(
        "{}; {} version {}",
        claim.summary(),
        line(&claim.suite_id),
        line(&claim.suite_version)
    );
    let content = format!(
        "- dataset:\n    id: {}\n    task_id: {}\n  value: {}\n  date: {}\n  source:\n    url: {}\n    name: {}\n  notes: {}\n",
        yaml(&line(benchmark.dataset_id)),
        yaml(&line(benchmark.task_id)),
        yaml_number(claim.value),
        yaml(&line(&claim.finished_at)),
        yaml(&report.receipt_url(receipt)),
        yaml(&format!("Assay receipt {}", line(&receipt.id))),
        yaml(&notes),
    );
    Ok(ExportedFile {
        path: format!(".eval_results/assay-{}.yaml", report.job.id),
        content,
    })
}

/// Returns a number without an exponent: YAML 1.1 reads `1e-7` as text.
fn yaml_number(value: f64) -> String {
    let number = value.to_string();
    match number.contains('.') {
        true => number,
        false => format!("{number}.0"),
    }
}
