//! Metrics: names, families, bounds, directions and significance tests. The [`score`](crate::score)
//! module computes them.

use std::fmt;
use std::str::FromStr;

use crate::error::Corrupt;

/// The rank count that a metric looks at: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct K(u16);

impl K {
    const MAX: u16 = 10_000;

    /// The k for the additional figures in a metric without its own k.
    pub const DEFAULT: Self = Self(10);

    /// Returns k as a rank count.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Reads k in its one canonical spelling, so that a metric has one name: `5`, never `05` or
    /// `+5`.
    fn parse(text: &str) -> Option<Self> {
        let k: u16 = text.parse().ok()?;
        ((1..=Self::MAX).contains(&k) && k.to_string() == text).then_some(Self(k))
    }
}

/// A scoring metric, written `accuracy`, `ndcg@10`, `rmse`. `docs/metrics.md` defines each one and
/// names the reference implementation that it agrees with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// The share of items whose first ranked id, or label, is a right answer.
    Accuracy,
    /// The share of items with a right answer among the first k ids.
    HitRate(K),
    /// The mean share of the right answers that are among the first k ids.
    Recall(K),
    /// The mean share of the first k ranks that hold a right answer.
    Precision(K),
    /// The mean normalized discounted cumulative gain of the first k ids.
    Ndcg(K),
    /// The mean reciprocal rank of the first right answer among the first k ids.
    Mrr(K),
    /// The mean average precision of the first k ids.
    Map(K),
    /// The mean Jaccard index of the predicted and the right ids.
    Jaccard,
    /// The mean F1 score of the predicted and the right ids.
    F1Set,
    /// The share of items whose label is, byte for byte, a right answer.
    ExactMatch,
    /// The mean F1 score over the classes.
    F1Macro,
    /// The F1 score over all classes together.
    F1Micro,
    /// The mean over the suite's classes of the share of their items that are predicted right.
    BalancedAccuracy,
    /// Matthews' correlation between the predicted labels and the answers.
    Mcc,
    /// Cohen's kappa between the predicted labels and the answers.
    Kappa,
    /// Cohen's kappa with quadratic weights between the places of the predicted labels and of the
    /// answers among the options.
    KappaQuadratic,
    /// The square root of the mean squared error.
    Rmse,
    /// The mean absolute error of the predicted numbers.
    Mae,
    /// Spearman's correlation between the ranks of the predictions and of the answers.
    Spearman,
    /// Pearson's correlation between the predictions and the answers.
    Pearson,
    /// Kendall's rank correlation τ_b between the predictions and the answers.
    Kendall,
    /// The concordance correlation coefficient of the predictions and the answers.
    Ccc,
    /// The coefficient of determination: the share of the answers' variance that the predictions explain.
    R2,
    /// The mean negative natural logarithm of the right label's probability.
    LogLoss,
    /// The mean squared error of the predicted probabilities.
    Brier,
    /// The area under the receiver operating characteristic curve, for suites with two labels.
    Auc,
    /// The mean over the labels of the area under the curve that separates the label from the rest,
    /// for suites with 3 to 100 labels.
    AucOvr,
    /// The expected calibration error, over 15 bins with equal width.
    Ece,
    /// The mean Kullback-Leibler divergence of the answers from the predicted distributions.
    Kl,
    /// The mean total variation distance between answers and predicted distributions.
    Tvd,
    /// The mean Jensen-Shannon divergence, in bits.
    Jsd,
    /// The mean Hellinger distance.
    Hellinger,
    /// The mean Wasserstein distance over ordered options with equal spaces.
    Wasserstein,
    /// The mean ranked probability score over ordered options.
    Rps,
    /// The share of items whose most frequent option is among the k most probable labels.
    TopK(K),
    /// The mean quantile loss over the predicted levels.
    Pinball,
    /// The weighted interval score: twice the mean quantile loss of symmetric levels.
    Wis,
}

/// The prediction form that a metric scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// An id list, best first, or a single id.
    Rankings,
    /// A single label per item.
    Labels,
    /// A finite number per item.
    Numbers,
    /// A probability for each label.
    Probabilities,
    /// A finite number for each of the suite's quantile levels.
    Quantiles,
}

/// A test for the hypothesis that two jobs over the same items are equally good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignificanceTest {
    /// McNemar's exact test, for metrics whose item scores are 0 or 1.
    McNemar,
    /// The paired permutation test, for metrics that are a mean over items or grow with one: if two
    /// jobs swap their scores for an item, the difference at this item changes its sign.
    Permutation,
    /// The difference over its standard error, for metrics over all items together.
    Wald,
}

impl SignificanceTest {
    /// Returns the test's name in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::McNemar => "mcnemar",
            Self::Permutation => "permutation",
            Self::Wald => "wald",
        }
    }
}

/// A metric's properties by which other code decides.
struct Properties {
    family: Family,
    /// A lower value is better: an error or a loss.
    lower_is_better: bool,
    /// An item's loss is a distance or a logarithm: it has no largest value, and a suite may
    /// bound it.
    takes_clip: bool,
    /// An item has its own score. A correlation or an area exists for all items together only,
    /// and only with a prediction for every item.
    has_item_scores: bool,
    significance_test: SignificanceTest,
}

impl Metric {
    /// Returns the properties. This is the only such table: a new metric gets a row here.
    const fn properties(self) -> Properties {
        use SignificanceTest::{McNemar, Permutation, Wald};

        let (family, significance_test) = match self {
            Self::Accuracy | Self::HitRate(_) => (Family::Rankings, McNemar),
            Self::Recall(_)
            | Self::Precision(_)
            | Self::Ndcg(_)
            | Self::Mrr(_)
            | Self::Map(_)
            | Self::Jaccard
            | Self::F1Set => (Family::Rankings, Permutation),
            Self::ExactMatch => (Family::Labels, McNemar),
            Self::F1Macro
            | Self::F1Micro
            | Self::BalancedAccuracy
            | Self::Mcc
            | Self::Kappa
            | Self::KappaQuadratic => (Family::Labels, Wald),
            Self::Rmse | Self::Mae => (Family::Numbers, Permutation),
            Self::Spearman | Self::Pearson | Self::Kendall | Self::Ccc | Self::R2 => {
                (Family::Numbers, Wald)
            }
            Self::LogLoss
            | Self::Brier
            | Self::Kl
            | Self::Tvd
            | Self::Jsd
            | Self::Hellinger
            | Self::Wasserstein
            | Self::Rps => (Family::Probabilities, Permutation),
            Self::TopK(_) => (Family::Probabilities, McNemar),
            Self::Auc | Self::AucOvr | Self::Ece => (Family::Probabilities, Wald),
            Self::Pinball | Self::Wis => (Family::Quantiles, Permutation),
        };
        let (lower_is_better, takes_clip, has_item_scores) = match self {
            Self::Rmse | Self::Mae | Self::LogLoss | Self::Kl | Self::Pinball | Self::Wis => {
                (true, true, true)
            }
            Self::Brier
            | Self::Ece
            | Self::Tvd
            | Self::Jsd
            | Self::Hellinger
            | Self::Wasserstein
            | Self::Rps => (true, false, true),
            Self::Spearman
            | Self::Pearson
            | Self::Kendall
            | Self::Ccc
            | Self::R2
            | Self::Auc
            | Self::AucOvr => (false, false, false),
            Self::Accuracy
            | Self::HitRate(_)
            | Self::Recall(_)
            | Self::Precision(_)
            | Self::Ndcg(_)
            | Self::Mrr(_)
            | Self::Map(_)
            | Self::Jaccard
            | Self::F1Set
            | Self::ExactMatch
            | Self::F1Macro
            | Self::F1Micro
            | Self::BalancedAccuracy
            | Self::Mcc
            | Self::Kappa
            | Self::KappaQuadratic
            | Self::TopK(_) => (false, false, true),
        };
        Properties {
            family,
            lower_is_better,
            takes_clip,
            has_item_scores,
            significance_test,
        }
    }

    /// Returns the prediction form that this metric scores.
    pub const fn family(self) -> Family {
        self.properties().family
    }

    /// Returns `true` if a lower value is better: for errors and losses.
    pub const fn lower_is_better(self) -> bool {
        self.properties().lower_is_better
    }

    /// Returns `true` if answers are numbers.
    pub const fn has_number_answers(self) -> bool {
        matches!(self.family(), Family::Numbers | Family::Quantiles)
    }

    /// Returns `true` if the metric compares sets of ids: order and repetitions do not count.
    pub const fn compares_sets(self) -> bool {
        matches!(self, Self::Jaccard | Self::F1Set)
    }

    /// Returns `true` if an answer can be a distribution of labels.
    pub const fn takes_distributions(self) -> bool {
        matches!(self, Self::LogLoss | Self::Brier) || self.compares_distributions()
    }

    /// Returns `true` if the metric is scored by distributions alone: an answer that is a label is the
    /// distribution with the share 1.
    pub const fn compares_distributions(self) -> bool {
        matches!(
            self,
            Self::Kl
                | Self::Tvd
                | Self::Jsd
                | Self::Hellinger
                | Self::Wasserstein
                | Self::Rps
                | Self::TopK(_)
        )
    }

    /// Returns `true` if the options have an order that counts.
    pub const fn is_ordinal(self) -> bool {
        matches!(self, Self::Wasserstein | Self::Rps | Self::KappaQuadratic)
    }

    /// Returns `true` if a suite may name the options of its items.
    pub const fn takes_options(self) -> bool {
        self.takes_distributions() || matches!(self, Self::KappaQuadratic)
    }

    /// Returns `true` if few people behind an answer give the metric a noise floor: it is a distance
    /// between distributions.
    pub const fn has_noise_floor(self) -> bool {
        matches!(
            self,
            Self::Brier
                | Self::Kl
                | Self::Tvd
                | Self::Jsd
                | Self::Hellinger
                | Self::Wasserstein
                | Self::Rps
        )
    }

    /// Reads a published suite's metric, which was checked when it was published.
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown metric"))
    }

    /// Returns the k at which rankings are cut, for the metric and its additional figures.
    pub const fn cut(self) -> K {
        match self {
            Self::HitRate(k)
            | Self::Recall(k)
            | Self::Precision(k)
            | Self::Ndcg(k)
            | Self::Mrr(k)
            | Self::Map(k)
            | Self::TopK(k) => k,
            _ => K::DEFAULT,
        }
    }

    /// Returns bounds of one item's loss. Fails if this metric does not take them, or if they do not
    /// have the form [`Clip::FORM`].
    pub fn clip(self, low: f64, high: f64) -> Result<Clip, String> {
        if !self.takes_clip() {
            return Err(format!(
                "clip: is for rmse, mae, log_loss, kl, pinball and wis, not for {self}"
            ));
        }
        Clip::new(low, high).ok_or_else(|| format!("clip: {}", Clip::FORM))
    }

    /// Returns `true` if the suite may bound an item's loss: if the loss is a distance or a
    /// logarithm.
    pub const fn takes_clip(self) -> bool {
        self.properties().takes_clip
    }

    /// Returns the worst and the best value, or `None` if the metric is unbounded. `n_options` is
    /// the largest number of options of an item, see [`AnswerTable::n_options`].
    ///
    /// [`AnswerTable::n_options`]: crate::score::AnswerTable::n_options
    pub fn bounds(self, clip: Option<Clip>, n_options: usize) -> Option<[f64; 2]> {
        match self {
            _ if self.takes_clip() => clip.map(|clip| [clip.high, clip.low]),
            Self::Brier => Some([brier_max(n_options), 0.0]),
            _ if self.lower_is_better() => Some([1.0, 0.0]),
            Self::R2 => None,
            Self::Spearman
            | Self::Pearson
            | Self::Kendall
            | Self::Ccc
            | Self::Mcc
            | Self::Kappa
            | Self::KappaQuadratic => Some([-1.0, 1.0]),
            _ => Some([0.0, 1.0]),
        }
    }

    /// Returns the best score of an item: 0 for a loss without bounds.
    pub(crate) fn best(self, clip: Option<Clip>) -> f64 {
        self.bounds(clip, 2).map_or(0.0, |[_, best]| best)
    }

    /// Returns the smallest and the largest value of the metric.
    pub(crate) fn range(self, clip: Option<Clip>, n_options: usize) -> [f64; 2] {
        match self.bounds(clip, n_options) {
            Some([worst, best]) => [worst.min(best), worst.max(best)],
            None if self == Self::R2 => [f64::NEG_INFINITY, 1.0],
            None if matches!(self, Self::LogLoss | Self::Kl) => [0.0, -PROBABILITY_MIN.ln()],
            None => [0.0, f64::INFINITY],
        }
    }

    /// Returns `true` if the metric is defined only with a prediction for every item.
    pub const fn needs_all_predictions(self) -> bool {
        !self.has_item_scores()
    }

    /// Returns the test for the hypothesis that two jobs over the same items are equally good.
    pub const fn significance_test(self) -> SignificanceTest {
        self.properties().significance_test
    }

    /// Returns `true` if answers that are all the same leave the metric undefined.
    pub const fn needs_different_answers(self) -> bool {
        !self.has_item_scores() || matches!(self, Self::Mcc | Self::Kappa | Self::KappaQuadratic)
    }

    /// Returns `true` if the value is the mean over the items' scores. Other metrics are functions of
    /// all items together.
    pub const fn is_mean(self) -> bool {
        !matches!(
            self,
            Self::F1Macro
                | Self::F1Micro
                | Self::BalancedAccuracy
                | Self::Mcc
                | Self::Kappa
                | Self::KappaQuadratic
                | Self::Rmse
                | Self::Spearman
                | Self::Pearson
                | Self::Kendall
                | Self::Ccc
                | Self::R2
                | Self::Auc
                | Self::AucOvr
                | Self::Ece
        )
    }

    /// Returns `true` if a suite can have a retest, whose answers are scored as predictions. One person's
    /// answers are neither an order of all items nor a confidence nor a distribution.
    pub const fn takes_retest(self) -> bool {
        !matches!(
            self,
            Self::Auc | Self::AucOvr | Self::Ece | Self::Pinball | Self::Wis
        )
    }

    /// Returns `true` if the metric within each cluster makes sense, so that a value can be the mean
    /// over clusters.
    pub const fn can_average_clusters(self) -> bool {
        match self {
            Self::Accuracy
            | Self::HitRate(_)
            | Self::Recall(_)
            | Self::Precision(_)
            | Self::Ndcg(_)
            | Self::Mrr(_)
            | Self::Map(_)
            | Self::Jaccard
            | Self::F1Set
            | Self::ExactMatch
            | Self::Rmse
            | Self::Mae
            | Self::Spearman
            | Self::Pearson
            | Self::Kendall
            | Self::LogLoss
            | Self::Brier
            | Self::Kl
            | Self::Tvd
            | Self::Jsd
            | Self::Hellinger
            | Self::Wasserstein
            | Self::Rps
            | Self::TopK(_)
            | Self::Auc
            | Self::Pinball
            | Self::Wis => true,
            // A cluster's items lack many of the classes, or fill few of the bins, and their answers may
            // hardly differ.
            Self::F1Macro
            | Self::F1Micro
            | Self::BalancedAccuracy
            | Self::Mcc
            | Self::Kappa
            | Self::KappaQuadratic
            | Self::AucOvr
            | Self::Ece
            | Self::Ccc
            | Self::R2 => false,
        }
    }

    /// Returns `true` if an item has its own score. A correlation or an area exists for all
    /// items together only.
    pub const fn has_item_scores(self) -> bool {
        self.properties().has_item_scores
    }
}

/// The right label's smallest probability in `log_loss`, so that no loss is infinite.
pub(crate) const PROBABILITY_MIN: f64 = 1e-15;

/// Returns an item's largest Brier score. With at most two labels the sum over the labels is
/// halved, so that it is the squared error in one label's probability.
pub(crate) const fn brier_max(n_labels: usize) -> f64 {
    if n_labels <= 2 { 1.0 } else { 2.0 }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let metric = match text.split_once('@') {
            None => match text {
                "accuracy" => Some(Self::Accuracy),
                "jaccard" => Some(Self::Jaccard),
                "f1_set" => Some(Self::F1Set),
                "exact_match" => Some(Self::ExactMatch),
                "f1_macro" => Some(Self::F1Macro),
                "f1_micro" => Some(Self::F1Micro),
                "balanced_accuracy" => Some(Self::BalancedAccuracy),
                "mcc" => Some(Self::Mcc),
                "kappa" => Some(Self::Kappa),
                "kappa_quadratic" => Some(Self::KappaQuadratic),
                "rmse" => Some(Self::Rmse),
                "mae" => Some(Self::Mae),
                "spearman" => Some(Self::Spearman),
                "pearson" => Some(Self::Pearson),
                "kendall" => Some(Self::Kendall),
                "ccc" => Some(Self::Ccc),
                "r2" => Some(Self::R2),
                "log_loss" => Some(Self::LogLoss),
                "brier" => Some(Self::Brier),
                "auc" => Some(Self::Auc),
                "auc_ovr" => Some(Self::AucOvr),
                "kl" => Some(Self::Kl),
                "tvd" => Some(Self::Tvd),
                "jsd" => Some(Self::Jsd),
                "hellinger" => Some(Self::Hellinger),
                "wasserstein" => Some(Self::Wasserstein),
                "rps" => Some(Self::Rps),
                "pinball" => Some(Self::Pinball),
                "wis" => Some(Self::Wis),
                _ => None,
            },
            // The bin count, which is not a k.
            Some(("ece", bins)) => (bins == "15").then_some(Self::Ece),
            Some((name, k)) => K::parse(k).and_then(|k| match name {
                "hit_rate" => Some(Self::HitRate(k)),
                "recall" => Some(Self::Recall(k)),
                "precision" => Some(Self::Precision(k)),
                "ndcg" => Some(Self::Ndcg(k)),
                "mrr" => Some(Self::Mrr(k)),
                "map" => Some(Self::Map(k)),
                "top" => Some(Self::TopK(k)),
                _ => None,
            }),
        };
        metric.ok_or_else(|| {
            format!(
                "expected one of: accuracy, hit_rate@k, recall@k, precision@k, ndcg@k, mrr@k, map@k, jaccard, f1_set, \
                 exact_match, f1_macro, f1_micro, balanced_accuracy, mcc, kappa, kappa_quadratic, rmse, mae, spearman, pearson, \
                 kendall, ccc, r2, log_loss, brier, auc, auc_ovr, ece@15, kl, tvd, jsd, hellinger, wasserstein, rps, top@k, pinball, wis, with k from 1 to {}, such as ndcg@10",
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
            Self::Jaccard => f.write_str("jaccard"),
            Self::F1Set => f.write_str("f1_set"),
            Self::ExactMatch => f.write_str("exact_match"),
            Self::F1Macro => f.write_str("f1_macro"),
            Self::F1Micro => f.write_str("f1_micro"),
            Self::BalancedAccuracy => f.write_str("balanced_accuracy"),
            Self::Mcc => f.write_str("mcc"),
            Self::Kappa => f.write_str("kappa"),
            Self::KappaQuadratic => f.write_str("kappa_quadratic"),
            Self::Rmse => f.write_str("rmse"),
            Self::Mae => f.write_str("mae"),
            Self::Spearman => f.write_str("spearman"),
            Self::Pearson => f.write_str("pearson"),
            Self::Kendall => f.write_str("kendall"),
            Self::Ccc => f.write_str("ccc"),
            Self::R2 => f.write_str("r2"),
            Self::LogLoss => f.write_str("log_loss"),
            Self::Brier => f.write_str("brier"),
            Self::Auc => f.write_str("auc"),
            Self::AucOvr => f.write_str("auc_ovr"),
            Self::Ece => f.write_str("ece@15"),
            Self::Kl => f.write_str("kl"),
            Self::Tvd => f.write_str("tvd"),
            Self::Jsd => f.write_str("jsd"),
            Self::Hellinger => f.write_str("hellinger"),
            Self::Wasserstein => f.write_str("wasserstein"),
            Self::Rps => f.write_str("rps"),
            Self::TopK(K(k)) => write!(f, "top@{k}"),
            Self::Pinball => f.write_str("pinball"),
            Self::Wis => f.write_str("wis"),
        }
    }
}

/// The bounds of one item's loss: a smaller loss counts as `low`, a larger one as `high`. A
/// ladder needs them, because the losses of [`Metric::takes_clip`] are otherwise unbounded or too
/// widely bounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// The smallest loss, at least 0.
    pub low: f64,
    /// The largest loss, above `low`. It is also the loss for an item without a prediction.
    pub high: f64,
}

impl Clip {
    /// The bounds' form, for messages.
    pub const FORM: &str = "must be [low, high] with 0 <= low < high";

    /// Returns the bounds, or `None` unless both are finite and 0 ≤ `low` < `high`.
    pub fn new(low: f64, high: f64) -> Option<Self> {
        (high.is_finite() && 0.0 <= low && low < high).then_some(Self { low, high })
    }

    /// Returns the loss, clamped to the bounds.
    pub const fn apply(self, loss: f64) -> f64 {
        loss.clamp(self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_round_trips_through_its_name() {
        let with_k = [
            "hit_rate@10",
            "recall@5",
            "precision@3",
            "ndcg@1",
            "mrr@10000",
            "map@7",
            "top@3",
        ];
        let without = [
            "accuracy",
            "jaccard",
            "f1_set",
            "exact_match",
            "f1_macro",
            "f1_micro",
            "balanced_accuracy",
            "mcc",
            "kappa",
            "kappa_quadratic",
            "rmse",
            "mae",
            "spearman",
            "pearson",
            "kendall",
            "ccc",
            "r2",
            "log_loss",
            "brier",
            "auc",
            "auc_ovr",
            "ece@15",
            "kl",
            "tvd",
            "jsd",
            "hellinger",
            "wasserstein",
            "rps",
            "pinball",
            "wis",
        ];
        for name in with_k.into_iter().chain(without) {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn lower_is_better_for_errors_and_losses() {
        let lower = [
            "rmse",
            "mae",
            "log_loss",
            "brier",
            "ece@15",
            "kl",
            "tvd",
            "jsd",
            "hellinger",
            "wasserstein",
            "rps",
            "pinball",
            "wis",
        ];
        let higher = [
            "accuracy",
            "hit_rate@1",
            "recall@1",
            "precision@1",
            "ndcg@1",
            "mrr@1",
            "map@1",
            "jaccard",
            "f1_set",
            "exact_match",
            "f1_macro",
            "f1_micro",
            "balanced_accuracy",
            "mcc",
            "kappa",
            "kappa_quadratic",
            "top@1",
        ];
        let names = lower.into_iter().map(|name| (name, true)).chain(
            higher
                .into_iter()
                .chain([
                    "spearman", "pearson", "kendall", "ccc", "r2", "auc", "auc_ovr",
                ])
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
    fn unknown_name_is_rejected_with_list() {
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
