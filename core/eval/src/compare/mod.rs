//! Two jobs over the same items, compared item by item. Pure: no clock, no network, no database.
//!
//! Both are gone through twice, some items at a time: first each for its [`Aggregate`], then together for their [`Pairs`].
//! What is meant by each number is in `docs/metrics.md`.

mod permutation_test;

use std::f64::consts::PI;

use crate::metric::{Family, Metric};
use crate::score::Z;
use crate::stats::calibration::{self, BINS};
use crate::stats::compensated_sum::Sum;
use statrs::distribution::{Binomial, ContinuousCDF as _, DiscreteCDF as _, Normal};

use permutation_test::PermutationTest;

/// How many standard errors of a difference lie below it when it is found four times of five.
const POWER: f64 = 0.841_621_233_572_914_3;

/// What a job keeps of some items.
pub struct StoredItems {
    /// Their scores, parts or confidences.
    pub values: Vec<f64>,
    /// Whether their labels are right; empty where that is not kept.
    pub rights: Vec<bool>,
}

/// A job's figure, from all that it keeps.
pub struct Aggregate {
    metric: Metric,
    n: usize,
    sum: Sum,
    bins: [Sum; BINS + 1],
}

impl Aggregate {
    /// Of no items yet.
    pub fn new(metric: Metric) -> Self {
        Self {
            metric,
            n: 0,
            sum: Sum::default(),
            bins: [Sum::default(); BINS + 1],
        }
    }

    /// Whether it has to be known before pairs can be made.
    pub const fn is_needed(metric: Metric) -> bool {
        matches!(metric, Metric::Rmse | Metric::Ece)
    }

    /// Adds the next items.
    pub fn add(&mut self, StoredItems { values, rights }: &StoredItems) {
        self.n += values.len();
        match self.metric {
            Metric::Rmse => values.iter().for_each(|error| self.sum.add(error * error)),
            Metric::Ece => {
                for (value, right) in values.iter().zip(rights) {
                    let (bin, gap) = calibration::gap(*value, *right);
                    self.bins[bin].add(gap);
                }
            }
            _ => {}
        }
    }

    /// How much each item is of it.
    pub fn parts(self) -> Contribution {
        match self.metric {
            Metric::Rmse => Contribution::OfRoot((self.sum.total() / self.n.max(1) as f64).sqrt()),
            Metric::Ece => Contribution::OfGaps(self.bins.map(|bin| {
                bin.total()
                    .partial_cmp(&0.0)
                    .map_or(0.0, |sign| f64::from(sign as i8))
            })),
            _ => Contribution::Themselves,
        }
    }
}

/// How much each item is of a job's figure: the mean of these is the figure.
pub enum Contribution {
    /// What is kept.
    Themselves,
    /// Of the root of a mean of squares, by the delta method.
    OfRoot(f64),
    /// Of the sum of the bins' gaps, each of which is the side on which its bin is, times what the item adds to it.
    OfGaps([f64; BINS + 1]),
}

impl Contribution {
    fn of(&self, StoredItems { values, rights }: &StoredItems, item: usize) -> f64 {
        let value = values[item];
        match self {
            Self::Themselves => value,
            Self::OfRoot(0.0) => 0.0,
            Self::OfRoot(root) => root + (value * value - root * root) / (2.0 * root),
            Self::OfGaps(sides) => {
                let (bin, gap) = calibration::gap(value, rights[item]);
                sides[bin] * gap
            }
        }
    }
}

/// How it is tested that two are equally good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    /// Where each item is 0 or 1.
    McNemar,
    /// Where a figure is a mean, or grows with one: what two jobs swapped at an item, its difference would have the other
    /// sign.
    Permutation,
    /// Where it is of all items together: the difference over its standard error.
    Wald,
}

impl Test {
    const fn of(metric: Metric) -> Self {
        match metric {
            Metric::Accuracy | Metric::HitRate(_) | Metric::ExactMatch => Self::McNemar,
            Metric::F1Macro | Metric::F1Micro | Metric::Spearman | Metric::Auc | Metric::Ece => {
                Self::Wald
            }
            _ => Self::Permutation,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::McNemar => "mcnemar",
            Self::Permutation => "permutation",
            Self::Wald => "wald",
        }
    }
}

/// Two jobs' items, pair by pair.
pub struct Pairs {
    metric: Metric,
    test: Test,
    n: u64,
    /// Items at which the one is better, and at which the other is, where each is 0 or 1.
    more: u64,
    less: u64,
    n_differ: u64,
    sum: Sum,
    squares: Sum,
    /// Of what is flipped.
    flipped: Sum,
    flips: PermutationTest,
}

/// What is said of a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Its standard error.
    pub stderr: Option<f64>,
    /// Its interval of 95 % confidence.
    pub ci95: Option<[f64; 2]>,
    /// How that was found.
    pub ci_method: &'static str,
    /// Of the hypothesis that there is none.
    pub p_value: f64,
    /// How that was found.
    pub p_method: &'static str,
    /// Number of items whose scores differ, where they have scores.
    pub n_differ: Option<u64>,
    /// How many items would tell a difference of that much.
    pub n_needed: Option<u64>,
}

impl Difference {
    /// What may be told where figures are released rounded: of two rounded figures this difference, and nothing that would
    /// tell more of it.
    pub fn rounded(self, difference: f64, round: impl Fn(f64) -> f64) -> Self {
        Self {
            stderr: self.stderr.map(&round),
            ci95: self
                .stderr
                .map(|stderr| around(difference, stderr).map(&round)),
            ci_method: "normal",
            p_value: wald(difference, self.stderr.map(&round)),
            p_method: Test::Wald.as_str(),
            n_differ: None,
            n_needed: None,
        }
    }
}

fn around(difference: f64, stderr: f64) -> [f64; 2] {
    [difference - Z * stderr, difference + Z * stderr]
}

impl Pairs {
    /// None yet.
    pub fn new(metric: Metric) -> Self {
        let (sum, squares, flipped) = (Sum::default(), Sum::default(), Sum::default());
        let (test, flips) = (Test::of(metric), PermutationTest::default());
        Self {
            metric,
            test,
            n: 0,
            more: 0,
            less: 0,
            n_differ: 0,
            sum,
            squares,
            flipped,
            flips,
        }
    }

    /// Adds the next items of both.
    pub fn add(
        &mut self,
        (one, of_one): (&StoredItems, &Contribution),
        (other, of_other): (&StoredItems, &Contribution),
    ) {
        for item in 0..one.values.len().min(other.values.len()) {
            self.n += 1;
            let difference = of_one.of(one, item) - of_other.of(other, item);
            self.n_differ += u64::from(match self.metric.family() {
                Family::Labels if self.test == Test::Wald => one.rights[item] != other.rights[item],
                _ => {
                    one.values[item] != other.values[item]
                        || (self.metric == Metric::Ece && one.rights[item] != other.rights[item])
                }
            });
            if difference == 0.0 {
                continue;
            }
            self.sum.add(difference);
            self.squares.add(difference * difference);
            match self.test {
                Test::McNemar if difference > 0.0 => self.more += 1,
                Test::McNemar => self.less += 1,
                Test::Permutation => {
                    let flipped = match self.metric {
                        // The part of an item hangs on all others, its square does not, and the figure grows with their sum.
                        Metric::Rmse => one.values[item].powi(2) - other.values[item].powi(2),
                        _ => difference,
                    };
                    self.flipped.add(flipped);
                    self.flips.add(flipped.abs());
                }
                Test::Wald => {}
            }
        }
    }

    /// What is said of the difference of the two figures; `point` is how much the suite should be able to tell. Where of one of
    /// the figures alone nothing can be said (`is_sure` is false), nothing is said of their difference.
    pub fn finish(self, difference: f64, point: f64, is_sure: bool) -> Difference {
        let Self {
            metric,
            test,
            n,
            more,
            less,
            n_differ,
            sum,
            squares,
            flipped,
            flips,
        } = self;
        let (items, mean) = (n as f64, sum.total() / n.max(1) as f64);
        let variance = (n > 1 && is_sure)
            .then(|| ((squares.total() - items * mean * mean) / (items - 1.0)).max(0.0));
        let stderr = variance.map(|variance| (variance / items).sqrt());
        let ci95 = match stderr {
            Some(_) if test == Test::McNemar => Some(bonett_price(more, less, n)),
            _ => stderr.map(|stderr| around(difference, stderr)),
        };
        let needed = |variance: f64| {
            ((Z + POWER).powi(2) * variance / (point * point))
                .ceil()
                .max(1.0) as u64
        };
        Difference {
            stderr,
            ci95,
            ci_method: match test {
                Test::McNemar => "bonett_price",
                Test::Permutation if metric != Metric::Rmse => "normal",
                Test::Permutation | Test::Wald => "delta",
            },
            p_value: match test {
                Test::McNemar => mcnemar(more, less),
                Test::Permutation => flips.p_value(flipped.total().abs()),
                // So few items cannot say more, whatever the formula makes of them.
                Test::Wald if metric.has_item_scores() => wald(difference, stderr)
                    .max(0.5_f64.powf(n_differ as f64 - 1.0))
                    .min(1.0),
                Test::Wald => wald(difference, stderr),
            },
            p_method: test.as_str(),
            n_differ: metric.has_item_scores().then_some(n_differ),
            n_needed: variance
                .filter(|variance| *variance > 0.0 && point > 0.0)
                .map(needed),
        }
    }
}

/// What counts as a point: a hundredth of the whole, or of the larger of two values where the metric has no largest.
pub fn point(metric: Metric, value_a: f64, value_b: f64) -> f64 {
    match metric {
        Metric::Rmse | Metric::Mae | Metric::LogLoss => value_a.max(value_b) / 100.0,
        _ => 0.01,
    }
}

/// The interval of a difference of two shares of the same items. (D. G. Bonett and R. M. Price, Adjusted Wald confidence
/// interval for a difference of binomial proportions based on paired data, 2012.)
fn bonett_price(more: u64, less: u64, n: u64) -> [f64; 2] {
    let share = |count: u64| (count as f64 + 1.0) / (n as f64 + 2.0);
    let (more, less) = (share(more), share(less));
    let (middle, half) = (
        more - less,
        Z * ((more + less - (more - less).powi(2)) / (n as f64 + 2.0)).sqrt(),
    );
    [(middle - half).max(-1.0), (middle + half).min(1.0)]
}

/// The chance that a normal difference with this standard error is as far from 0, or farther. (A. Wald 1943.)
fn wald(difference: f64, stderr: Option<f64>) -> f64 {
    match stderr {
        Some(stderr) if difference != 0.0 => 2.0 * Normal::standard().sf(difference.abs() / stderr),
        _ => 1.0,
    }
}

/// The exact test of Q. McNemar (1947): of the items at which two differ, each is as likely to be the better one.
fn mcnemar(more: u64, less: u64) -> f64 {
    (2.0 * heads(more.min(less), more + less)).min(1.0)
}

/// The chance of at most k heads of n coins; k is at most half of n.
fn heads(k: u64, n: u64) -> f64 {
    // Not beyond, for what is at hand for that gives up before it has found it.
    const FEW: u64 = 1000;

    if n <= FEW {
        return Binomial::new(0.5, n).map_or(1.0, |coins| coins.cdf(k));
    }
    // From the largest term on; each is the one before times what it has less.
    let (mut term, mut sum) = (heads_exactly(k, n), 0.0);
    for k in (0..=k).rev() {
        sum += term;
        term *= k as f64 / (n - k + 1) as f64;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

/// The chance of exactly k heads of many coins, by the expansion of C. Loader (2000), which loses no digits to numbers that are
/// large.
fn heads_exactly(k: u64, n: u64) -> f64 {
    // Of more than a thousand coins that is below any number that is told.
    if k < 16 {
        return 0.0;
    }
    let stirling = |n: u64| {
        let n = n as f64;
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * n * n)) / (n * n)) / (n * n))
            / n
    };
    let (half, heads, tails) = (n as f64 / 2.0, k as f64, (n - k) as f64);
    let away = |count: f64| count * ((count - half) / half).ln_1p() - (count - half);
    let exponent = stirling(n) - stirling(k) - stirling(n - k) - away(heads) - away(tails);
    exponent.exp() * (n as f64 / (2.0 * PI * heads * tails)).sqrt()
}

#[cfg(test)]
mod tests;
