//! A job's score, as pages show it.

use assay_core::model::job::{EvalResult, Job, JobResult};

/// A job metric's value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// The value of the metric.
    pub value: f64,
    /// The value's standard error, if it is disclosed.
    pub stderr: Option<f64>,
    /// The value's 95 % confidence interval, if it is disclosed.
    pub ci95: Option<[f64; 2]>,
}

impl Score {
    /// Returns the score for an eval that has succeeded.
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

/// Returns the result for an eval that has succeeded.
pub fn eval_result(job: &Job) -> Option<&EvalResult> {
    match job.result.as_ref()? {
        JobResult::Eval(result) => Some(result),
        JobResult::Predict(_) => None,
    }
}
