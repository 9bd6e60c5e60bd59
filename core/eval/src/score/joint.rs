//! Figures of numbers over all items together: they need each item's prediction, and no item has a
//! score of its own.

use super::ranks::{RankCorrelation, ranks};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{
    Estimate, estimate_within, fisher, fisher_delta, stderr_of_influences,
};

/// A figure over all items together.
pub(super) struct JointFigure {
    pub(super) value: f64,
    /// Each item's influence on the figure, times n. They sum to 0.
    influences: Vec<f64>,
}

impl JointFigure {
    /// Returns the figure of a metric that needs all predictions. `None` if it is not defined: if the
    /// lengths differ, all answers are the same number or, for a correlation, all predictions are.
    pub(super) fn of(metric: Metric, predictions: &[f64], answers: &[f64]) -> Option<Self> {
        if predictions.len() != answers.len() {
            return None;
        }
        match metric {
            Metric::Pearson => pearson(predictions, answers),
            Metric::Kendall => kendall(predictions, answers),
            Metric::Ccc => ccc(predictions, answers),
            Metric::R2 => r2(predictions, answers),
            _ => RankCorrelation::of(predictions, answers).map(|correlation| Self {
                value: correlation.rho(),
                influences: correlation.influences(),
            }),
        }
    }

    /// Returns the items' contributions, whose mean is the figure.
    pub(super) fn contributions(&self) -> impl Iterator<Item = f64> {
        self.influences
            .iter()
            .map(|influence| self.value + influence)
    }

    /// Returns the uncertainty, if items are independent. `range` is the metric's smallest and largest
    /// value. `None` with too few items.
    pub(super) fn estimate(&self, metric: Metric, range: [f64; 2]) -> Option<Estimate> {
        let n = self.influences.len();
        match metric {
            Metric::Pearson | Metric::Kendall => {
                (n >= 4).then_some(fisher_delta(self.value, self.stderr()?))
            }
            Metric::Spearman => fisher(self.value, n),
            _ => Some(estimate_within(range, self.value, self.stderr()?, "delta")),
        }
    }

    /// Returns the standard error by the delta method. `None` with fewer than two items.
    fn stderr(&self) -> Option<f64> {
        let n = self.influences.len();
        let squares = self
            .influences
            .iter()
            .map(|influence| influence * influence);
        let squares = squares.collect::<Sum>().total() / n as f64 / n as f64;
        stderr_of_influences(squares, n)
    }
}

/// Returns the mean. There is at least one term.
fn mean(terms: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = terms.len() as f64;
    terms.collect::<Sum>().total() / n
}

/// Returns the mean of the products.
fn mean_product(one: &[f64], other: &[f64]) -> f64 {
    mean(one.iter().zip(other).map(|(one, other)| one * other))
}

/// Returns the values minus their mean.
fn centered(values: &[f64]) -> Vec<f64> {
    let mut centered = values.to_vec();
    // The mean of large numbers with a small spread has a rounding error, which the second pass
    // subtracts.
    for _ in 0..2 {
        let mean = mean(centered.iter().copied());
        centered.iter_mut().for_each(|value| *value -= mean);
    }
    centered
}

/// Returns the largest absolute value.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// Returns `true` if the values are not all the same number.
fn are_different(values: &[f64]) -> bool {
    values.windows(2).any(|pair| pair[0] != pair[1])
}

/// Returns the z scores, with the divisor n. `None` if all values are the same number.
fn standardized(values: &[f64]) -> Option<Vec<f64>> {
    are_different(values).then_some(())?;
    let mut values = centered(values);
    // Squares of very small numbers would be 0.
    let scale = largest(&values);
    values.iter_mut().for_each(|value| *value /= scale);
    let spread = mean_product(&values, &values).sqrt();
    values.iter_mut().for_each(|value| *value /= spread);
    Some(values)
}

/// Returns Pearson's correlation, from −1 to 1, with its influences (S. J. Devlin, R. Gnanadesikan
/// and J. R. Kettenring 1975).
fn pearson(predictions: &[f64], answers: &[f64]) -> Option<JointFigure> {
    let [x, y] = [standardized(predictions)?, standardized(answers)?];
    let value = mean_product(&x, &y).clamp(-1.0, 1.0);
    let influence = |(x, y): (&f64, &f64)| x * y - value / 2.0 * (x * x + y * y);
    Some(JointFigure {
        value,
        influences: x.iter().zip(&y).map(influence).collect(),
    })
}

/// Counts of the values so far by rank, with cumulated counts in logarithmic time (P. M. Fenwick 1994).
struct RankCounts(Vec<i64>);

impl RankCounts {
    fn add(&mut self, rank: usize) {
        let mut at = rank;
        while at < self.0.len() {
            self.0[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// Returns how many values have at most this rank.
    fn up_to(&self, rank: usize) -> i64 {
        let mut at = rank;
        let mut count = 0;
        while at > 0 {
            count += self.0[at];
            at &= at - 1;
        }
        count
    }
}

/// Returns integer ranks from 1 to n that are in the order of the values; equal values have the same one.
fn integer_ranks(values: &[f64]) -> Vec<usize> {
    // The mean ranks of different values have different integer parts.
    ranks(values)
        .into_iter()
        .map(|rank| rank as usize)
        .collect()
}

/// Returns for each item the number of items whose value differs.
fn different_values(ranks: &[usize]) -> Vec<i64> {
    let mut counts = vec![0; ranks.len() + 1];
    ranks.iter().for_each(|rank| counts[*rank] += 1);
    let n = ranks.len() as i64;
    ranks.iter().map(|rank| n - counts[*rank]).collect()
}

/// Returns for each item the sum over all items of sign(Δx)·sign(Δy), in O(n log n).
fn sign_products(x: &[usize], y: &[usize]) -> Vec<i64> {
    let n = x.len();
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_unstable_by_key(|at| x[*at as usize]);
    let mut sums = vec![0; n];
    // First the items with a lower x than the item's, then those with a higher one.
    for direction in [1, -1] {
        let mut counts = RankCounts(vec![0; n + 1]);
        for same_x in order.chunk_by(|one, other| x[*one as usize] == x[*other as usize]) {
            let seen = counts.up_to(n);
            for item in same_x.iter().map(|at| *at as usize) {
                let lower = counts.up_to(y[item] - 1);
                let higher = seen - counts.up_to(y[item]);
                sums[item] += direction * (lower - higher);
            }
            same_x.iter().for_each(|at| counts.add(y[*at as usize]));
        }
        order.reverse();
    }
    sums
}

/// Returns Kendall's τ_b (M. G. Kendall 1945), from −1 to 1, with its influences. They
/// come from the mean sign product over all pairs, and from how many pairs differ (W. Hoeffding 1948).
/// As in W. R. Knight's algorithm (1966), sorting replaces the comparison of all pairs.
fn kendall(predictions: &[f64], answers: &[f64]) -> Option<JointFigure> {
    let [x, y] = [integer_ranks(predictions), integer_ranks(answers)];
    let products = sign_products(&x, &y);
    let [differ_x, differ_y] = [different_values(&x), different_values(&y)];
    // Each pair is counted for both of its items.
    let sum = |counts: &[i64]| counts.iter().sum::<i64>() as f64;
    let [of_products, of_x, of_y] = [&products, &differ_x, &differ_y].map(|counts| sum(counts));
    if of_x == 0.0 || of_y == 0.0 {
        return None;
    }
    let value = (of_products / of_x.sqrt() / of_y.sqrt()).clamp(-1.0, 1.0);
    let n = products.len() as f64;
    let influence = |item: usize| {
        let product = (n * products[item] as f64 - of_products) / of_x.sqrt() / of_y.sqrt();
        let shares =
            (n * differ_x[item] as f64 - of_x) / of_x + (n * differ_y[item] as f64 - of_y) / of_y;
        2.0 * product - value * shares
    };
    Some(JointFigure {
        value,
        influences: (0..products.len()).map(influence).collect(),
    })
}

/// Returns the concordance correlation coefficient, from −1 to 1, with its influences, which are those
/// of the means, variances and covariance (L. I.-K. Lin 1989).
fn ccc(predictions: &[f64], answers: &[f64]) -> Option<JointFigure> {
    are_different(answers).then_some(())?;
    let [mut x, mut y] = [centered(predictions), centered(answers)];
    let differences: Vec<f64> = predictions
        .iter()
        .zip(answers)
        .map(|(x, y)| x - y)
        .collect();
    let bias = mean(differences.iter().copied());
    // Squares of very small numbers would be 0.
    let scale = largest(&x).max(largest(&y)).max(bias.abs());
    for values in [&mut x, &mut y] {
        values.iter_mut().for_each(|value| *value /= scale);
    }
    let bias = bias / scale;
    let variances = mean_product(&x, &x) + mean_product(&y, &y);
    let numerator = 2.0 * mean_product(&x, &y);
    let denominator = variances + bias * bias;
    let value = (numerator / denominator).clamp(-1.0, 1.0);
    let influence = |(x, y): (&f64, &f64)| {
        let change = x * x + y * y + 2.0 * bias * (x - y) - variances;
        (2.0 * x * y - numerator - value * change) / denominator
    };
    Some(JointFigure {
        value,
        influences: x.iter().zip(&y).map(influence).collect(),
    })
}

/// Returns the coefficient of determination, at most 1, with its influences, which are those of the mean
/// squared error and of the answers' variance.
fn r2(predictions: &[f64], answers: &[f64]) -> Option<JointFigure> {
    are_different(answers).then_some(())?;
    let y = centered(answers);
    // Squares of very small numbers would be 0.
    let scale = largest(&y);
    let squares = |values: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
        values.map(|value| (value / scale).powi(2)).collect()
    };
    let squared_deviations = squares(&mut y.iter().copied());
    let squared_errors = squares(&mut predictions.iter().zip(answers).map(|(x, y)| x - y));
    let variance = mean(squared_deviations.iter().copied());
    let unexplained = mean(squared_errors.iter().copied()) / variance;
    let influence = |(error, answer): (&f64, &f64)| (unexplained * answer - error) / variance;
    Some(JointFigure {
        value: 1.0 - unexplained,
        influences: squared_errors
            .iter()
            .zip(&squared_deviations)
            .map(influence)
            .collect(),
    })
}
