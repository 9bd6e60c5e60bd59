//! A comparison's verdict: which job is better, and whether chance explains it.

use crate::text;

/// The p-value below which a difference is significant.
const LEVEL: f64 = 0.05;

/// A job of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first job.
    A,
    /// The second job.
    B,
}

/// Which job is better, and whether chance explains it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Set if a smaller metric value is better.
    pub lower_is_better: bool,
    /// The job with the better value; `None` if the values are equal.
    pub better: Option<Side>,
    /// Set if the p-value is below 0.05.
    pub is_significant: bool,
    difference: f64,
    p_value: f64,
}

impl Verdict {
    /// Returns the verdict for the first job's value minus the second's, and the p-value.
    pub fn new(lower_is_better: bool, difference: f64, p_value: f64) -> Self {
        let better = match difference {
            0.0 => None,
            difference if (difference < 0.0) == lower_is_better => Some(Side::A),
            _ => Some(Side::B),
        };
        Self {
            lower_is_better,
            better,
            is_significant: p_value < LEVEL,
            difference,
            p_value,
        }
    }

    /// Returns the verdict in words. `metric` is the metric's name.
    pub fn sentence(self, metric: &str) -> String {
        let letter = match self.better {
            None => return String::from("Both jobs have the same value."),
            Some(Side::A) => 'A',
            Some(Side::B) => 'B',
        };
        let size = text::figure(self.difference.abs());
        let direction = direction(self.lower_is_better);
        let verdict = if self.is_significant {
            format!("{letter} is better by {size} ({metric}, {direction}).")
        } else {
            format!("No clear difference: {size} in favour of {letter} ({metric}, {direction}).")
        };
        let odds = odds(self.p_value);
        format!(
            "{verdict} If both were equally good, a difference of this size would occur in {odds}."
        )
    }
}

/// Returns a metric's direction in words.
pub const fn direction(lower_is_better: bool) -> &'static str {
    if lower_is_better {
        "smaller is better"
    } else {
        "larger is better"
    }
}

/// Returns a probability as a share of comparisons.
fn odds(p_value: f64) -> String {
    match 1.0 / p_value {
        of if of < 1.5 => String::from("most comparisons"),
        of if of < 10_000.0 => format!("1 of {} comparisons", text::count(of.round() as i64)),
        _ => String::from("fewer than 1 of 10,000 comparisons"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Metric;

    #[test]
    fn sentences_name_the_better_job_in_both_directions() {
        for (metric, difference, p_value, expected) in [
            (
                "accuracy",
                0.035,
                0.01,
                "A is better by 0.035 (accuracy, larger is better). If both were equally good, a difference of this size would occur in 1 of 100 comparisons.",
            ),
            (
                "accuracy",
                -0.035,
                0.01,
                "B is better by 0.035 (accuracy, larger is better). If both were equally good, a difference of this size would occur in 1 of 100 comparisons.",
            ),
            (
                "brier",
                -0.0755,
                0.000_01,
                "A is better by 0.0755 (brier, smaller is better). If both were equally good, a difference of this size would occur in fewer than 1 of 10,000 comparisons.",
            ),
            (
                "brier",
                0.0755,
                0.04,
                "B is better by 0.0755 (brier, smaller is better). If both were equally good, a difference of this size would occur in 1 of 25 comparisons.",
            ),
            (
                "rmse",
                0.0041,
                0.05,
                "No clear difference: 0.0041 in favour of B (rmse, smaller is better). If both were equally good, a difference of this size would occur in 1 of 20 comparisons.",
            ),
            (
                "ndcg@10",
                0.0041,
                0.9,
                "No clear difference: 0.0041 in favour of A (ndcg@10, larger is better). If both were equally good, a difference of this size would occur in most comparisons.",
            ),
            ("mae", 0.0, 1.0, "Both jobs have the same value."),
        ] {
            let lower_is_better = metric.parse::<Metric>().unwrap().lower_is_better();
            let verdict = Verdict::new(lower_is_better, difference, p_value);
            assert_eq!(verdict.sentence(metric), expected);
        }
    }
}
