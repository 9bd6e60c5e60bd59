//! The comparison between two jobs.

use assay_eval::compare::Verdict;
use serde_json::{Value, json};

use super::context::Context;
use super::suites::metric_of;
use crate::failure::{Exit, Failure, Result};
use crate::operations;
use crate::output::{View, visible, write_line};

const COMPARISON: View = View {
    columns: &[
        "job_a",
        "job_b",
        "baseline",
        "metric",
        "value_a",
        "value_b",
        "difference",
        "ci95",
        "p_value",
        "n",
    ],
    id: "job_a",
};

/// `assay compare`
pub fn compare(
    context: &Context,
    a: &str,
    b: Option<String>,
    baseline: Option<String>,
    fail_if_worse: Option<f64>,
) -> Result<()> {
    if fail_if_worse.is_some_and(|margin| !(margin >= 0.0 && margin.is_finite())) {
        return Err(Failure::new(
            Exit::Usage,
            "--fail-if-worse must be a number of at least 0",
        ));
    }
    let client = context.client()?;
    let comparison = client
        .request(&operations::CREATE_COMPARISON)
        .json(&match &baseline {
            Some(baseline) => json!({"job_a": a, "baseline": baseline}),
            None => json!({"job_a": a, "job_b": b}),
        })
        .send_json()?;
    if context.output.is_table()
        && let Some(headline) = headline(&comparison)
    {
        write_line(&format!("{headline}\n"))?;
    }
    // A reader that has closed the output must not hide that the job is worse.
    let shown = context.output.object(COMPARISON, &comparison);
    match fail_if_worse {
        Some(margin) if is_worse(&comparison, margin)? => Err(Failure::new(
            Exit::Worse,
            format!(
                "{a} is worse than {}: by more than {margin} over the whole interval",
                visible(&baseline.or(b).unwrap_or_default())
            ),
        )),
        _ => shown,
    }
}

/// Returns whether the difference's whole interval is worse than the margin. Fails without an
/// interval.
fn is_worse(comparison: &Value, margin: f64) -> Result<bool> {
    let bound = |index: usize| comparison["ci95"][index].as_f64();
    let (Some(low), Some(high)) = (bound(0), bound(1)) else {
        return Err(Failure::new(
            Exit::Other,
            "the comparison has no interval, so nobody knows if the job is worse",
        ));
    };
    Ok(if metric_of(comparison)?.lower_is_better() {
        low > margin
    } else {
        high < -margin
    })
}

/// Returns the verdict in words.
fn headline(comparison: &Value) -> Option<String> {
    let difference = comparison["difference"].as_f64()?;
    let p_value = comparison["p_value"].as_f64()?;
    let lower_is_better = comparison["lower_is_better"].as_bool()?;
    let metric = visible(comparison["metric"].as_str()?);
    let verdict = Verdict::new(lower_is_better, difference, p_value);
    Some(verdict.sentence(&metric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_means_that_the_whole_interval_is_worse() {
        let comparison = |metric: &str, low: f64, high: f64| json!({"metric": metric, "difference": (low + high) / 2.0, "ci95": [low, high]});
        for (metric, low, high, margin, expected) in [
            ("accuracy", -0.03, -0.01, 0.0, true),
            ("accuracy", -0.03, 0.01, 0.0, false),
            ("accuracy", -0.03, -0.01, 0.02, false),
            ("accuracy", -0.05, -0.03, 0.02, true),
            ("rmse", 0.01, 0.03, 0.0, true),
            ("rmse", -0.03, -0.01, 0.0, false),
        ] {
            let found = is_worse(&comparison(metric, low, high), margin).unwrap();
            assert_eq!(found, expected, "{metric} {low} {high} {margin}");
        }
        let without_interval = json!({"metric": "accuracy", "difference": -0.1, "ci95": null});
        assert!(is_worse(&without_interval, 0.05).is_err());
    }
}
