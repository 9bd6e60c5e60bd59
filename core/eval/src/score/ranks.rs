//! Value ranks, and Spearman's correlation between them.

use crate::stats::compensated_sum::Sum;

/// The largest suite for which `spearman` and `auc` are computed as additional figures for another
/// metric: they need all predictions in memory.
pub(super) const RANKED_ITEMS_MAX: usize = 1 << 20;

/// Returns the values' ranks, from 1. Equal values share their mean rank.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    order.sort_unstable_by(|one, other| values[*one as usize].total_cmp(&values[*other as usize]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let value = values[order[start] as usize];
        let mut end = start + 1;
        // Compared as numbers, so that -0 equals 0.
        while end < order.len() && values[order[end] as usize] == value {
            end += 1;
        }
        let rank = (start + 1 + end) as f64 / 2.0;
        order[start..end]
            .iter()
            .for_each(|at| ranks[*at as usize] = rank);
        start = end;
    }
    ranks
}

/// The predictions' and answers' ranks, minus the mean rank.
pub(super) struct RankCorrelation {
    predictions: Vec<f64>,
    answers: Vec<f64>,
    /// Both sums of squares.
    squares: [f64; 2],
}

/// Returns the dot product.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter()
        .zip(other)
        .map(|(one, other)| one * other)
        .collect::<Sum>()
        .total()
}

impl RankCorrelation {
    /// Ranks both sides. `None` if the lengths differ, or all values on one side are equal.
    pub(super) fn of(predictions: &[f64], answers: &[f64]) -> Option<Self> {
        if predictions.len() != answers.len() {
            return None;
        }
        let middle = (predictions.len() as f64 + 1.0) / 2.0;
        let centered = |values: &[f64]| -> Vec<f64> {
            ranks(values)
                .into_iter()
                .map(|rank| rank - middle)
                .collect()
        };
        let predictions = centered(predictions);
        let answers = centered(answers);
        let squares = [dot(&predictions, &predictions), dot(&answers, &answers)];
        (squares[0] > 0.0 && squares[1] > 0.0).then_some(Self {
            predictions,
            answers,
            squares,
        })
    }

    /// Returns Spearman's rho, from −1 to 1.
    pub(super) fn rho(&self) -> f64 {
        let [of_predictions, of_answers] = self.squares;
        // Both sums' product may overflow, so each has its own root.
        (dot(&self.predictions, &self.answers) / of_predictions.sqrt() / of_answers.sqrt())
            .clamp(-1.0, 1.0)
    }

    /// Returns each item's influence on the correlation, times n; they sum to 0. The delta
    /// method includes the change that an item makes to the others' ranks (C. Croux and C.
    /// Dehon 2010).
    pub(super) fn influences(&self) -> Vec<f64> {
        let n = self.predictions.len();
        let rho = self.rho();
        let [var_x, var_y] = self.squares.map(|squares| squares / n as f64);
        let x = &self.predictions;
        let y = &self.answers;
        let x_above_x = sums_above(x, x);
        let y_above_y = sums_above(y, y);
        let y_above_x = sums_above(x, y);
        let x_above_y = sums_above(y, x);
        let influence = |item: usize| {
            let covariance = x[item] * y[item] + y_above_x[item] + x_above_y[item];
            let variances = (x[item] * x[item] + 2.0 * x_above_x[item]) / var_x
                + (y[item] * y[item] + 2.0 * y_above_y[item]) / var_y;
            covariance / (var_x.sqrt() * var_y.sqrt()) - 3.0 * rho - rho / 2.0 * (variances - 6.0)
        };
        (0..n).map(influence).collect()
    }
}

/// Returns for each item the summed values of items with a higher rank, plus half the values with
/// the same rank.
fn sums_above(ranks: &[f64], values: &[f64]) -> Vec<f64> {
    let mut order: Vec<u32> = (0..ranks.len() as u32).collect();
    order.sort_unstable_by(|one, other| ranks[*other as usize].total_cmp(&ranks[*one as usize]));
    let mut sums = vec![0.0; ranks.len()];
    let mut higher = Sum::default();
    let mut start = 0;
    while start < order.len() {
        let rank = ranks[order[start] as usize];
        let end = start
            + order[start..]
                .iter()
                .take_while(|at| ranks[**at as usize] == rank)
                .count();
        let shared = order[start..end]
            .iter()
            .map(|at| values[*at as usize])
            .collect::<Sum>()
            .total();
        order[start..end]
            .iter()
            .for_each(|at| sums[*at as usize] = higher.total() + shared / 2.0);
        higher.add(shared);
        start = end;
    }
    sums
}
