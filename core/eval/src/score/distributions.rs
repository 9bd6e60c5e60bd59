//! Figures of answers that are distributions. They agree with SciPy's `entropy`, `jensenshannon`,
//! `cityblock` and `wasserstein_distance`, with `rps_score` of scoringrules, and with scikit-learn's
//! `top_k_accuracy_score`.

use std::borrow::Cow;

use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::{Metric, PROBABILITY_MIN, brier_max};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{estimate_within, stderr_of_mean, wilson};

use super::answer_shares::Distribution;
use super::answer_table::{AnswerTable, Item};
use super::part::{Part, PartFigure};
use super::result::Figures;

/// Returns `true` if the table's answers are scored as distributions. Otherwise `log_loss` and `brier`
/// have the figures of a single right label.
pub(super) fn scores_distributions(table: &AnswerTable, metric: Metric) -> bool {
    metric.compares_distributions() || table.has_distributions()
}

/// Accumulates the distances between answers and predicted distributions.
pub(super) struct Distributions<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    value: Sum,
    log_loss: Sum,
    brier: Sum,
    brier_max: f64,
    pair: Pair,
}

/// An item's answer and prediction, over the item's options. The memory is reused for each item.
#[derive(Default)]
struct Pair {
    answer: Vec<f64>,
    prediction: Vec<f64>,
    /// The sum of the probabilities of labels that are no options.
    rest: f64,
    /// The sum of their squares.
    rest_squares: f64,
    /// The places of the labels that are no options in the prediction.
    others: Vec<usize>,
    /// For each label of the table, its last place among an item's own options, plus `base` of that item.
    places: Vec<u64>,
    /// Larger than all `places` of the items before.
    base: u64,
}

impl Pair {
    fn new(table: &AnswerTable) -> Self {
        Self {
            places: vec![0; table.n_labels()],
            base: 1,
            ..Self::default()
        }
    }

    /// Sets the answer of an item and its prediction.
    fn set(
        &mut self,
        table: &AnswerTable,
        answer: Distribution<'_>,
        prediction: &[(Cow<'_, str>, f64)],
    ) {
        let n = answer.len();
        self.answer.clear();
        self.answer.extend((0..n).map(|place| answer.share(place)));
        self.prediction.clear();
        self.prediction.resize(n, 0.0);
        self.others.clear();
        (self.rest, self.rest_squares) = (0.0, 0.0);
        if let Distribution::Own(options, _) = answer {
            for (option, place) in options.iter().zip(self.base..) {
                self.places[*option as usize] = place;
            }
        }
        let mut expected = 0;
        for (at, (label, probability)) in prediction.iter().enumerate() {
            // Most predictions have the order of the options.
            let is_expected =
                expected < n && table.label(answer.option(expected)) == label.as_bytes();
            let place = if is_expected {
                Some(expected)
            } else {
                self.place(table, answer, label)
            };
            if let Some(place) = place {
                self.prediction[place] = *probability;
                expected = place + 1;
            } else {
                self.rest += probability;
                self.rest_squares += probability * probability;
                self.others.push(at);
            }
        }
        self.base += n as u64;
    }

    /// Returns the place of a label among the options.
    fn place(&self, table: &AnswerTable, answer: Distribution<'_>, label: &str) -> Option<usize> {
        let label = table.find_label(label)? as usize;
        let place = match answer {
            Distribution::Own(..) => self.places[label].checked_sub(self.base)? as usize,
            Distribution::Label(..) | Distribution::Named(_) => label,
        };
        (place < answer.len()).then_some(place)
    }

    /// Returns each option's share and probability.
    fn both(&self) -> impl Iterator<Item = (f64, f64)> {
        let predicted = self.prediction.iter().copied();
        self.answer.iter().copied().zip(predicted)
    }

    /// Returns the cross entropy in nats.
    fn log_loss(&self) -> f64 {
        let given = self.both().filter(|(share, _)| *share > 0.0);
        -given
            .map(|(share, probability)| share * probability.clamp(PROBABILITY_MIN, 1.0).ln())
            .sum::<f64>()
    }

    /// Returns the Kullback-Leibler divergence in nats.
    fn kl(&self) -> f64 {
        let given = self.both().filter(|(share, _)| *share > 0.0);
        let sum: f64 = given
            .map(|(share, probability)| share * (share / probability.max(PROBABILITY_MIN)).ln())
            .sum();
        sum.max(0.0)
    }

    /// Returns the sum of the squared differences, scaled to this largest value.
    fn brier(&self, max: f64) -> f64 {
        let squares = self.both().map(|(share, probability)| {
            let difference = probability - share;
            difference * difference
        });
        ((squares.sum::<f64>() + self.rest_squares) * max / 2.0).min(max)
    }

    /// Returns the total variation distance.
    fn tvd(&self) -> f64 {
        let differences = self
            .both()
            .map(|(share, probability)| (probability - share).abs());
        ((differences.sum::<f64>() + self.rest) / 2.0).min(1.0)
    }

    /// Returns the Jensen-Shannon divergence in bits (Lin 1991). A label that is no option has the
    /// share 0, so it adds half its probability.
    fn jsd(&self) -> f64 {
        let to_middle = |one: f64, other: f64| {
            if one > 0.0 {
                one * (2.0 * one / (one + other)).log2()
            } else {
                0.0
            }
        };
        let divergences = self.both().map(|(share, probability)| {
            to_middle(share, probability) + to_middle(probability, share)
        });
        ((divergences.sum::<f64>() + self.rest) / 2.0).clamp(0.0, 1.0)
    }

    /// Returns the Hellinger distance.
    fn hellinger(&self) -> f64 {
        let overlap = self
            .both()
            .map(|(share, probability)| (share * probability).sqrt());
        (1.0 - overlap.sum::<f64>()).max(0.0).sqrt()
    }

    /// Returns the mean over all options but the last of `distance` between the cumulative shares and the
    /// cumulative probabilities, which are scaled to a sum of 1. The probability of labels that are no
    /// options counts as the distance 1.
    fn cumulative(&self, distance: impl Fn(f64) -> f64) -> f64 {
        let total: f64 = self.prediction.iter().sum();
        if total <= 0.0 {
            return 1.0;
        }
        let n = self.answer.len() - 1;
        let (mut difference, mut sum) = (0.0, 0.0);
        for (share, probability) in self.both().take(n) {
            difference += share - probability / total;
            sum += distance(difference);
        }
        let mean = sum / n.max(1) as f64;
        ((1.0 - self.rest) * mean + self.rest).clamp(0.0, 1.0)
    }

    /// Returns the value of a metric that compares all shares.
    fn distance(&self, metric: Metric, table: &AnswerTable) -> f64 {
        match metric {
            Metric::Kl => table.clipped(self.kl()),
            Metric::Jsd => self.jsd(),
            Metric::Hellinger => self.hellinger(),
            Metric::Wasserstein => self.cumulative(f64::abs),
            Metric::Rps => self.cumulative(|difference| difference * difference),
            // The other metrics have no distances between distributions.
            _ => self.tvd(),
        }
    }

    /// Returns 1 if an option with the largest share is among the `k` most probable labels, otherwise 0.
    /// Labels that are no options compete. Of equal probabilities, the first label in byte order is the
    /// most probable one.
    fn top(
        &self,
        table: &AnswerTable,
        answer: Distribution<'_>,
        prediction: &[(Cow<'_, str>, f64)],
        k: usize,
    ) -> f64 {
        let largest = self.answer.iter().copied().fold(0.0, f64::max);
        let label = |place: usize| table.label(answer.option(place));
        let is_before = |(label, probability): (&[u8], f64), (mode, of_mode): (&[u8], f64)| {
            probability > of_mode || (probability == of_mode && label < mode)
        };
        let mut best: Option<(&[u8], f64)> = None;
        for (place, (share, probability)) in self.both().enumerate() {
            let candidate = (label(place), probability);
            if share == largest && best.is_none_or(|best| is_before(candidate, best)) {
                best = Some(candidate);
            }
        }
        let Some(best) = best else { return 0.0 };
        let options = self.prediction.iter().enumerate();
        let before =
            options.filter(|(place, probability)| is_before((label(*place), **probability), best));
        let others = self.others.iter().filter(|at| {
            let (label, probability) = &prediction[**at];
            *probability > 0.0 && is_before((label.as_bytes(), *probability), best)
        });
        f64::from(before.count() + others.count() < k)
    }
}

/// The loss of an item, by its answer and its prediction over all options.
pub(super) struct ItemLoss<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    brier_max: f64,
    pair: Pair,
}

impl<'t> ItemLoss<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> Self {
        Self {
            table,
            metric,
            brier_max: brier_max(table.n_options()),
            pair: Pair::default(),
        }
    }

    /// Returns the loss of this prediction, if this is the answer.
    pub(super) fn of(&mut self, answer: &[f64], prediction: &[f64]) -> f64 {
        let Self { pair, .. } = self;
        pair.answer.clear();
        pair.answer.extend_from_slice(answer);
        pair.prediction.clear();
        pair.prediction.extend_from_slice(prediction);
        match self.metric {
            Metric::Brier => pair.brier(self.brier_max),
            metric => pair.distance(metric, self.table),
        }
    }
}

/// Returns the divergence of an answer without a prediction, whose probabilities count as the smallest
/// one: less than that of a label by the entropy of the answer.
fn missing_kl(answer: Distribution<'_>) -> f64 {
    let shares = (0..answer.len()).map(|place| answer.share(place));
    let given = shares.filter(|share| *share > 0.0);
    given
        .map(|share| share * (share / PROBABILITY_MIN).ln())
        .sum()
}

impl<'t> Distributions<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let distributions = Self {
            table,
            metric,
            value: Sum::default(),
            log_loss: Sum::default(),
            brier: Sum::default(),
            brier_max: brier_max(table.n_options()),
            pair: Pair::new(table),
        };
        let is_share = metric.is_share();
        let worst = if is_share {
            0.0
        } else {
            distributions.range()[1]
        };
        let mut items = ItemScoresBuilder::new(Kind::Scores, table.len(), worst, is_share);
        if metric == Metric::Kl && table.clip().is_none() {
            for item in table.items() {
                items.set(item.ordinal, missing_kl(item.distribution()));
            }
        }
        (distributions, items)
    }

    /// Returns the smallest and the largest value.
    fn range(&self) -> [f64; 2] {
        self.metric.range(self.table.clip(), self.table.n_options())
    }

    /// Returns the loss of an item without a prediction, for the figure `log_loss`.
    fn missing_log_loss(&self) -> f64 {
        let clip = self.table.clip().filter(|_| self.metric == Metric::LogLoss);
        clip.map_or(-PROBABILITY_MIN.ln(), |clip| clip.high)
    }

    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        prediction: &[(Cow<'_, str>, f64)],
        items: &mut ItemScoresBuilder,
    ) {
        let Self {
            table,
            metric,
            brier_max,
            pair,
            ..
        } = self;
        let answer = item.distribution();
        pair.set(table, answer, prediction);
        let mut log_loss = pair.log_loss();
        let brier = pair.brier(*brier_max);
        let value = match metric {
            Metric::LogLoss => {
                log_loss = table.clipped(log_loss);
                log_loss
            }
            Metric::Brier => brier,
            Metric::TopK(k) => pair.top(table, answer, prediction, k.get()),
            metric => pair.distance(*metric, table),
        };
        self.value.add(value);
        self.log_loss.add(log_loss);
        self.brier.add(brier);
        items.set(item.ordinal, value);
    }

    /// Returns the figure of some items.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        if self.metric.is_share() {
            part.share()
        } else {
            part.mean_figure(self.range())
        }
    }

    pub(super) fn finish(mut self, items: &ItemScoresBuilder) -> Figures {
        let n = self.table.len();
        let missing_log_loss = self.missing_log_loss();
        for item in (0..n).filter(|item| !items.is_predicted(*item)) {
            self.value.add(items.value(item));
            self.log_loss.add(missing_log_loss);
            self.brier.add(self.brier_max);
        }
        let mean = |sum: Sum| sum.total() / n.max(1) as f64;
        let value = mean(self.value);
        let estimate = if self.metric.is_share() {
            wilson(value, n)
        } else {
            let stderr = stderr_of_mean(value, n, (0..n).map(|item| items.value(item)));
            stderr.map(|stderr| estimate_within(self.range(), value, stderr, "normal"))
        };
        let figures = [
            (Metric::LogLoss, mean(self.log_loss)),
            (Metric::Brier, mean(self.brier)),
        ];
        let others = figures
            .into_iter()
            .filter(|(metric, _)| *metric != self.metric)
            .map(|(metric, figure)| (metric.to_string(), figure));
        Figures::new(value, estimate, others.collect())
    }
}
