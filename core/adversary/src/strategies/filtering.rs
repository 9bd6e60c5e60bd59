//! Assumed density filtering (after P. S. Maybeck 1982 and T. P. Minka 2001). Each item has a
//! belief over its candidates. Every disclosed value updates the belief by the value's likelihood
//! under each candidate. All other items' total score is assumed to be normal.
//!
//! The strategy needs a metric that is approximately a mean over item scores. It works with every
//! policy, as each discloses an interval that contains the value. Under a ladder it is the interval
//! between two levels, or everything below the next level. The strategy therefore mixes likely and
//! random guesses in a proportion that reaches the next level with a chosen probability.

use assay_eval::Metric;

use super::entries::{Beliefs, Entries};
use super::guesses::{Guesses, Submission, predict};
use super::intervals::{Interval, Reading, above, derivatives, quantile_above, scores};
use crate::platform::Platform;
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
