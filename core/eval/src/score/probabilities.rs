//! What probabilities are worth: the figures of scikit-learn's `log_loss`, `brier_score_loss`, `roc_auc_score` and
//! `calibration_curve`.

use std::borrow::Cow;

use crate::item_scores::{ItemScores, Kind};
use crate::metric::Metric;
use crate::metric::brier_max;
use crate::stats::calibration::{self, BINS};
use crate::stats::compensated_sum::Sum;

use super::answer_table::{AnswerTable, Item};
use super::numbers::ranks;
use super::{Failure, Figures, RANKED_BESIDE_MAX};
use crate::stats::bootstrap::Bootstrap;
use crate::stats::confidence::{Estimate, around, stderr_of_mean};

/// A right label is taken to have been given at least this.
const LEAST: f64 = 1e-15;

/// Compares probabilities one after the other.
pub(super) struct Probabilities<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    log_loss: Sum,
    brier: Sum,
    /// Of each bin, the sum of the confidences less that of the right ones.
    bins: [Sum; BINS],
    /// Where a suite has two labels: the one that comes later in the order of their bytes.
    positive: Option<u32>,
    /// By ordinal, the probability of the positive label, for the area beside another metric; empty for large suites.
    beside: Vec<f64>,
    brier_max: f64,
    log_loss_max: f64,
}

impl<'t> Probabilities<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        let n = table.len();
        let positive = (table.n_labels() == 2).then(|| u32::from(table.label(1) > table.label(0)));
        let brier_max = brier_max(table.n_labels());
        let log_loss_max = table.clip().map_or(-LEAST.ln(), |clip| clip.high);
        let (kind, worst) = match metric {
            Metric::LogLoss => (Kind::Scores, log_loss_max),
            Metric::Brier => (Kind::Scores, brier_max),
            Metric::Ece => (Kind::Confidences, -1.0),
            _ => (Kind::Parts, 0.0),
        };
        let beside = if metric != Metric::Auc && positive.is_some() && n <= RANKED_BESIDE_MAX {
            n
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
            beside: vec![0.0; beside],
            brier_max,
            log_loss_max,
        };
        (probabilities, ItemScores::new(kind, n, worst, false))
    }

    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        probabilities: &[(Cow<'_, str>, f64)],
        items: &mut ItemScores,
    ) {
        let right = self.table.label(item.label());
        let positive = self.positive.map(|label| self.table.label(label));
        let (mut of_right, mut of_positive, mut squares) = (0.0, 0.0, 0.0);
        let (mut top, mut confidence): (&[u8], f64) = (&[], -1.0);
        for (label, probability) in probabilities {
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
        let log_loss = self.table.clipped(-of_right.clamp(LEAST, 1.0).ln());
        let brier = (squares + (1.0 - of_right) * (1.0 - of_right)) * self.brier_max / 2.0;
        self.log_loss.add(log_loss);
        self.brier.add(brier);
        let is_right = top == right;
        self.bins[calibration::bin(confidence)].add(confidence - f64::from(is_right));
        if let Some(kept) = self.beside.get_mut(item.ordinal) {
            *kept = of_positive;
        }
        let kept = match self.metric {
            Metric::LogLoss => log_loss,
            Metric::Brier => brier,
            Metric::Ece => confidence,
            _ => of_positive,
        };
        items.set(item.ordinal, kept);
        if is_right && items.kind() == Kind::Confidences {
            items.set_right(item.ordinal);
        }
    }

    pub(super) fn finish(
        mut self,
        items: &mut ItemScores,
        n_missing: usize,
    ) -> Result<Figures, Failure> {
        let (n, missing) = (self.table.len(), n_missing as f64);
        self.log_loss.add(self.log_loss_max * missing);
        self.brier.add(self.brier_max * missing);
        let of_all = n.max(1) as f64;
        let (log_loss, brier) = (self.log_loss.total() / of_all, self.brier.total() / of_all);
        // An item that is missing is as far off as can be. In a bin it could make up for others.
        let ece = (self.bins.iter().map(|bin| bin.total().abs()).sum::<f64>() + missing) / of_all;
        let mut figures = vec![("log_loss", log_loss), ("brier", brier), ("ece@15", ece)];
        let mut area = None;
        if self.metric == Metric::Auc {
            self.beside = (0..n).map(|item| items.value(item)).collect();
        }
        if n_missing == 0
            && let Some(positive) = self.positive
            && self.beside.len() == n
        {
            area = auc(
                &self.beside,
                self.table.items().map(|item| item.label() == positive),
            );
            if let (Metric::Auc, Some(area)) = (self.metric, &area) {
                area.parts
                    .iter()
                    .enumerate()
                    .for_each(|(item, part)| items.set(item, *part));
            }
            figures.extend(area.as_ref().map(|area| ("auc", area.value)));
        }
        let wanted = self.metric.to_string();
        let value = figures
            .iter()
            .find(|(name, _)| **name == wanted)
            .map(|(_, figure)| *figure);
        // The publisher has seen to it that there are two labels.
        let value = value.ok_or_else(|| {
            Failure::InvalidPredictions(format!("{wanted} is not defined for this suite"))
        })?;
        let normal = |worst| {
            let stderr = stderr_of_mean(value, n, (0..n).map(|item| items.value(item)));
            stderr.map(|stderr| around(value, stderr, [0.0, worst], "normal"))
        };
        let estimate = match self.metric {
            Metric::LogLoss => normal(self.log_loss_max),
            Metric::Brier => normal(self.brier_max),
            Metric::Auc => area.and_then(|area| area.estimate),
            _ => stderr_of_ece(items).map(|stderr| around(value, stderr, [0.0, 1.0], "bootstrap")),
        };
        let others = figures
            .into_iter()
            .filter(|(name, _)| *name != wanted)
            .map(|(name, figure)| (name.to_owned(), figure));
        Ok(Figures {
            value,
            estimate,
            metrics: others.collect(),
        })
    }
}

/// There is no formula for it.
fn stderr_of_ece(items: &ItemScores) -> Option<f64> {
    let mut bootstrap = Bootstrap::<{ BINS + 1 }>::default();
    for item in 0..items.len() {
        let (bin, gap) = calibration::gap(items.value(item), items.is_right(item));
        bootstrap.add(item, bin, gap);
    }
    bootstrap.stderr(|bins, n| bins.iter().map(|bin| bin.abs()).sum::<f64>() / n)
}

struct Area {
    value: f64,
    estimate: Option<Estimate>,
    /// Of each item, its part in the area.
    parts: Vec<f64>,
}

/// The area under the curve, and its standard error by DeLong, DeLong and Clarke-Pearson (1988), from ranks as Sun and Xu
/// (2014) have shown. `None`: all are positive, or none is.
fn auc(scores: &[f64], is_positive: impl Iterator<Item = bool>) -> Option<Area> {
    let is_positive: Vec<bool> = is_positive.collect();
    let of = |wanted: bool, from: &[f64]| -> Vec<f64> {
        from.iter()
            .zip(&is_positive)
            .filter(|(_, is)| **is == wanted)
            .map(|(score, _)| *score)
            .collect()
    };
    let all = ranks(scores);
    let (positive, negative) = (of(true, &all), of(false, &all));
    let (n_positive, n_negative) = (positive.len() as f64, negative.len() as f64);
    if positive.is_empty() || negative.is_empty() {
        return None;
    }
    let sum = positive.iter().copied().collect::<Sum>().total();
    let value = (sum - n_positive * (n_positive + 1.0) / 2.0) / (n_positive * n_negative);
    // Of each item, the share of the other side's that it stands right to: a negative one is right below.
    let above: Vec<f64> = positive
        .iter()
        .zip(ranks(&of(true, scores)))
        .map(|(rank, among)| (rank - among) / n_negative)
        .collect();
    let below: Vec<f64> = negative
        .iter()
        .zip(ranks(&of(false, scores)))
        .map(|(rank, among)| 1.0 - (rank - among) / n_positive)
        .collect();
    let variance = |shares: &[f64]| {
        stderr_of_mean(value, shares.len(), shares.iter().copied()).map(|stderr| stderr * stderr)
    };
    let estimate = variance(&above)
        .zip(variance(&below))
        .map(|(above, below)| around(value, (above + below).sqrt(), [0.0, 1.0], "delong"));
    let (n, mut above, mut below) = (
        n_positive + n_negative,
        above.into_iter(),
        below.into_iter(),
    );
    let part = |is_positive: &bool| {
        let (share, of_side) = if *is_positive {
            (above.next(), n_positive)
        } else {
            (below.next(), n_negative)
        };
        value + (share.unwrap_or(value) - value) * n / of_side
    };
    let parts = is_positive.iter().map(part).collect();
    Some(Area {
        value,
        estimate,
        parts,
    })
}
