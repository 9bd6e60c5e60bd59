//! Metrics: their names, and nothing of how they are worked out (the worker does that).

use std::fmt;
use std::str::FromStr;

/// At how many places a ranking is cut: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct K(u16);

impl K {
    const MAX: u16 = 10_000;

    /// The number of places.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Only the one canonical spelling, so that a metric has one name: `5`, never `05` or `+5`.
    fn parse(text: &str) -> Option<Self> {
        let k: u16 = text.parse().ok()?;
        ((1..=Self::MAX).contains(&k) && k.to_string() == text).then_some(Self(k))
    }
}

/// What a suite measures. Written `accuracy`, `hit_rate@10`, `recall@5`, `ndcg@10`, `mrr@10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Is the first of the ranking, or the label, a right answer?
    Accuracy,
    /// Is any of the first k a right answer?
    HitRate(K),
    /// Which part of the right answers is among the first k?
    Recall(K),
    /// Normalized discounted cumulative gain of the first k.
    Ndcg(K),
    /// One over the place of the first right answer among the first k.
    Mrr(K),
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let metric = match text.split_once('@') {
            None if text == "accuracy" => Some(Self::Accuracy),
            None => None,
            Some((name, k)) => K::parse(k).and_then(|k| match name {
                "hit_rate" => Some(Self::HitRate(k)),
                "recall" => Some(Self::Recall(k)),
                "ndcg" => Some(Self::Ndcg(k)),
                "mrr" => Some(Self::Mrr(k)),
                _ => None,
            }),
        };
        metric.ok_or_else(|| {
            format!("expected one of: accuracy, hit_rate@k, recall@k, ndcg@k, mrr@k, with k from 1 to {}, such as ndcg@10", K::MAX)
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accuracy => f.write_str("accuracy"),
            Self::HitRate(K(k)) => write!(f, "hit_rate@{k}"),
            Self::Recall(K(k)) => write!(f, "recall@{k}"),
            Self::Ndcg(K(k)) => write!(f, "ndcg@{k}"),
            Self::Mrr(K(k)) => write!(f, "mrr@{k}"),
        }
    }
}

/// How a suite's version is scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring {
    /// By which metric.
    pub metric: Metric,
    /// Whether the scores of single items are to be kept.
    pub per_item_feedback: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_written_as_it_was_read() {
        for name in ["accuracy", "hit_rate@10", "recall@5", "ndcg@1", "mrr@10000"] {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_list_of_metrics() {
        let bad = ["", "Accuracy", "accuracy@1", "ndcg", "ndcg@", "ndcg@0", "ndcg@01", "ndcg@+1", "ndcg@-1", "ndcg@10001", "ndcg@1@1"];
        for name in bad.into_iter().chain(["ndcg@65546", "ndcg@1 ", " mrr@1", "map@10", "ndcg@1.0"]) {
            assert!(name.parse::<Metric>().unwrap_err().contains("hit_rate@k"), "{name:?}");
        }
    }
}
