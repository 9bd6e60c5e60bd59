//! Assumed density filtering (after P. S. Maybeck 1982 and T. P. Minka 2001). Each item has a
//! belief over its candidates. Every disclosed value updates the belief by the value's likelihood
//! under each candidate. All other items' total score is assumed to be normal.
//!
//! The strategy needs a metric that is approximately a mean over item scores. It works with every
//! policy, as each discloses an interval that contains the value. Under a ladder it is the interval
//! between two levels, or everything below the next level. The strategy therefore mixes likely and
//! random guesses in a proportion that reaches the next level with a chosen probability.

use std::f64::consts::{PI, SQRT_2};

use assay_eval::{DisclosurePolicy, Metric};

use super::entries::{Beliefs, Entries};
use super::guesses::{Guesses, Submission, bold, confidence, mean_answer, predict};
use super::rounding;
use crate::platform::{Disclosed, Platform};
use crate::random::Random;
use crate::suite::Public;

/// A candidate's minimum probability in a belief, because items' beliefs are not
/// independent.
const MIN_DOUBT: f64 = 0.002;

/// Least expected times that the remaining submissions reach a level. Below it, the
/// strategy does not try the level.
pub(super) const MIN_EXPECTED_HITS: f64 = 0.01;

/// The rule by which a submission is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Draw {
    /// Each guess follows the belief with this probability, and is random otherwise.
    Share(f64),
    /// About this many remaining submissions by the organization reach the next level.
    Reach(f64),
}

/// Returns `true` if the strategy applies.
pub fn applies(public: &Public, numbers: &[f64]) -> bool {
    public.metric != Metric::Ece
        && public.candidates.len() >= 2
        && !scores(public, numbers).is_empty()
}

/// Returns `true` if every item is open and has one of two answers. The joint normal estimate is
/// then better.
pub fn is_binary(public: &Public) -> bool {
    public.candidates.len() == 2 && public.is_complete && public.n == public.n_open
}

/// Returns `true` if the strategy applies and no stronger one does.
pub fn is_needed(public: &Public, numbers: &[f64]) -> bool {
    applies(public, numbers) && !is_binary(public)
}

/// Returns `true` if the strategies for a ladder apply and no stronger one does.
pub fn is_needed_for_ladder(public: &Public, numbers: &[f64]) -> bool {
    public.ladder.is_some() && is_needed(public, numbers)
}

/// Draws every guess at random.
pub fn random_guesses(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Share(0.0))
}

/// Draws half the guesses by belief, the others at random.
pub fn half_random_guesses(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Share(0.5))
}

/// Draws submissions so that about one remaining submission reaches the next level.
pub fn rare_levels(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Reach(1.0))
}

/// Draws submissions so that about four remaining submissions reach the next level.
pub fn frequent_levels(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Reach(4.0))
}

/// Returns an item's score, higher is better, by guess and by answer. Empty if all scores are
/// equal.
pub(super) fn scores(public: &Public, numbers: &[f64]) -> Vec<Vec<f64>> {
    bold_scores(public, numbers, 1.0)
}

/// Returns the scores of predictions with this boldness, see [`super::guesses::predict_boldly`].
pub(super) fn bold_scores(public: &Public, numbers: &[f64], boldness: f64) -> Vec<Vec<f64>> {
    let n = public.candidates.len();
    let clipped = |loss: f64| public.clip.map_or(loss, |clip| clip.apply(loss));
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0.0);
    let mean = mean_answer(public, numbers);
    let square: f64 = (0..n)
        .map(|at| public.frequencies[at] * number(at).powi(2))
        .sum();
    let bold_number = |guess: usize| bold(number(guess), mean, boldness);
    let [right, wrong] = confidence(n).map(|share| bold(share, 1.0 / n.max(1) as f64, boldness));
    // The guess comes first, then all other candidates in their order.
    let rank = |guess: usize, answer: usize| {
        1 + if guess == answer {
            0
        } else {
            answer + usize::from(answer < guess)
        }
    };
    let score = |guess: usize, answer: usize| -> f64 {
        let hit = f64::from(u8::from(guess == answer));
        let at = rank(guess, answer) as f64;
        let within = |k: usize, score: f64| if at <= k as f64 { score } else { 0.0 };
        match public.metric {
            Metric::HitRate(k) | Metric::Recall(k) => within(k.get(), 1.0),
            Metric::Precision(k) => within(k.get(), 1.0 / k.get() as f64),
            Metric::Ndcg(k) => within(k.get(), 1.0 / (at + 1.0).log2()),
            Metric::Mrr(k) | Metric::Map(k) => within(k.get(), 1.0 / at),
            Metric::Rmse => -clipped((bold_number(guess) - number(answer)).abs()).powi(2),
            Metric::Mae => -clipped((bold_number(guess) - number(answer)).abs()),
            Metric::Spearman => {
                (number(guess) - mean) * (number(answer) - mean)
                    / (square - mean * mean).max(1e-300)
            }
            Metric::LogLoss => -clipped(-(if hit == 1.0 { right } else { wrong }).ln()),
            Metric::Brier => {
                let others = (n as f64 - 1.0) * wrong * wrong;
                let right_score = if hit == 1.0 {
                    (1.0 - right).powi(2)
                } else {
                    (1.0 - wrong).powi(2) + right * right - wrong * wrong
                };
                -(others + right_score) * if n <= 2 { 0.5 } else { 1.0 }
            }
            _ => hit,
        }
    };
    let table: Vec<Vec<f64>> = (0..n)
        .map(|guess| (0..n).map(|answer| score(guess, answer)).collect())
        .collect();
    let is_constant = table.iter().flatten().all(|score| *score == table[0][0]);
    if is_constant { Vec::new() } else { table }
}

/// Returns the total score of `n` items, higher is better, for a metric value.
pub(super) fn sum_of(metric: Metric, value: f64, n: usize) -> f64 {
    let mean = match metric {
        Metric::Rmse => -value * value.abs(),
        metric if metric.lower_is_better() => -value,
        _ => value,
    };
    mean * n as f64
}

/// An interval that contains the total item score, higher is better.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// One organization's level, and the conversion from a value to a total score.
pub(super) struct Reading<'p> {
    public: &'p Public,
    level: u32,
    /// The interval's half width for a value that is disclosed exactly.
    exact: f64,
    /// A correct guess's score in a suite with two candidates.
    right: f64,
    /// A wrong guess's score in a suite with two candidates.
    wrong: f64,
}

impl<'p> Reading<'p> {
    /// Creates the state before the first submission.
    pub(super) fn new(public: &'p Public, scores: &[Vec<f64>]) -> Self {
        let all = || scores.iter().flatten().copied();
        let spread = all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min);
        Self {
            public,
            level: 0,
            exact: spread / 2.0,
            right: scores[0][0],
            wrong: scores[0][1],
        }
    }

    /// Returns the total item score for a metric value.
    fn sum(&self, value: f64) -> f64 {
        sum_of(self.public.metric, value, self.public.n_open)
    }

    /// Returns the total score at which the next level starts. `None` at the last level.
    pub(super) fn next_level(&self) -> Option<f64> {
        let ladder = self.public.ladder?;
        (self.level < ladder.levels).then(|| self.sum(ladder.value(self.level + 1)))
    }

    /// Returns the sum's interval that a disclosed result implies.
    pub(super) fn observe(&mut self, disclosed: &Disclosed) -> Interval {
        let value = disclosed.figures.value;
        let ordered = |one: f64, other: f64| Interval {
            low: self.sum(one).min(self.sum(other)),
            high: self.sum(one).max(self.sum(other)),
        };
        match self.public.policy {
            DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_) => Interval {
                low: self.sum(value) - self.exact,
                high: self.sum(value) + self.exact,
            },
            DisclosurePolicy::Rounded(_) => match rounding::right_guesses(self.public, disclosed) {
                Some((low, high)) => {
                    let sum = |right: f64| {
                        right * self.right + (self.public.n_open as f64 - right) * self.wrong
                    };
                    Interval {
                        low: sum(low - 0.5),
                        high: sum(high + 0.5),
                    }
                }
                None => {
                    let unit = rounding::unit(self.public.policy).unwrap_or(0.1);
                    ordered(value - unit / 2.0, value + unit / 2.0)
                }
            },
            DisclosurePolicy::Ladder(_) => {
                let before = self.level;
                let (step, start) = self
                    .public
                    .ladder
                    .map_or((1.0, 0.0), |ladder| (ladder.step, ladder.start));
                self.level = ((value - start) / step).round().max(0.0) as u32;
                let high = self.next_level().unwrap_or(f64::INFINITY);
                let low = if self.level > before {
                    self.sum(value)
                } else {
                    f64::NEG_INFINITY
                };
                Interval { low, high }
            }
        }
    }
}

/// Returns the standard normal density.
fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * PI).sqrt()
}

/// Returns the standard normal probability above z. (M. Abramowitz and I. A.
/// Stegun 1964, 7.1.26; in the far tail the asymptotic series 7.1.23.)
pub(super) fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    if z > 4.0 {
        return if z > 35.0 {
            0.0
        } else {
            density(z) / z * (1.0 - 1.0 / (z * z) + 3.0 / z.powi(4))
        };
    }
    let t = 1.0 / (1.0 + 0.327_591_1 * (z / SQRT_2));
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    0.5 * series * (-z * z / 2.0).exp()
}

/// Returns the z for which [`above`] is this probability.
pub(super) fn quantile_above(probability: f64) -> f64 {
    let mut low = -6.0;
    let mut high = 6.0;
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if above(middle) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the first and the second derivative, with respect to the mean, of an interval's
/// log-probability.
pub(super) fn derivatives(interval: Interval, mean: f64, deviation: f64) -> [f64; 2] {
    let low = (interval.low - mean) / deviation;
    let high = (interval.high - mean) / deviation;
    let probability = if low > 0.0 {
        above(low) - above(high)
    } else {
        above(-high) - above(-low)
    };
    if probability < 1e-9 {
        // For a distant or narrow interval, use its nearest point as the observation.
        let nearest = if low > 0.0 { low } else { high.min(0.0) };
        return [
            nearest.clamp(-6.0, 6.0) / deviation,
            -1.0 / (deviation * deviation),
        ];
    }
    let at = |z: f64| {
        if z.is_finite() {
            (density(z), z * density(z))
        } else {
            (0.0, 0.0)
        }
    };
    let at_low = at(low);
    let at_high = at(high);
    let first = (at_low.0 - at_high.0) / probability;
    let second = (at_low.1 - at_high.1) / probability - first * first;
    [first / deviation, second / (deviation * deviation)]
}

/// The attack's state.
struct Filter {
    /// The belief for each item and candidate.
    beliefs: Vec<Vec<f64>>,
    /// The open-item share.
    open: f64,
}

impl Filter {
    fn expected(&self, item: usize, submission: Submission<'_>) -> f64 {
        submission
            .scores(item)
            .iter()
            .zip(&self.beliefs[item])
            .map(|(score, belief)| score * belief)
            .sum::<f64>()
            * self.open
    }

    fn variance(&self, item: usize, submission: Submission<'_>) -> f64 {
        let mean = self.expected(item, submission);
        let squares = submission.scores(item).iter().zip(&self.beliefs[item]);
        squares
            .map(|(score, belief)| score * score * belief)
            .sum::<f64>()
            * self.open
            - mean * mean
    }

    fn mean_and_variance(&self, items: &[usize], submission: Submission<'_>) -> (f64, f64) {
        let of = |item: &usize| {
            (
                self.expected(*item, submission),
                self.variance(*item, submission),
            )
        };
        items
            .iter()
            .map(of)
            .fold((0.0, 0.0), |(mean, variance), one| {
                (mean + one.0, variance + one.1)
            })
    }

    /// Draws a submission. Returns `None` if the probability to reach the next level is too small.
    fn draw(
        &self,
        public: &Public,
        scores: &[Vec<f64>],
        random: &mut Random,
        draw: Draw,
        next: Option<f64>,
        left: u32,
    ) -> Option<Guesses> {
        let rolls: Vec<(f64, u8)> = (0..public.n)
            .map(|_| (random.unit(), random.index(&public.frequencies) as u8))
            .collect();
        let at = |share: f64| -> Guesses {
            let of = |(item, (roll, other)): (usize, &(f64, u8))| {
                if *roll < share {
                    self.likeliest(item)
                } else {
                    *other
                }
            };
            rolls.iter().enumerate().map(of).collect()
        };
        let (hits, next) = match (draw, next) {
            (Draw::Share(share), _) => return Some(at(share)),
            (Draw::Reach(_), None) => return None,
            (Draw::Reach(hits), Some(next)) => (hits, next),
        };
        let all: Vec<usize> = (0..public.n).collect();
        let distance = |guesses: &[u8]| {
            let (mean, variance) = self.mean_and_variance(&all, Submission::new(guesses, scores));
            (next - mean) / variance.max(1e-12).sqrt()
        };
        if above(distance(&at(1.0)).min(distance(&at(0.5)))) * f64::from(left) < MIN_EXPECTED_HITS {
            return None;
        }
        let wanted = quantile_above((hits / f64::from(left.max(1))).min(0.5));
        let mut low = 0.0;
        let mut high = 1.0;
        for _ in 0..7 {
            let middle = f64::midpoint(low, high);
            if distance(&at(middle)) > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(at(high))
    }
}

impl Beliefs for Filter {
    fn likeliest(&self, item: usize) -> u8 {
        let beliefs = &self.beliefs[item];
        (0..beliefs.len()).fold(0, |best, at| {
            if beliefs[at] > beliefs[best] {
                at
            } else {
                best
            }
        }) as u8
    }

    fn mean(&self, items: &[usize], submission: Submission<'_>) -> f64 {
        let expected = |item: &usize| self.expected(*item, submission);
        items.iter().map(expected).sum()
    }

    fn covariance(&self, items: &[usize], one: Submission<'_>, other: Submission<'_>) -> f64 {
        let of = |item: &usize| {
            let scores = one.scores(*item).iter().zip(other.scores(*item));
            let product: f64 = scores
                .zip(&self.beliefs[*item])
                .map(|((one, other), belief)| one * other * belief)
                .sum();
            product * self.open - self.expected(*item, one) * self.expected(*item, other)
        };
        items.iter().map(of).sum()
    }

    fn learn(&mut self, items: &[usize], submission: Submission<'_>, interval: Interval) {
        let (mean, variance) = self.mean_and_variance(items, submission);
        let [first, second] = derivatives(interval, mean, variance.max(1e-9).sqrt());
        for item in items.iter().copied() {
            let expected = self.expected(item, submission);
            let scores = submission.scores(item);
            for (belief, score) in self.beliefs[item].iter_mut().zip(scores) {
                let deviation = score * self.open - expected;
                *belief *= (first * deviation + second * deviation * deviation / 2.0)
                    .clamp(-3.0, 3.0)
                    .exp();
            }
            let sum: f64 = self.beliefs[item].iter().sum();
            self.beliefs[item]
                .iter_mut()
                .for_each(|belief| *belief = (*belief / sum).clamp(MIN_DOUBT, 1.0 - MIN_DOUBT));
        }
    }
}

fn run(platform: &mut Platform<'_>, random: &mut Random, draw: Draw) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let scores = scores(public, &numbers);
    let prior: f64 = public.frequencies.iter().sum();
    let beliefs = vec![
        public
            .frequencies
            .iter()
            .map(|share| share / prior)
            .collect();
        public.n
    ];
    let mut filter = Filter {
        beliefs,
        open: public.n_open as f64 / public.n as f64,
    };
    let all: Vec<usize> = (0..public.n).collect();
    let mut entries = Entries::new(platform);
    for organization in 0..platform.caps().organizations as usize {
        let mut reading = Reading::new(public, &scores);
        while platform.left(organization) > entries.per_organization() {
            let next = reading.next_level();
            if public.ladder.is_some() && next.is_none() {
                break;
            }
            let Some(guesses) = filter.draw(
                public,
                &scores,
                random,
                draw,
                next,
                platform.left(organization),
            ) else {
                break;
            };
            let Some(disclosed) =
                platform.submit(organization, &predict(public, &numbers, &guesses))
            else {
                continue;
            };
            let interval = reading.observe(&disclosed);
            filter.learn(&all, Submission::new(&guesses, &scores), interval);
        }
        entries.submit((platform, organization), random, &mut reading, &mut filter);
    }
    entries.learn(platform, &mut filter);
    (0..public.n).map(|item| filter.likeliest(item)).collect()
}
