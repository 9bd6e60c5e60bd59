//! Probability figures. They agree with scikit-learn's `log_loss`, `brier_score_loss`,
//! `roc_auc_score` and `calibration_curve`.

use std::borrow::Cow;

use crate::clusters::Clusters;
use crate::compare::StoredItem;
use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::{Metric, PROBABILITY_MIN, brier_max};
use crate::stats::bootstrap::Bootstrap;
use crate::stats::calibration::{self, BINS};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, estimate_within, stderr_of_mean};

use super::answer_table::{AnswerTable, Item};
use super::part::{Part, PartFigure};
use super::ranks::{RANKED_ITEMS_MAX, ranks};
use super::result::{Failure, Figures};

/// Accumulates probability losses.
pub(super) struct Probabilities<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    log_loss: Sum,
    brier: Sum,
    /// Per calibration bin, the summed gaps between confidence and outcome.
    bins: [Sum; BINS],
    /// The later one, in byte order, among a suite's two labels; `None` if it has more or fewer.
    positive: Option<u32>,
    /// The positive label's probability by ordinal, for `auc` as an additional figure; empty
    /// for large suites.
    positives: Vec<f64>,
    /// For `auc_ovr`, the probability of each of the suite's labels, item by item in the order of the
    /// suite; otherwise empty.
    shares: Vec<f64>,
    brier_max: f64,
    log_loss_max: f64,
}

impl<'t> Probabilities<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let n = table.len();
        let positive = (table.n_labels() == 2).then(|| u32::from(table.label(1) > table.label(0)));
        let brier_max = brier_max(table.n_options());
        let log_loss_max = table.clip().map_or(-PROBABILITY_MIN.ln(), |clip| clip.high);
        let (kind, worst) = match metric {
            Metric::LogLoss => (Kind::Scores, log_loss_max),
            Metric::Brier => (Kind::Scores, brier_max),
            Metric::Ece => (Kind::Confidences, -1.0),
            _ => (Kind::Parts, 0.0),
        };
        let n_kept = if metric != Metric::Auc && positive.is_some() && n <= RANKED_ITEMS_MAX {
            n
        } else {
            0
        };
        let n_shares = if metric == Metric::AucOvr {
            n * table.n_labels()
        } else {
            0
        };
        let probabilities = Self {
            table,
            metric,
            log_loss: Sum::default(),
            brier: Sum::default(),
            bins: [Sum::default(); BINS],
            positive,
            positives: vec![0.0; n_kept],
            shares: vec![0.0; n_shares],
            brier_max,
            log_loss_max,
        };
        (probabilities, ItemScoresBuilder::new(kind, n, worst, false))
    }

    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        probabilities: &[(Cow<'_, str>, f64)],
        items: &mut ItemScoresBuilder,
    ) {
        let right = self.table.label(item.label());
        let positive = self.positive.map(|label| self.table.label(label));
        let mut of_right = 0.0;
        let mut of_positive = 0.0;
        let mut squares = 0.0;
        let (mut top, mut confidence): (&[u8], f64) = (&[], -1.0);
        for (label, probability) in probabilities {
            if self.metric == Metric::AucOvr
                && let Some(known) = self.table.find_label(label)
            {
                self.shares[item.ordinal * self.table.n_labels() + known as usize] = *probability;
            }
            let label = label.as_bytes();
            if label == right {
                of_right = *probability;
            } else {
                squares += probability * probability;
            }
            if positive == Some(label) {
                of_positive = *probability;
            }
            if *probability > confidence || (*probability == confidence && label < top) {
                (top, confidence) = (label, *probability);
            }
        }
        let log_loss = self
            .table
            .clipped(-of_right.clamp(PROBABILITY_MIN, 1.0).ln());
        let brier = (squares + (1.0 - of_right) * (1.0 - of_right)) * self.brier_max / 2.0;
        self.log_loss.add(log_loss);
        self.brier.add(brier);
        let is_right = top == right;
        self.bins[calibration::bin(confidence)].add(confidence - f64::from(is_right));
        if let Some(positive) = self.positives.get_mut(item.ordinal) {
            *positive = of_positive;
        }
        let value = match self.metric {
            Metric::LogLoss => log_loss,
            Metric::Brier => brier,
            Metric::Ece => confidence,
            _ => of_positive,
        };
        items.set(item.ordinal, value);
        if is_right && items.kind() == Kind::Confidences {
            items.mark_right(item.ordinal);
        }
    }

    /// Returns the figure of some items.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        match self.metric {
            Metric::LogLoss => part.mean_figure([0.0, self.log_loss_max]),
            Metric::Brier => part.mean_figure([0.0, self.brier_max]),
            Metric::Auc | Metric::AucOvr => {
                let positives: Vec<f64> = part.values().collect();
                let labels = part.places().map(|place| part.labels[place]);
                let is_positive = labels.map(|label| self.positive == Some(label));
                let area = if self.metric == Metric::AucOvr {
                    self.mean_area(part.places(), part.labels)
                } else {
                    auc(&positives, is_positive)
                };
                area.map_or_else(
                    || PartFigure::undefined(part.len()),
                    |area| PartFigure {
                        value: area.value,
                        estimate: area.estimate,
                        contributions: area.contributions,
                    },
                )
            }
            _ => {
                let contributions = part.contributions(self.metric);
                let n = part.len().max(1) as f64;
                let value = contributions.iter().copied().collect::<Sum>().total() / n;
                let stderr = bootstrap_ece(part.stored().enumerate());
                PartFigure {
                    value,
                    estimate: stderr
                        .map(|stderr| estimate_within([0.0, 1.0], value, stderr, "bootstrap")),
                    contributions,
                }
            }
        }
    }

    /// Returns `true` if the answers of some items leave the metric defined: an area needs both labels.
    pub(super) fn is_defined(&self, part: Part<'_>) -> bool {
        if !self.metric.needs_different_answers() {
            return true;
        }
        let mut labels = part.places().map(|place| part.labels[place]);
        let first = labels.next();
        labels.any(|label| Some(label) != first)
    }

    /// Returns the mean area, where each label is compared with the rest. `labels` are the
    /// right labels of all items. `None` if these items have fewer than two labels.
    fn mean_area(
        &self,
        places: impl Iterator<Item = usize> + Clone,
        labels: &[u32],
    ) -> Option<Area> {
        let n_labels = self.table.n_labels();
        let mut supported: Vec<u32> = places.clone().map(|place| labels[place]).collect();
        let n = supported.len();
        supported.sort_unstable();
        supported.dedup();
        if supported.len() < 2 {
            return None;
        }
        let mut values = Sum::default();
        let mut contributions = vec![Sum::default(); n];
        for label in &supported {
            let share = |place: usize| self.shares[place * n_labels + *label as usize];
            let scores: Vec<f64> = places.clone().map(share).collect();
            let is_positive = places.clone().map(|place| labels[place] == *label);
            let area = auc(&scores, is_positive)?;
            values.add(area.value);
            let item_contributions = contributions.iter_mut().zip(area.contributions);
            item_contributions.for_each(|(sum, contribution)| sum.add(contribution));
        }
        let mean = |sum: Sum| sum.total() / supported.len() as f64;
        let value = mean(values);
        let contributions: Vec<f64> = contributions.into_iter().map(mean).collect();
        let stderr = stderr_of_mean(value, n, contributions.iter().copied());
        Some(Area {
            value,
            estimate: stderr.map(|stderr| estimate_within([0.0, 1.0], value, stderr, "delta")),
            contributions,
        })
    }

    pub(super) fn finish(
        mut self,
        items: &mut ItemScoresBuilder,
        n_missing: usize,
    ) -> Result<Figures, Failure> {
        let n = self.table.len();
        let missing = n_missing as f64;
        self.log_loss.add(self.log_loss_max * missing);
        self.brier.add(self.brier_max * missing);
        let n_items = n.max(1) as f64;
        let log_loss = self.log_loss.total() / n_items;
        let brier = self.brier.total() / n_items;
        // A missing item has the largest gap, and no bin: in one it could cancel others'
        // gaps.
        let ece = (self.bins.iter().map(|bin| bin.total().abs()).sum::<f64>() + missing) / n_items;
        let mut figures = vec![("log_loss", log_loss), ("brier", brier), ("ece@15", ece)];
        let mut area = None;
        if self.metric == Metric::Auc {
            self.positives = (0..n).map(|item| items.value(item)).collect();
        }
        if n_missing == 0
            && let Some(positive) = self.positive
            && self.positives.len() == n
        {
            area = auc(
                &self.positives,
                self.table.items().map(|item| item.label() == positive),
            );
            figures.extend(area.as_ref().map(|area| ("auc", area.value)));
        }
        if self.metric == Metric::AucOvr {
            let labels: Vec<u32> = self.table.items().map(Item::label).collect();
            area = self.mean_area(0..n, &labels);
            figures.extend(area.as_ref().map(|area| ("auc_ovr", area.value)));
        }
        if self.metric.needs_all_predictions()
            && let Some(area) = &area
        {
            area.contributions
                .iter()
                .enumerate()
                .for_each(|(item, contribution)| items.set(item, *contribution));
        }
        let metric = self.metric.to_string();
        let value = figures
            .iter()
            .find(|(name, _)| **name == metric)
            .map(|(_, figure)| *figure);
        // Only an area can be missing. Publishing has checked the number of labels.
        let value = value.ok_or_else(|| {
            Failure::InvalidPredictions(format!("{metric} is not defined for this suite"))
        })?;
        let normal = |worst| {
            let stderr = stderr_of_mean(value, n, (0..n).map(|item| items.value(item)));
            stderr.map(|stderr| estimate_within([0.0, worst], value, stderr, "normal"))
        };
        let estimate = match self.metric {
            Metric::LogLoss => normal(self.log_loss_max),
            Metric::Brier => normal(self.brier_max),
            Metric::Auc | Metric::AucOvr => area.and_then(|area| area.estimate),
            _ => stderr_of_ece(items)
                .map(|stderr| estimate_within([0.0, 1.0], value, stderr, "bootstrap")),
        };
        let others = figures
            .into_iter()
            .filter(|(name, _)| *name != metric)
            .map(|(name, figure)| (name.to_owned(), figure));
        Ok(Figures::new(value, estimate, others.collect()))
    }
}

/// Returns the calibration error's standard error by the bootstrap, as there is no formula for
/// it.
fn stderr_of_ece(items: &ItemScoresBuilder) -> Option<f64> {
    bootstrap_ece(items.stored().enumerate())
}

/// Returns the calibration error's standard error over items in clusters: a replicate draws whole
/// clusters. `None` with fewer than [`CLUSTERS_MIN`](crate::clusters::CLUSTERS_MIN) clusters.
pub(super) fn stderr_of_ece_by_cluster(
    items: impl Iterator<Item = StoredItem>,
    clusters: &Clusters,
) -> Option<f64> {
    if !clusters.sizes().are_enough() {
        return None;
    }
    let n = clusters.sizes().len() as f64;
    let draws = clusters
        .item_clusters()
        .iter()
        .map(|cluster| *cluster as usize);
    bootstrap_ece(draws.zip(items)).map(|stderr| stderr * (n / (n - 1.0)).sqrt())
}

/// Returns the bootstrap's standard error over items with the numbers of their draws. Items with one
/// number are drawn together.
fn bootstrap_ece(items: impl Iterator<Item = (usize, StoredItem)>) -> Option<f64> {
    let mut bootstrap = Bootstrap::<{ BINS + 1 }>::default();
    for (draw, item) in items {
        let (bin, gap) = calibration::gap(item.value, item.is_right);
        bootstrap.add(draw, bin, gap);
    }
    bootstrap.stderr(|bins, n| bins.iter().map(|bin| bin.abs()).sum::<f64>() / n)
}

/// The area under the curve.
struct Area {
    value: f64,
    estimate: Option<Estimate>,
    /// Each item's contribution to the area.
    contributions: Vec<f64>,
}

/// Returns the area under the curve, and its standard error by DeLong, DeLong and Clarke-Pearson
/// (1988), computed from ranks (Sun and Xu 2014). `None` if all items are positive, or none is.
fn auc(scores: &[f64], is_positive: impl Iterator<Item = bool>) -> Option<Area> {
    let is_positive: Vec<bool> = is_positive.collect();
    let side = |positive: bool, values: &[f64]| -> Vec<f64> {
        values
            .iter()
            .zip(&is_positive)
            .filter(|(_, is_positive)| **is_positive == positive)
            .map(|(value, _)| *value)
            .collect()
    };
    let all = ranks(scores);
    let positive = side(true, &all);
    let negative = side(false, &all);
    let n_positive = positive.len() as f64;
    let n_negative = negative.len() as f64;
    if positive.is_empty() || negative.is_empty() {
        return None;
    }
    let sum = positive.iter().copied().collect::<Sum>().total();
    let value = (sum - n_positive * (n_positive + 1.0) / 2.0) / (n_positive * n_negative);
    // For each item, the share among the other side's items that it is ordered correctly with.
    let above: Vec<f64> = positive
        .iter()
        .zip(ranks(&side(true, scores)))
        .map(|(rank, rank_in_side)| (rank - rank_in_side) / n_negative)
        .collect();
    let below: Vec<f64> = negative
        .iter()
        .zip(ranks(&side(false, scores)))
        .map(|(rank, rank_in_side)| 1.0 - (rank - rank_in_side) / n_positive)
        .collect();
    let variance = |shares: &[f64]| {
        stderr_of_mean(value, shares.len(), shares.iter().copied()).map(|stderr| stderr * stderr)
    };
    let estimate = variance(&above)
        .zip(variance(&below))
        .map(|(above, below)| estimate_within([0.0, 1.0], value, (above + below).sqrt(), "delong"));
    let n = n_positive + n_negative;
    let mut above = above.into_iter();
    let mut below = below.into_iter();
    let contribution = |is_positive: &bool| {
        let (share, n_side) = if *is_positive {
            (above.next(), n_positive)
        } else {
            (below.next(), n_negative)
        };
        value + (share.unwrap_or(value) - value) * n / n_side
    };
    let contributions = is_positive.iter().map(contribution).collect();
    Some(Area {
        value,
        estimate,
        contributions,
    })
}
