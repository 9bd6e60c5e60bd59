//! Metrics: their names, families, bounds and directions. How they are computed is in `score`.

use std::fmt;
use std::str::FromStr;

use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::error::Corrupt;

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
            Self::Accuracy
            | Self::HitRate(_)
            | Self::Recall(_)
            | Self::Precision(_)
            | Self::Ndcg(_)
            | Self::Mrr(_)
            | Self::Map(_) => Family::Rankings,
            Self::ExactMatch | Self::F1Macro | Self::F1Micro => Family::Labels,
            Self::Rmse | Self::Mae | Self::Spearman => Family::Numbers,
            Self::LogLoss | Self::Brier | Self::Auc | Self::Ece => Family::Probabilities,
        }
    }

    /// Whether less is better: of errors and losses.
    pub const fn lower_is_better(self) -> bool {
        matches!(
            self,
            Self::Rmse | Self::Mae | Self::LogLoss | Self::Brier | Self::Ece
        )
    }

    /// That of a published suite, which was checked then: the error is [`Corrupt`].
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown metric"))
    }

    /// At how many places rankings are cut, for the metric and for the figures beside it.
    pub const fn cut(self) -> K {
        match self {
            Self::HitRate(k)
            | Self::Recall(k)
            | Self::Precision(k)
            | Self::Ndcg(k)
            | Self::Mrr(k)
            | Self::Map(k) => k,
            _ => K::USUAL,
        }
    }

    /// Whether the suite may bound the loss of an item: where a loss is a distance or a logarithm.
    pub const fn takes_clip(self) -> bool {
        matches!(self, Self::Rmse | Self::Mae | Self::LogLoss)
    }

    /// The worst and the best value. `n_labels` is the number of labels among the answers. `None`: the metric is unbounded.
    pub fn bounds(self, clip: Option<Clip>, n_labels: usize) -> Option<[f64; 2]> {
        match self {
            Self::Rmse | Self::Mae | Self::LogLoss => clip.map(|clip| [clip.high, clip.low]),
            Self::Brier => Some([brier_max(n_labels), 0.0]),
            Self::Ece => Some([1.0, 0.0]),
            Self::Spearman => Some([-1.0, 1.0]),
            _ => Some([0.0, 1.0]),
        }
    }

    /// Whether it is defined only where every item has a prediction.
    pub const fn needs_all_predictions(self) -> bool {
        matches!(self, Self::Spearman | Self::Auc)
    }

    /// Whether an item has a value of its own. A correlation and an area are of all items together.
    pub const fn has_item_scores(self) -> bool {
        !matches!(self, Self::Spearman | Self::Auc)
    }
}

/// The largest Brier score. With two labels it is the squared error of one of them, as it was first defined; otherwise the sum
/// over all labels.
pub(crate) const fn brier_max(n_labels: usize) -> f64 {
    if n_labels <= 2 { 1.0 } else { 2.0 }
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

/// The bounds of the loss of one item: a smaller loss counts as `low`, a larger one as `high`. Without them the loss of a
/// number or of a probability has no bound that is small enough for a ladder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// The least loss, at least 0.
    pub low: f64,
    /// The largest loss, which is also that of an item without a prediction.
    pub high: f64,
}

impl Clip {
    /// The bounds, if `low` and `high` are finite and 0 ≤ `low` < `high`.
    pub fn new(low: f64, high: f64) -> Option<Self> {
        (high.is_finite() && 0.0 <= low && low < high).then_some(Self { low, high })
    }

    /// The loss within the bounds.
    pub const fn apply(self, loss: f64) -> f64 {
        loss.clamp(self.low, self.high)
    }
}

/// How a suite's version is scored and disclosed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring {
    /// By which metric.
    pub metric: Metric,
    /// The bounds of the loss of an item, if the suite has them.
    pub clip: Option<Clip>,
    /// How much of the figures is disclosed.
    pub policy: DisclosurePolicy,
    /// The grid, if the policy is a ladder.
    pub ladder: Option<Ladder>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_written_as_it_was_read() {
        let with_k = [
            "hit_rate@10",
            "recall@5",
            "precision@3",
            "ndcg@1",
            "mrr@10000",
            "map@7",
        ];
        let without = [
            "accuracy",
            "exact_match",
            "f1_macro",
            "f1_micro",
            "rmse",
            "mae",
            "spearman",
            "log_loss",
            "brier",
            "auc",
            "ece@15",
        ];
        for name in with_k.into_iter().chain(without) {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn of_errors_and_losses_less_is_better() {
        let lower = ["rmse", "mae", "log_loss", "brier", "ece@15"];
        let higher = [
            "accuracy",
            "hit_rate@1",
            "recall@1",
            "precision@1",
            "ndcg@1",
            "mrr@1",
            "map@1",
            "exact_match",
            "f1_macro",
            "f1_micro",
        ];
        let names = lower.into_iter().map(|name| (name, true)).chain(
            higher
                .into_iter()
                .chain(["spearman", "auc"])
                .map(|name| (name, false)),
        );
        for (name, expected) in names {
            assert_eq!(
                name.parse::<Metric>().unwrap().lower_is_better(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn other_names_are_refused_with_the_list_of_metrics() {
        let bad = [
            "",
            "Accuracy",
            "accuracy@1",
            "ndcg",
            "ndcg@",
            "ndcg@0",
            "ndcg@01",
            "ndcg@+1",
            "ndcg@-1",
            "ndcg@10001",
            "ndcg@1@1",
        ];
        for name in bad.into_iter().chain([
            "ndcg@65546",
            "ndcg@1 ",
            " mrr@1",
            "mean@10",
            "ndcg@1.0",
            "rmse@1",
            "ece",
            "ece@10",
            "ece@015",
        ]) {
            assert!(
                name.parse::<Metric>().unwrap_err().contains("hit_rate@k"),
                "{name:?}"
            );
        }
    }
}
