//! The score of a job, as pages show it.

use assay_core::model::job::{EvalResult, Job, JobResult};

/// The value of a job's metric with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The value of the metric.
    pub value: f64,
    /// The standard error of the value, if it is disclosed.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval of the value, if it is disclosed.
    pub ci95: Option<[f64; 2]>,
}

impl Score {
    /// Returns the score of an eval that has succeeded.
    pub fn of(job: &Job) -> Option<Self> {
        let EvalResult {
            value,
            stderr,
            ci95,
            ..
        } = eval_result(job)?;
        Some(Self {
            value: *value,
            stderr: *stderr,
            ci95: *ci95,
        })
    }
}

/// Returns the result of an eval that has succeeded.
pub fn eval_result(job: &Job) -> Option<&EvalResult> {
    match job.result.as_ref()? {
        JobResult::Eval(result) => Some(result),
        JobResult::Predict(_) => None,
    }
}
