//! Metrics: their names and what they are made for, and nothing of how they are worked out (the worker does that).

use std::fmt;
use std::str::FromStr;

use crate::{Corrupt, Ladder, Release};

/// At how many places a ranking is cut: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct K(u16);

impl K {
    const MAX: u16 = 10_000;

    /// Where a ranking is cut for the figures beside a metric that has no k of its own.
    pub const USUAL: Self = Self(10);

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

/// What a suite measures. Written `accuracy`, `ndcg@10`, `rmse`. What each of them means, and which reference it agrees
/// with, is in `docs/metrics.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Is the first of the ranking, or the label, a right answer?
    Accuracy,
    /// Is any of the first k a right answer?
    HitRate(K),
    /// Which part of the right answers is among the first k?
    Recall(K),
    /// Which part of the first k places holds a right answer?
    Precision(K),
    /// Normalized discounted cumulative gain of the first k.
    Ndcg(K),
    /// One over the place of the first right answer among the first k.
    Mrr(K),
    /// Average precision of the first k.
    Map(K),
    /// Is the label, byte by byte, a right answer?
    ExactMatch,
    /// The mean of the classes' F1.
    F1Macro,
    /// F1 over all classes together.
    F1Micro,
    /// The root of the mean squared error.
    Rmse,
    /// The mean absolute error.
    Mae,
    /// The correlation of the ranks.
    Spearman,
    /// The mean negative logarithm of the right label's probability.
    LogLoss,
    /// The mean squared error of the probabilities.
    Brier,
    /// The area under the receiver operating characteristic, for two labels.
    Auc,
    /// The expected calibration error, over 15 bins of equal width.
    Ece,
}

/// What a prediction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Ids, best first, or one id.
    Rankings,
    /// One label.
    Labels,
    /// A number.
    Numbers,
    /// A probability for each label.
    Probabilities,
}

impl Metric {
    /// What it scores.
    pub const fn family(self) -> Family {
        match self {
            Self::Accuracy | Self::HitRate(_) | Self::Recall(_) | Self::Precision(_) | Self::Ndcg(_) | Self::Mrr(_) | Self::Map(_) => {
                Family::Rankings
            }
            Self::ExactMatch | Self::F1Macro | Self::F1Micro => Family::Labels,
            Self::Rmse | Self::Mae | Self::Spearman => Family::Numbers,
            Self::LogLoss | Self::Brier | Self::Auc | Self::Ece => Family::Probabilities,
        }
    }

    /// Whether less is better: of errors and losses.
    pub const fn lower_is_better(self) -> bool {
        matches!(self, Self::Rmse | Self::Mae | Self::LogLoss | Self::Brier | Self::Ece)
    }

    /// That of a published suite, which was checked then: the error is [`Corrupt`].
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse().map_err(|_| Corrupt::new("a published suite has an unknown metric"))
    }

    /// Whether an item has a value of its own. A correlation and an area are of all items together.
    pub const fn has_item_scores(self) -> bool {
        !matches!(self, Self::Spearman | Self::Auc)
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let metric = match text.split_once('@') {
            None => match text {
                "accuracy" => Some(Self::Accuracy),
                "exact_match" => Some(Self::ExactMatch),
                "f1_macro" => Some(Self::F1Macro),
                "f1_micro" => Some(Self::F1Micro),
                "rmse" => Some(Self::Rmse),
                "mae" => Some(Self::Mae),
                "spearman" => Some(Self::Spearman),
                "log_loss" => Some(Self::LogLoss),
                "brier" => Some(Self::Brier),
                "auc" => Some(Self::Auc),
                _ => None,
            },
            // The bins, not places.
            Some(("ece", bins)) => (bins == "15").then_some(Self::Ece),
            Some((name, k)) => K::parse(k).and_then(|k| match name {
                "hit_rate" => Some(Self::HitRate(k)),
                "recall" => Some(Self::Recall(k)),
                "precision" => Some(Self::Precision(k)),
                "ndcg" => Some(Self::Ndcg(k)),
                "mrr" => Some(Self::Mrr(k)),
                "map" => Some(Self::Map(k)),
                _ => None,
            }),
        };
        metric.ok_or_else(|| {
            format!(
                "expected one of: accuracy, hit_rate@k, recall@k, precision@k, ndcg@k, mrr@k, map@k, exact_match, f1_macro, f1_micro, \
                 rmse, mae, spearman, log_loss, brier, auc, ece@15, with k from 1 to {}, such as ndcg@10",
                K::MAX
            )
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accuracy => f.write_str("accuracy"),
            Self::HitRate(K(k)) => write!(f, "hit_rate@{k}"),
            Self::Recall(K(k)) => write!(f, "recall@{k}"),
            Self::Precision(K(k)) => write!(f, "precision@{k}"),
            Self::Ndcg(K(k)) => write!(f, "ndcg@{k}"),
            Self::Mrr(K(k)) => write!(f, "mrr@{k}"),
            Self::Map(K(k)) => write!(f, "map@{k}"),
            Self::ExactMatch => f.write_str("exact_match"),
            Self::F1Macro => f.write_str("f1_macro"),
            Self::F1Micro => f.write_str("f1_micro"),
            Self::Rmse => f.write_str("rmse"),
            Self::Mae => f.write_str("mae"),
            Self::Spearman => f.write_str("spearman"),
            Self::LogLoss => f.write_str("log_loss"),
            Self::Brier => f.write_str("brier"),
            Self::Auc => f.write_str("auc"),
            Self::Ece => f.write_str("ece@15"),
        }
    }
}

/// How a suite's version is scored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring {
    /// By which metric.
    pub metric: Metric,
    /// Whether the scores of single items may be read.
    pub per_item_feedback: bool,
    /// How much of the score is told.
    pub release: Release,
}

impl Scoring {
    /// The ladder on which scores are told, where they are.
    pub const fn ladder(&self) -> Option<Ladder> {
        match self.release {
            Release::Ladder(step) => Some(Ladder { step, metric: self.metric }),
            Release::Exact | Release::Rounded(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_written_as_it_was_read() {
        let with_k = ["hit_rate@10", "recall@5", "precision@3", "ndcg@1", "mrr@10000", "map@7"];
        let without = ["accuracy", "exact_match", "f1_macro", "f1_micro", "rmse", "mae", "spearman", "log_loss", "brier", "auc", "ece@15"];
        for name in with_k.into_iter().chain(without) {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn of_errors_and_losses_less_is_better() {
        let lower = ["rmse", "mae", "log_loss", "brier", "ece@15"];
        let higher =
            ["accuracy", "hit_rate@1", "recall@1", "precision@1", "ndcg@1", "mrr@1", "map@1", "exact_match", "f1_macro", "f1_micro"];
        let names =
            lower.into_iter().map(|name| (name, true)).chain(higher.into_iter().chain(["spearman", "auc"]).map(|name| (name, false)));
        for (name, expected) in names {
            assert_eq!(name.parse::<Metric>().unwrap().lower_is_better(), expected, "{name}");
        }
    }

    #[test]
    fn other_names_are_refused_with_the_list_of_metrics() {
        let bad = ["", "Accuracy", "accuracy@1", "ndcg", "ndcg@", "ndcg@0", "ndcg@01", "ndcg@+1", "ndcg@-1", "ndcg@10001", "ndcg@1@1"];
        for name in bad.into_iter().chain(["ndcg@65546", "ndcg@1 ", " mrr@1", "mean@10", "ndcg@1.0", "rmse@1", "ece", "ece@10", "ece@015"])
        {
            assert!(name.parse::<Metric>().unwrap_err().contains("hit_rate@k"), "{name:?}");
        }
    }
}
