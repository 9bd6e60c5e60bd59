//! Suites that several tests attack.

use std::borrow::Cow;

use assay_adversary::{Caps, Item, Suite, SuiteError, bench};
use assay_eval::{Answer, Clip, QuantileLevels};

/// Returns `true` if a suite with the metric can have a ladder: its range has bounds.
pub fn has_grid(metric: &str) -> bool {
    !matches!(metric, "ece@15" | "r2")
}

/// Returns caps with which comparisons are free, and without entries.
pub fn caps(submissions: u32, organizations: u32) -> Caps {
    Caps {
        submissions,
        organizations,
        comparisons_count: false,
        entries: 0,
    }
}

/// Builds a random suite.
pub fn suite(metric: &str, policy: &str, n: usize, seed: u64) -> Result<Suite, SuiteError> {
    bench::suite(metric.parse().unwrap(), policy.parse().unwrap(), n, seed)
}

/// Returns three standard errors for a share among `n` answers that are known with probability `p`.
pub fn three_standard_errors(p: f64, n: usize) -> f64 {
    3.0 * (p * (1.0 - p) / n as f64).sqrt()
}

/// Builds a suite with these labels. Half the items have the first label.
pub fn labelled(metric: &str, policy: &str, n: usize, labels: &[&str]) -> Suite {
    let label = |at: usize| {
        if at.is_multiple_of(2) {
            labels[0]
        } else {
            labels[at * 7919 % 1009 % labels.len()]
        }
    };
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        answer: Answer::Label(Cow::Owned(label(at).into())),
        is_sealed: false,
    };
    Suite::new(
        metric.parse().unwrap(),
        None,
        policy.parse().unwrap(),
        (0..n).map(item).collect(),
    )
    .unwrap()
}

/// Builds a suite whose answers are labels, lists and gains.
pub fn lists(policy: &str) -> Suite {
    let answer = |at: usize| match at % 3 {
        0 => Answer::Set(vec![Cow::Borrowed("x"), Cow::Borrowed("y")]),
        1 => Answer::Gains(vec![(Cow::Borrowed("y"), 2.0), (Cow::Borrowed("z"), 1.0)]),
        _ => Answer::Label(Cow::Borrowed("z")),
    };
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        answer: answer(at),
        is_sealed: at.is_multiple_of(2),
    };
    let (metric, policy) = ("ndcg@5".parse().unwrap(), policy.parse().unwrap());
    Suite::new(metric, None, policy, (0..90).map(item).collect()).unwrap()
}

/// Builds a suite whose answers are 90 different numbers.
pub fn many_numbers(metric: &str, policy: &str) -> Suite {
    let item = |at: usize| Item {
        item_id: Cow::Owned(format!("i{at}")),
        answer: Answer::Number((at * 37 % 101) as f64 / 7.0),
        is_sealed: false,
    };
    let clip = if metric == "spearman" {
        None
    } else {
        Clip::new(0.0, 20.0)
    };
    let (metric, policy) = (metric.parse().unwrap(), policy.parse().unwrap());
    let levels = QuantileLevels::new(&[0.25, 0.5, 0.75]).unwrap();
    let items = (0..90).map(item).collect();
    Suite::with_quantiles(metric, Some(levels), clip, policy, items).unwrap()
}
