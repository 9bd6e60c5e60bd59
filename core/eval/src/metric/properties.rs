//! The properties by which metrics differ.

/// The rank count that a metric looks at: 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct K(pub(super) u16);

impl K {
    pub(super) const MAX: u16 = 10_000;

    /// The k for the additional figures in a metric without its own k.
    pub const DEFAULT: Self = Self(10);

    /// Returns k as a rank count.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Reads k in its one canonical spelling, so that a metric has one name: `5`, never `05` or
    /// `+5`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let k: u16 = text.parse().ok()?;
        ((1..=Self::MAX).contains(&k) && k.to_string() == text).then_some(Self(k))
    }
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

/// The function from the items to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The share of items with the score 1. The others have the score 0.
    Share,
    /// The mean over the items' scores.
    Mean,
    /// The root of the mean square of the items' errors.
    Root,
    /// A function of the label counts. An item's prediction is right or wrong.
    Counts,
    /// The mean absolute gap between confidences and outcomes, over bins of confidences.
    Gaps,
    /// A correlation or an area: it exists for all items together only, and only with a prediction for
    /// every item.
    Joint,
}

/// The possible values of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueRange {
    /// From 0 to 1, the best value.
    Unit,
    /// A loss from 0 to 1, the worst value.
    UnitLoss,
    /// From -1 to 1, the best value. Random predictions have the expected value 0.
    Correlation,
    /// At most 1, the best value, without a lower bound.
    AtMostOne,
    /// A loss without a largest value: an item's loss is a distance, and a suite may bound it.
    Loss,
    /// A loss that the logarithm of the smallest probability bounds so widely that a suite may bound it.
    CrossEntropy,
    /// A loss from 0 to an item's largest Brier score.
    Brier,
}

/// The scale on which the confidence interval is symmetric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// The value itself.
    Linear,
    /// Fisher's z, for correlations.
    Fisher,
    /// The logit, for areas.
    Logit,
}

/// The answers that a metric takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Ids: one, several, or several with gains.
    Ids,
    /// One label or several.
    Labels,
    /// One label, the item's class.
    Class,
    /// One label, which probabilities predict.
    Label,
    /// A label or a distribution. Labels alone have their own figures.
    LabelOrShares,
    /// A label or a distribution. A label is the distribution with the share 1.
    Distribution,
    /// A number.
    Number,
}

/// The retested answers that a metric scores as predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retest {
    /// None.
    Nothing,
    /// Those that have the form of a prediction.
    Prediction,
    /// Those that have the form of a prediction, and single labels.
    PredictionOrLabel,
}

/// The labels that a figure needs in addition to the stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LabelUse {
    /// None.
    Nothing,
    /// Each item's right label.
    Right,
    /// Each item's right label and its predicted one, even if that is wrong.
    RightAndPredicted,
}
