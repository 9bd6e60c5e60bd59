//! The table with all metrics: one row for each, with its name and its properties.

use super::properties::{Answers, Family, Form, K, LabelUse, Retest, Scale, ValueRange};

/// A metric's properties by which other code decides.
#[derive(Clone, Copy)]
pub(super) struct Properties {
    pub(super) family: Family,
    /// The function from the items to the value. The significance test follows from it.
    pub(super) form: Form,
    /// The possible values. Direction and clip follow from it.
    pub(super) range: ValueRange,
    /// The scale of the confidence interval.
    pub(super) scale: Scale,
    pub(super) answers: Answers,
    pub(super) retest: Retest,
    /// The metric within one cluster makes sense, so that a value can be the mean over clusters.
    pub(super) averages_clusters: bool,
    /// Answers that are all the same leave the metric undefined.
    pub(super) needs_different_answers: bool,
    /// The labels that a figure needs in addition to the stored values.
    pub(super) labels: LabelUse,
    /// Order and repetitions of ids do not count.
    pub(super) compares_sets: bool,
    /// The options have an order that counts.
    pub(super) is_ordinal: bool,
    /// Few people behind an answer give the metric a noise floor: it is a distance between
    /// distributions.
    pub(super) has_noise_floor: bool,
    /// The quantile levels must be symmetric around 0.5 and include it.
    pub(super) needs_symmetric_levels: bool,
}

/// The variant of a row.
#[derive(Clone, Copy)]
pub(super) enum Variant {
    /// A metric without a k.
    Plain(Metric),
    /// The metric at each k.
    AtK(fn(K) -> Metric),
}

/// A metric's row.
pub(super) struct Row {
    /// The name, without the k.
    pub(super) name: &'static str,
    pub(super) variant: Variant,
    pub(super) properties: Properties,
}

/// Most properties in this table are those of a mean over scores from 0 to 1. Each of the following
/// constants has the properties that some metrics share.
const RANKING: Properties = Properties {
    family: Family::Rankings,
    form: Form::Mean,
    range: ValueRange::Unit,
    scale: Scale::Linear,
    answers: Answers::Ids,
    retest: Retest::Prediction,
    averages_clusters: true,
    needs_different_answers: false,
    labels: LabelUse::Nothing,
    compares_sets: false,
    is_ordinal: false,
    has_noise_floor: false,
    needs_symmetric_levels: false,
};

/// Functions of the label counts. A cluster's items lack many of the classes, and their answers may
/// hardly differ.
const CLASSES: Properties = Properties {
    family: Family::Labels,
    form: Form::Counts,
    answers: Answers::Class,
    averages_clusters: false,
    labels: LabelUse::Right,
    ..RANKING
};

const AGREEMENT: Properties = Properties {
    range: ValueRange::Correlation,
    scale: Scale::Fisher,
    needs_different_answers: true,
    labels: LabelUse::RightAndPredicted,
    ..CLASSES
};

const NUMBER_ERROR: Properties = Properties {
    family: Family::Numbers,
    range: ValueRange::Loss,
    answers: Answers::Number,
    ..RANKING
};

const CORRELATION: Properties = Properties {
    form: Form::Joint,
    range: ValueRange::Correlation,
    scale: Scale::Fisher,
    needs_different_answers: true,
    ..NUMBER_ERROR
};

/// Correlations whose interval is symmetric, and which mean little for a cluster's answers, which may
/// hardly differ.
const CONCORDANCE: Properties = Properties {
    scale: Scale::Linear,
    averages_clusters: false,
    ..CORRELATION
};

/// Losses for single labels and for distributions.
const FORECAST: Properties = Properties {
    family: Family::Probabilities,
    range: ValueRange::CrossEntropy,
    answers: Answers::LabelOrShares,
    ..RANKING
};

/// A person's answers are neither an order of all items nor a confidence.
const AREA: Properties = Properties {
    form: Form::Joint,
    range: ValueRange::Unit,
    scale: Scale::Logit,
    answers: Answers::Label,
    retest: Retest::Nothing,
    needs_different_answers: true,
    labels: LabelUse::Right,
    ..FORECAST
};

const DISTANCE: Properties = Properties {
    range: ValueRange::UnitLoss,
    answers: Answers::Distribution,
    has_noise_floor: true,
    ..FORECAST
};

/// A person's answers are no distribution.
const QUANTILE_LOSS: Properties = Properties {
    family: Family::Quantiles,
    retest: Retest::Nothing,
    ..NUMBER_ERROR
};

/// Returns the variant of a row.
macro_rules! variant {
    ($variant:ident) => {
        Variant::Plain(Metric::$variant)
    };
    ($variant:ident K) => {
        Variant::AtK(Metric::$variant)
    };
}

/// Declares [`Metric`] and its table. A row has the documentation, the variant, the name without the k,
/// and the properties.
macro_rules! metrics {
    ($($(#[$doc:meta])* $variant:ident $(($k:ident))? = $name:literal { $($properties:tt)* })*) => {
        /// A scoring metric, written `accuracy`, `ndcg@10`, `rmse`. `docs/metrics.md` defines each one and
        /// names the reference implementation that it agrees with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Metric {
            $($(#[$doc])* $variant $(($k))?,)*
        }

        /// The places of the rows in the table.
        enum Place {
            $($variant,)*
        }

        /// The rows, in the order of the variants.
        pub(super) static ROWS: &[Row] = &[
            $(Row {
                name: $name,
                variant: variant!($variant $($k)?),
                properties: Properties { $($properties)* },
            },)*
        ];

        impl Metric {
            /// Returns the row.
            pub(super) const fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant { .. } => &ROWS[Place::$variant as usize],)*
                }
            }

            /// Returns the k, if the metric has its own.
            pub(super) const fn k(self) -> Option<K> {
                match self {
                    $($(Self::$variant(k @ $k(_)) => Some(k),)?)*
                    _ => None,
                }
            }
        }
    };
}

// The order is that of the names in messages.
metrics! {
    /// The share of items whose first ranked id, or label, is a right answer.
    Accuracy = "accuracy" { form: Form::Share, ..RANKING }
    /// The share of items with a right answer among the first k ids.
    HitRate(K) = "hit_rate" { form: Form::Share, ..RANKING }
    /// The mean share of the right answers that are among the first k ids.
    Recall(K) = "recall" { ..RANKING }
    /// The mean share of the first k ranks that hold a right answer.
    Precision(K) = "precision" { ..RANKING }
    /// The mean normalized discounted cumulative gain of the first k ids.
    Ndcg(K) = "ndcg" { ..RANKING }
    /// The mean reciprocal rank of the first right answer among the first k ids.
    Mrr(K) = "mrr" { ..RANKING }
    /// The mean average precision of the first k ids.
    Map(K) = "map" { ..RANKING }
    /// The mean Jaccard index of the predicted and the right ids.
    Jaccard = "jaccard" { compares_sets: true, ..RANKING }
    /// The mean F1 score of the predicted and the right ids.
    F1Set = "f1_set" { compares_sets: true, ..RANKING }
    /// The share of items whose label is, byte for byte, a right answer.
    ExactMatch = "exact_match" {
        family: Family::Labels, form: Form::Share, answers: Answers::Labels, ..RANKING
    }
    /// The mean F1 score over the classes.
    F1Macro = "f1_macro" { labels: LabelUse::RightAndPredicted, ..CLASSES }
    /// The F1 score over all classes together.
    F1Micro = "f1_micro" { ..CLASSES }
    /// The mean over the suite's classes of the share of their items that are predicted right.
    BalancedAccuracy = "balanced_accuracy" { ..CLASSES }
    /// Matthews' correlation between the predicted labels and the answers.
    Mcc = "mcc" { ..AGREEMENT }
    /// Cohen's kappa between the predicted labels and the answers.
    Kappa = "kappa" { ..AGREEMENT }
    /// Cohen's kappa with quadratic weights between the places of the predicted labels and of the
    /// answers among the options.
    KappaQuadratic = "kappa_quadratic" { is_ordinal: true, ..AGREEMENT }
    /// The square root of the mean squared error.
    Rmse = "rmse" { form: Form::Root, ..NUMBER_ERROR }
    /// The mean absolute error of the predicted numbers.
    Mae = "mae" { ..NUMBER_ERROR }
    /// Spearman's correlation between the ranks of the predictions and of the answers.
    Spearman = "spearman" { ..CORRELATION }
    /// Pearson's correlation between the predictions and the answers.
    Pearson = "pearson" { ..CORRELATION }
    /// Kendall's rank correlation τ_b between the predictions and the answers.
    Kendall = "kendall" { ..CORRELATION }
    /// The concordance correlation coefficient of the predictions and the answers.
    Ccc = "ccc" { ..CONCORDANCE }
    /// The coefficient of determination: the share of the answers' variance that the predictions explain.
    R2 = "r2" { range: ValueRange::AtMostOne, ..CONCORDANCE }
    /// The mean negative natural logarithm of the right label's probability.
    LogLoss = "log_loss" { ..FORECAST }
    /// The mean squared error of the predicted probabilities.
    Brier = "brier" { range: ValueRange::Brier, has_noise_floor: true, ..FORECAST }
    /// The area under the receiver operating characteristic curve, for suites with two labels.
    Auc = "auc" { ..AREA }
    /// The mean over the labels of the area under the curve that separates the label from the rest,
    /// for suites with 3 to 100 labels.
    // A cluster's items lack many of the labels.
    AucOvr = "auc_ovr" { averages_clusters: false, ..AREA }
    /// The expected calibration error, over 15 bins with equal width.
    // A cluster's items fill few of the bins. The bin count in the name is no k.
    Ece = "ece@15" {
        form: Form::Gaps, range: ValueRange::UnitLoss, answers: Answers::Label, retest: Retest::Nothing,
        averages_clusters: false, ..FORECAST
    }
    /// The mean Kullback-Leibler divergence of the answers from the predicted distributions.
    Kl = "kl" { range: ValueRange::CrossEntropy, ..DISTANCE }
    /// The mean total variation distance between answers and predicted distributions.
    Tvd = "tvd" { ..DISTANCE }
    /// The mean Jensen-Shannon divergence, in bits.
    Jsd = "jsd" { ..DISTANCE }
    /// The mean Hellinger distance.
    Hellinger = "hellinger" { ..DISTANCE }
    /// The mean Wasserstein distance over ordered options with equal spaces.
    Wasserstein = "wasserstein" { is_ordinal: true, ..DISTANCE }
    /// The mean ranked probability score over ordered options.
    Rps = "rps" { is_ordinal: true, ..DISTANCE }
    /// The share of items whose most frequent option is among the k most probable labels.
    TopK(K) = "top" {
        form: Form::Share, range: ValueRange::Unit, retest: Retest::PredictionOrLabel, has_noise_floor: false,
        ..DISTANCE
    }
    /// The mean quantile loss over the predicted levels.
    Pinball = "pinball" { ..QUANTILE_LOSS }
    /// The weighted interval score: twice the mean quantile loss of symmetric levels.
    Wis = "wis" { needs_symmetric_levels: true, ..QUANTILE_LOSS }
}
