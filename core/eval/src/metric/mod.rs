//! Metrics: names, families, bounds, directions and significance tests, which follow from each metric's row
//! in the table. The [`score`](crate::score) module computes them.

#[cfg(test)]
mod list_tests;
mod properties;
mod table;

use std::fmt;
use std::str::FromStr;

use crate::error::Corrupt;

use properties::{LabelUse, ValueRange};
use table::{Properties, ROWS, Row, Variant};

pub(crate) use properties::{Answers, Form, Retest, Scale};
pub use properties::{Family, K, SignificanceTest};
pub use table::Metric;

impl Metric {
    /// Returns all metrics, with this k if they take one.
    pub fn all(k: K) -> impl Iterator<Item = Self> {
        ROWS.iter().map(move |row| row.metric(k))
    }

    /// Returns the names of the metrics with this property, such as `rmse, kl and wis`. A name stands for
    /// all k.
    pub fn listed(has_property: impl Fn(Self) -> bool) -> String {
        match names(has_property).as_slice() {
            [names @ .., last] if !names.is_empty() => format!("{} and {last}", names.join(", ")),
            names => names.concat(),
        }
    }

    /// Returns the properties, which are in the metric's row of the table.
    const fn properties(self) -> &'static Properties {
        &self.row().properties
    }

    /// Returns the prediction form that this metric scores.
    pub const fn family(self) -> Family {
        self.properties().family
    }

    /// Returns `true` if a lower value is better: for errors and losses.
    pub const fn lower_is_better(self) -> bool {
        matches!(
            self.properties().range,
            ValueRange::UnitLoss | ValueRange::Loss | ValueRange::CrossEntropy | ValueRange::Brier
        )
    }

    /// Returns `true` if answers are numbers.
    pub const fn has_number_answers(self) -> bool {
        matches!(self.answers(), Answers::Number)
    }

    /// Returns `true` if the metric compares sets of ids: order and repetitions do not count.
    pub const fn compares_sets(self) -> bool {
        self.properties().compares_sets
    }

    /// Returns `true` if an answer can be a distribution of labels.
    pub const fn takes_distributions(self) -> bool {
        matches!(
            self.answers(),
            Answers::LabelOrShares | Answers::Distribution
        )
    }

    /// Returns `true` if the metric is scored by distributions alone: an answer that is a label is the
    /// distribution with the share 1.
    pub const fn compares_distributions(self) -> bool {
        matches!(self.answers(), Answers::Distribution)
    }

    /// Returns `true` if the options have an order that counts.
    pub const fn is_ordinal(self) -> bool {
        self.properties().is_ordinal
    }

    /// Returns `true` if a suite may name the options of its items.
    pub const fn takes_options(self) -> bool {
        self.takes_distributions() || self.is_ordinal()
    }

    /// Returns `true` if few people behind an answer give the metric a noise floor: it is a distance
    /// between distributions.
    pub const fn has_noise_floor(self) -> bool {
        self.properties().has_noise_floor
    }

    /// Reads a published suite's metric, which was checked when it was published.
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown metric"))
    }

    /// Returns the k at which rankings are cut, for the metric and its additional figures.
    pub const fn cut(self) -> K {
        match self.k() {
            Some(k) => k,
            None => K::DEFAULT,
        }
    }

    /// Returns bounds of one item's loss. Fails if this metric does not take them, or if they do not
    /// have the form [`Clip::FORM`].
    pub fn clip(self, low: f64, high: f64) -> Result<Clip, String> {
        if !self.takes_clip() {
            let metrics = Self::listed(Self::takes_clip);
            return Err(format!("clip: is for {metrics}, not for {self}"));
        }
        Clip::new(low, high).ok_or_else(|| format!("clip: {}", Clip::FORM))
    }

    /// Returns `true` if the suite may bound an item's loss: if the loss is a distance or a
    /// logarithm.
    pub const fn takes_clip(self) -> bool {
        matches!(
            self.properties().range,
            ValueRange::Loss | ValueRange::CrossEntropy
        )
    }

    /// Returns the worst and the best value, or `None` if the metric is unbounded. `n_options` is
    /// the largest number of options of an item, see [`AnswerTable::n_options`].
    ///
    /// [`AnswerTable::n_options`]: crate::score::AnswerTable::n_options
    pub fn bounds(self, clip: Option<Clip>, n_options: usize) -> Option<[f64; 2]> {
        match self.properties().range {
            ValueRange::Unit => Some([0.0, 1.0]),
            ValueRange::UnitLoss => Some([1.0, 0.0]),
            ValueRange::Correlation => Some([-1.0, 1.0]),
            ValueRange::AtMostOne => None,
            ValueRange::Loss | ValueRange::CrossEntropy => clip.map(|clip| [clip.high, clip.low]),
            ValueRange::Brier => Some([brier_max(n_options), 0.0]),
        }
    }

    /// Returns the best score of an item: 0 for a loss without bounds.
    pub(crate) fn best(self, clip: Option<Clip>) -> f64 {
        self.bounds(clip, 2).map_or(0.0, |[_, best]| best)
    }

    /// Returns the smallest and the largest value of the metric.
    pub(crate) fn range(self, clip: Option<Clip>, n_options: usize) -> [f64; 2] {
        match (self.bounds(clip, n_options), self.properties().range) {
            (Some([worst, best]), _) => [worst.min(best), worst.max(best)],
            (None, ValueRange::AtMostOne) => [f64::NEG_INFINITY, 1.0],
            (None, ValueRange::CrossEntropy) => [0.0, -PROBABILITY_MIN.ln()],
            (None, _) => [0.0, f64::INFINITY],
        }
    }

    /// Returns `true` if the metric is defined only with a prediction for every item.
    pub const fn needs_all_predictions(self) -> bool {
        !self.has_item_scores()
    }

    /// Returns the test for the hypothesis that two jobs over the same items are equally good.
    pub const fn significance_test(self) -> SignificanceTest {
        match self.form() {
            Form::Share => SignificanceTest::McNemar,
            Form::Mean | Form::Root => SignificanceTest::Permutation,
            Form::Counts | Form::Gaps | Form::Joint => SignificanceTest::Wald,
        }
    }

    /// Returns `true` if answers that are all the same leave the metric undefined.
    pub const fn needs_different_answers(self) -> bool {
        self.properties().needs_different_answers
    }

    /// Returns `true` if the value is the mean over the items' scores. Other metrics are functions of
    /// all items together.
    pub const fn is_mean(self) -> bool {
        matches!(self.form(), Form::Share | Form::Mean)
    }

    /// Returns `true` if a suite can have a retest, whose answers are scored as predictions. One person's
    /// answers are neither an order of all items nor a confidence nor a distribution.
    pub const fn takes_retest(self) -> bool {
        !matches!(self.retest(), Retest::Nothing)
    }

    /// Returns `true` if the metric within each cluster makes sense, so that a value can be the mean
    /// over clusters.
    pub const fn can_average_clusters(self) -> bool {
        self.properties().averages_clusters
    }

    /// Returns `true` if an item has its own score. A correlation or an area exists for all
    /// items together only.
    pub const fn has_item_scores(self) -> bool {
        !matches!(self.form(), Form::Joint)
    }

    /// Returns how the value follows from the items.
    pub(crate) const fn form(self) -> Form {
        self.properties().form
    }

    /// Returns `true` if the value is the share of items with the score 1, and no item has another score
    /// than 0 or 1.
    pub(crate) const fn is_share(self) -> bool {
        matches!(self.form(), Form::Share)
    }

    /// Returns `true` if the value is the root of a mean square.
    pub(crate) const fn is_root(self) -> bool {
        matches!(self.form(), Form::Root)
    }

    /// Returns `true` if the value is from -1 to 1, and random predictions have the expected value 0.
    pub(crate) const fn is_correlation(self) -> bool {
        matches!(self.properties().range, ValueRange::Correlation)
    }

    /// Returns the scale on which the confidence interval is symmetric.
    pub(crate) const fn scale(self) -> Scale {
        self.properties().scale
    }

    /// Returns the answers that the metric takes.
    pub(crate) const fn answers(self) -> Answers {
        self.properties().answers
    }

    /// Returns the retested answers that the metric scores.
    pub(crate) const fn retest(self) -> Retest {
        self.properties().retest
    }

    /// Returns `true` if a figure needs the right labels: stored values are not enough.
    pub(crate) const fn needs_labels(self) -> bool {
        !matches!(self.properties().labels, LabelUse::Nothing)
    }

    /// Returns `true` if the metric needs the predicted label of each item, even if it is wrong.
    pub(crate) const fn needs_predicted_labels(self) -> bool {
        matches!(self.properties().labels, LabelUse::RightAndPredicted)
    }

    /// Returns `true` if the quantile levels must be symmetric around 0.5 and include it.
    pub(crate) const fn needs_symmetric_levels(self) -> bool {
        self.properties().needs_symmetric_levels
    }
}

/// The right label's smallest probability in `log_loss`, so that no loss is infinite.
pub(crate) const PROBABILITY_MIN: f64 = 1e-15;

/// Returns an item's largest Brier score. With at most two labels the sum over the labels is
/// halved, so that it is the squared error in one label's probability.
pub(crate) const fn brier_max(n_labels: usize) -> f64 {
    if n_labels <= 2 { 1.0 } else { 2.0 }
}

/// Returns the names of the metrics with this property. A name stands for all k.
fn names(has_property: impl Fn(Metric) -> bool) -> Vec<String> {
    let rows = ROWS
        .iter()
        .filter(|row| has_property(row.metric(K::DEFAULT)));
    rows.map(Row::name_for_all_k).collect()
}

impl Row {
    /// Returns the metric, with this k if it takes one.
    fn metric(&self, k: K) -> Metric {
        match self.variant {
            Variant::Plain(metric) => metric,
            Variant::AtK(metric) => metric(k),
        }
    }

    /// Returns the metric with this name, if it has the row.
    fn parse(&self, text: &str) -> Option<Metric> {
        match self.variant {
            Variant::Plain(metric) => (text == self.name).then_some(metric),
            Variant::AtK(metric) => {
                let (name, k) = text.split_once('@')?;
                (name == self.name).then(|| K::parse(k).map(metric))?
            }
        }
    }

    /// Returns the name in messages, which stands for all k.
    fn name_for_all_k(&self) -> String {
        match self.variant {
            Variant::Plain(_) => self.name.to_owned(),
            Variant::AtK(_) => format!("{}@k", self.name),
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ROWS.iter().find_map(|row| row.parse(text)).ok_or_else(|| {
            format!(
                "expected one of: {}, with k from 1 to {}, such as ndcg@10",
                names(|_| true).join(", "),
                K::MAX
            )
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.row().name;
        match self.k() {
            Some(K(k)) => write!(f, "{name}@{k}"),
            None => f.write_str(name),
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
    use std::collections::{HashMap, HashSet};
    use std::mem::{Discriminant, discriminant};

    use super::*;
    use crate::quantile_levels::QuantileLevels;
    use crate::score::{Builder, Progress, score};
    use crate::suite::answers::Answer;

    #[test]
    fn metric_round_trips_through_its_name() {
        for name in [
            "accuracy",
            "hit_rate@10",
            "ndcg@1",
            "mrr@10000",
            "top@3",
            "ece@15",
            "r2",
        ] {
            assert_eq!(name.parse::<Metric>().unwrap().to_string(), name);
        }
        for k in [1, 10, 10_000].map(K) {
            for metric in Metric::all(k) {
                let name = metric.to_string();
                assert_eq!(name.parse(), Ok(metric), "{name}");
                assert_eq!(metric.cut(), metric.k().unwrap_or(K::DEFAULT), "{name}");
            }
        }
    }

    #[test]
    fn table_has_each_variant_once() {
        let variants: HashSet<Discriminant<Metric>> = Metric::all(K::DEFAULT)
            .map(|metric| discriminant(&metric))
            .collect();
        let names: HashSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!([variants.len(), names.len()], [ROWS.len(); 2]);
        for row in ROWS {
            let metric = row.metric(K(3));
            assert!(std::ptr::eq(metric.row(), row), "{metric}");
            let has_k = row.name_for_all_k() == format!("{}@k", row.name);
            assert_eq!(metric.k(), has_k.then_some(K(3)), "{metric}");
        }
    }

    /// Returns the answers of 24 items and different predictions, as JSON. `None`: there is no prediction.
    fn case(metric: Metric) -> impl Iterator<Item = (String, Option<String>)> {
        // Without a pattern between the two, but always the same.
        let number = |at: usize, salt: usize| (at * at * 7 + at * salt + salt) % 11;
        (0..24).map(move |at| {
            let (answer, guess) = (number(at, 3), number(at, 5));
            let label =
                |number: usize| ["a", "b", "c"][number % if metric == Metric::Auc { 2 } else { 3 }];
            let ids = |first: usize| format!("[\"i{}\",\"i{}\"]", first % 5, first % 5 + 5);
            let shares = |first: usize| {
                let first = (first + 1) as f64 / 20.0;
                format!("{{\"a\":{first},\"b\":{},\"c\":0.25}}", 0.75 - first)
            };
            match metric.family() {
                Family::Rankings => {
                    let ranking = format!(
                        "[\"i{}\",\"i{}\",\"i{}\"]",
                        guess % 5,
                        guess % 7 + 5,
                        (guess + 3) % 10
                    );
                    (ids(answer), Some(ranking))
                }
                Family::Labels => {
                    let quoted = |number| format!("\"{}\"", label(number));
                    (quoted(answer), (at != 4).then(|| quoted(guess)))
                }
                Family::Numbers => (answer.to_string(), Some((guess + answer).to_string())),
                Family::Quantiles => {
                    let levels = format!(
                        "{{\"0.25\":{guess},\"0.5\":{},\"0.75\":{}}}",
                        guess + 1,
                        guess + 3
                    );
                    (answer.to_string(), Some(levels))
                }
                Family::Probabilities if metric.compares_distributions() => {
                    (shares(answer), Some(shares(guess)))
                }
                Family::Probabilities => {
                    let sure = 0.5 + guess as f64 / 25.0;
                    let other = label(guess + 1);
                    let given =
                        format!("{{\"{}\":{sure},\"{other}\":{}}}", label(guess), 1.0 - sure);
                    (format!("\"{}\"", label(answer)), Some(given))
                }
            }
        })
    }

    /// Returns the value of a submission with these answers and predictions.
    fn value(metric: Metric, items: impl Iterator<Item = (String, Option<String>)>) -> f64 {
        let levels = QuantileLevels::new(&[0.25, 0.5, 0.75]).unwrap();
        let levels = (metric.family() == Family::Quantiles).then_some(levels);
        let labels = ["a", "b", "c"].map(str::to_owned);
        let labels = if metric.takes_options() {
            &labels[..]
        } else {
            &[]
        };
        let mut table = Builder::new(metric, 24).options(labels).quantiles(levels);
        let mut predictions = Vec::new();
        for (at, (answer, prediction)) in items.enumerate() {
            let answer = Answer::parse(&answer, &metric).unwrap();
            table.push(&format!("i{at}"), &answer).unwrap();
            let prediction =
                prediction.map(|value| format!("{{\"item_id\":\"i{at}\",\"prediction\":{value}}}"));
            predictions.extend(prediction);
        }
        let predictions = format!("[{}]", predictions.join(","));
        let table = table.finish().unwrap();
        let progress = Progress::default();
        let scored = score(&table, None, metric, predictions.as_bytes(), &progress);
        scored.unwrap().figures.value
    }

    /// A row without a formula of its own would have the value of another metric.
    #[test]
    fn each_metric_has_its_own_value() {
        let mut names = HashMap::new();
        for metric in Metric::all(K(3)) {
            let value = value(metric, case(metric));
            if let Some(other) = names.insert((metric.family(), value.to_bits()), metric) {
                panic!("{metric} and {other} have the value {value}");
            }
        }
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn answers_are_the_best_predictions() {
        for metric in Metric::all(K(2)) {
            let right = |(answer, _): (String, _)| {
                let prediction = match metric.family() {
                    Family::Quantiles => {
                        format!("{{\"0.25\":{answer},\"0.5\":{answer},\"0.75\":{answer}}}")
                    }
                    Family::Probabilities if answer.starts_with('"') => format!("{{{answer}:1}}"),
                    _ => answer.clone(),
                };
                (answer, Some(prediction))
            };
            let best = value(metric, case(metric).map(right));
            let other = value(metric, case(metric));
            let [low, high] = metric.range(None, 3);
            let (limit, is_better) = if metric.lower_is_better() {
                (low, best < other)
            } else {
                (high, best > other)
            };
            assert!(is_better, "{metric}: {best} {other}");
            // The root in `hellinger` enlarges rounding.
            assert!((best - limit).abs() <= 1e-7, "{metric}: {best}");
        }
    }

    #[test]
    fn properties_fit_together() {
        for metric in Metric::all(K::DEFAULT) {
            let is_number = matches!(metric.family(), Family::Numbers | Family::Quantiles);
            assert_eq!(metric.has_number_answers(), is_number, "{metric}");
            let is_ranking = metric.family() == Family::Rankings;
            assert_eq!(metric.answers() == Answers::Ids, is_ranking, "{metric}");
            let needs_labels = metric.needs_labels();
            assert!(!needs_labels || !(is_number || is_ranking), "{metric}");
            let is_joint = metric.form() == Form::Joint;
            assert!(!is_joint || metric.needs_different_answers(), "{metric}");
            let is_loss = metric.is_mean() || metric.is_root();
            assert!(!metric.takes_clip() || is_loss, "{metric}");
            let has_floor = metric.has_noise_floor();
            assert!(!has_floor || metric.takes_distributions(), "{metric}");
            let retests_labels = metric.retest() == Retest::PredictionOrLabel;
            assert!(!retests_labels || metric.is_share(), "{metric}");
            let clip = Clip::new(0.0, 2.0);
            if let Some([worst, best]) = metric.bounds(clip, 3) {
                assert_eq!(best < worst, metric.lower_is_better(), "{metric}");
                assert_eq!(metric.best(clip), best, "{metric}");
            }
        }
    }

    #[test]
    fn messages_list_metrics_of_table() {
        let message = "x".parse::<Metric>().unwrap_err();
        let list = message
            .strip_prefix("expected one of: accuracy, hit_rate@k, recall@k, ")
            .and_then(|rest| rest.strip_suffix(", with k from 1 to 10000, such as ndcg@10"));
        assert_eq!(list.unwrap().split(", ").count(), ROWS.len() - 3);
        assert!(
            message.contains(" brier, auc, auc_ovr, ece@15, kl, "),
            "{message}"
        );
        assert!(message.contains(" rps, top@k, pinball, wis"), "{message}");
        let error = Metric::Accuracy.clip(0.0, 1.0).unwrap_err();
        let list = error.strip_prefix("clip: is for rmse, mae, ").unwrap();
        assert!(list.ends_with(" and wis, not for accuracy"), "{error}");
        assert_eq!(Metric::listed(|metric| metric == Metric::Mae), "mae");
        assert_eq!(Metric::listed(|_| false), "");
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
