//! Filtering with covariances: the answers in a suite with two candidates are assumed to be jointly
//! normal, with the mean and the covariance given all disclosed values. (R. E. Kalman 1960. An
//! observed interval updates the distribution by the first two moments of the truncated normal
//! distribution.)
//!
//! Unlike independent beliefs, the covariance records that a whole submission was good, and that
//! each answer's item count is public. Submissions are drawn as in [`super::filtering`].

use assay_eval::Metric;

use super::entries::{Beliefs, Entries};
use super::filtering::{Draw, MIN_EXPECTED_HITS};
use super::guesses::{Guesses, Submission, predict};
use super::intervals::{Interval, Reading, above, derivatives, quantile_above, scores};
use crate::platform::Platform;
use crate::random::Random;
use crate::suite::Public;

/// An observation's threshold. It is ignored if it moves its sum's mean by less than this part of
/// the standard deviation, and reduces the variance by less than this part: an unlikely level was
/// not reached.
const NEGLIGIBLE: f64 = 0.05;

/// Submissions after which the share guessed by belief is computed again, even
/// without a new observation.
const REPLAN_INTERVAL: u32 = 10;

/// The most observations per item. More add little information.
const OBSERVATIONS_PER_ITEM_MAX: f64 = 1.5;

/// Returns `true` if the strategy applies.
pub fn applies(public: &Public, numbers: &[f64]) -> bool {
    super::filtering::is_binary(public) && super::filtering::applies(public, numbers)
}

/// Returns `true` if the strategies for a ladder apply.
pub fn applies_to_ladder(public: &Public, numbers: &[f64]) -> bool {
    public.ladder.is_some() && applies(public, numbers)
}

/// Returns `true` if the strategy for policies without levels applies.
pub fn applies_without_ladder(public: &Public, numbers: &[f64]) -> bool {
    public.ladder.is_none() && applies(public, numbers)
}

/// A rounded figure's coarsest unit, in items, with which [`OBSERVATIONS_PER_ITEM_MAX`]
/// submissions per item disclose nearly every answer.
const UNIT_MAX: f64 = 10.0;

/// Returns how many submissions disclose nearly every answer, as found by experiment.
/// Most answers are known after one submission per item.
pub fn submissions_needed(public: &Public, numbers: &[f64]) -> Option<u32> {
    let unit = super::rounding::unit(public.policy)?;
    let is_fine = !matches!(
        public.metric,
        Metric::Spearman | Metric::Pearson | Metric::Kendall | Metric::Ccc | Metric::R2
    ) && unit * public.n as f64 <= UNIT_MAX;
    (is_fine && applies(public, numbers))
        .then(|| (OBSERVATIONS_PER_ITEM_MAX * public.n as f64).ceil() as u32)
}

/// Draws every guess at random.
pub fn random_guesses(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Share(0.0))
}

/// Draws submissions so that about one remaining submission per organization reaches the next level.
pub fn rare_levels(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Reach(1.0))
}

/// Draws submissions so that about four remaining submissions per organization reach the next level.
pub fn frequent_levels(platform: &mut Platform<'_>, random: &mut Random) -> Guesses {
    run(platform, random, Draw::Reach(4.0))
}

/// The answers' joint distribution: 1 for the second candidate, 0 for the first.
pub(super) struct Joint {
    means: Vec<f64>,
    /// Each item's prior variance.
    variances: Vec<f64>,
    /// The covariance's rank-one updates: the diagonal `variances` plus each vector's outer
    /// product, times its factor.
    updates: Vec<(f64, Vec<f64>)>,
}

/// Returns the scalar product. Four independent sums are faster than one.
fn dot(one: &[f64], other: &[f64]) -> f64 {
    let ((ones, one_rest), (others, other_rest)) = (one.as_chunks::<4>(), other.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (one, other) in ones.iter().zip(others) {
        for at in 0..4 {
            sums[at] += one[at] * other[at];
        }
    }
    let rest: f64 = one_rest
        .iter()
        .zip(other_rest)
        .map(|(one, other)| one * other)
        .sum();
    sums[0] + sums[1] + sums[2] + sums[3] + rest
}

impl Joint {
    /// Creates the distribution for independent answers with these probabilities for the second
    /// candidate.
    pub(super) fn new(shares: Vec<f64>) -> Self {
        Self {
            variances: shares.iter().map(|share| share * (1.0 - share)).collect(),
            means: shares,
            updates: Vec::new(),
        }
    }

    /// Returns an item's mean answer.
    pub(super) fn mean(&self, item: usize) -> f64 {
        self.means[item]
    }

    /// Conditions the distribution on a weighted sum of the answers.
    pub(super) fn observe_sum(&mut self, weights: &[f64], sum: f64) {
        let covariance = self.covariance_with(weights);
        let variance = dot(&covariance, weights);
        // With a smaller variance the sum was known already.
        if variance > 1e-6 {
            let factor = (sum - dot(weights, &self.means)) / variance;
            self.means
                .iter_mut()
                .zip(&covariance)
                .for_each(|(mean, part)| *mean += factor * part);
            self.updates.push((-1.0 / variance, covariance));
        }
    }

    fn variance_of(&self, slopes: &[f64]) -> f64 {
        let reduced: f64 = self
            .updates
            .iter()
            .map(|(factor, vector)| factor * dot(vector, slopes).powi(2))
            .sum();
        let independent: f64 = self
            .variances
            .iter()
            .zip(slopes)
            .map(|(variance, slope)| variance * slope * slope)
            .sum();
        independent + reduced
    }

    fn covariance_with(&self, slopes: &[f64]) -> Vec<f64> {
        let mut found: Vec<f64> = slopes
            .iter()
            .zip(&self.variances)
            .map(|(slope, variance)| slope * variance)
            .collect();
        for (factor, vector) in &self.updates {
            let times = factor * dot(vector, slopes);
            found
                .iter_mut()
                .zip(vector)
                .for_each(|(found, part)| *found += times * part);
        }
        found
    }

    fn observe(&mut self, slopes: &[f64], base: f64, interval: Interval) {
        let variance = self.variance_of(slopes);
        if variance < 1e-9 {
            return;
        }
        let [first, second] =
            derivatives(interval, base + dot(slopes, &self.means), variance.sqrt());
        if first.abs() * variance.sqrt() < NEGLIGIBLE && -second * variance < NEGLIGIBLE {
            return;
        }
        let covariance = self.covariance_with(slopes);
        self.means
            .iter_mut()
            .zip(&covariance)
            .for_each(|(mean, part)| *mean += first * part);
        // An observation must not remove more than the whole variance.
        self.updates.push((second.max(-1.0 / variance), covariance));
    }

    fn likelier(&self, item: usize) -> u8 {
        u8::from(self.means[item] > 0.5)
    }
}

/// A submission as a linear function over the answers.
struct Linear {
    base: f64,
    slopes: Vec<f64>,
}

impl Linear {
    fn of(scores: &[Vec<f64>], guesses: &[u8]) -> Self {
        let of = |guess: &u8| &scores[usize::from(*guess)];
        Self {
            base: guesses.iter().map(|guess| of(guess)[0]).sum(),
            slopes: guesses
                .iter()
                .map(|guess| of(guess)[1] - of(guess)[0])
                .collect(),
        }
    }
}

/// Returns how much each item's score changes from the first to the second candidate.
fn slopes(items: &[usize], submission: Submission<'_>) -> Vec<f64> {
    let slope = |item: &usize| {
        let by_answer = submission.scores(*item);
        by_answer[1] - by_answer[0]
    };
    items.iter().map(slope).collect()
}

/// Returns the score of these items if all have the first candidate.
fn base(items: &[usize], submission: Submission<'_>) -> f64 {
    let score = |item: &usize| submission.scores(*item)[0];
    items.iter().map(score).sum()
}

impl Beliefs for Joint {
    fn likeliest(&self, item: usize) -> u8 {
        self.likelier(item)
    }

    fn mean(&self, items: &[usize], submission: Submission<'_>) -> f64 {
        let means = gather(&self.means, items);
        base(items, submission) + dot(&slopes(items, submission), &means)
    }

    fn covariance(&self, items: &[usize], one: Submission<'_>, other: Submission<'_>) -> f64 {
        let one = slopes(items, one);
        let other = slopes(items, other);
        let products: Vec<f64> = one.iter().zip(&other).map(|(a, b)| a * b).collect();
        let independent = dot(&products, &gather(&self.variances, items));
        let update = |(factor, vector): &(f64, Vec<f64>)| {
            let part = gather(vector, items);
            factor * dot(&part, &one) * dot(&part, &other)
        };
        independent + self.updates.iter().map(update).sum::<f64>()
    }

    fn learn(&mut self, items: &[usize], submission: Submission<'_>, interval: Interval) {
        let mut all_slopes = vec![0.0; self.means.len()];
        for (item, slope) in items.iter().zip(slopes(items, submission)) {
            all_slopes[*item] = slope;
        }
        self.observe(&all_slopes, base(items, submission), interval);
    }
}

/// Returns the values of these items.
fn gather(values: &[f64], items: &[usize]) -> Vec<f64> {
    items.iter().map(|item| values[*item]).collect()
}

/// Draws a submission in which this guess share follows the beliefs, and all others are
/// random.
fn draw(joint: &Joint, share: f64, rolls: &[(f64, u8)]) -> Guesses {
    let of = |(item, (roll, other)): (usize, &(f64, u8))| {
        if *roll < share {
            joint.likelier(item)
        } else {
            *other
        }
    };
    rolls.iter().enumerate().map(of).collect()
}

/// Finds the smallest share guessed by belief with which `hits` remaining submissions
/// reach the next level on average. A larger share increases the mean and reduces the variance.
/// Returns `None` if every share is too unlikely to succeed.
fn share_for(
    joint: &Joint,
    scores: &[Vec<f64>],
    rolls: &[(f64, u8)],
    next: f64,
    hits: f64,
    left: u32,
) -> Option<f64> {
    let distance = |share: f64| {
        let linear = Linear::of(scores, &draw(joint, share, rolls));
        (next - linear.base - dot(&linear.slopes, &joint.means))
            / joint.variance_of(&linear.slopes).max(1e-9).sqrt()
    };
    let wanted = quantile_above((hits / f64::from(left)).min(0.5));
    let shares = [0.0, 0.25, 0.5, 0.75, 0.9, 1.0];
    let distances = shares.map(distance);
    let Some(close) = distances.iter().position(|distance| *distance <= wanted) else {
        let nearest =
            (0..shares.len()).min_by(|one, other| distances[*one].total_cmp(&distances[*other]))?;
        return (above(distances[nearest]) * f64::from(left) > MIN_EXPECTED_HITS)
            .then_some(shares[nearest]);
    };
    let mut low = shares[close.saturating_sub(1)];
    let mut high = shares[close];
    for _ in 0..if close == 0 { 0 } else { 4 } {
        let middle = f64::midpoint(low, high);
        if distance(middle) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

fn run(platform: &mut Platform<'_>, random: &mut Random, rule: Draw) -> Guesses {
    let public = platform.public();
    let numbers = platform.numbers().to_vec();
    let scores = scores(public, &numbers);
    let mut joint = Joint::new(vec![public.frequencies[1]; public.n]);
    // How many items have the second candidate is public.
    joint.observe_sum(
        &vec![1.0; public.n],
        public.frequencies[1] * public.n as f64,
    );
    let all: Vec<usize> = (0..public.n).collect();
    let mut entries = Entries::new(platform);
    for organization in 0..platform.caps().organizations as usize {
        let mut reading = Reading::new(public, &scores);
        let mut planned: Option<(usize, u32, f64)> = None;
        while platform.left(organization) > entries.per_organization()
            && (joint.updates.len() as f64) < OBSERVATIONS_PER_ITEM_MAX * public.n as f64
        {
            let left = platform.left(organization);
            let rolls: Vec<(f64, u8)> = (0..public.n)
                .map(|_| (random.unit(), random.below(2) as u8))
                .collect();
            let share = match (rule, planned) {
                (Draw::Share(share), _) => share,
                (_, Some((n_updates, at, share)))
                    if n_updates == joint.updates.len() && at < left + REPLAN_INTERVAL =>
                {
                    share
                }
                (Draw::Reach(hits), _) => {
                    let Some(next) = reading.next_level() else {
                        break;
                    };
                    let Some(share) = share_for(&joint, &scores, &rolls, next, hits, left) else {
                        break;
                    };
                    planned = Some((joint.updates.len(), left, share));
                    share
                }
            };
            let guesses = draw(&joint, share, &rolls);
            let Some(disclosed) =
                platform.submit(organization, &predict(public, &numbers, &guesses))
            else {
                continue;
            };
            let interval = reading.observe(&disclosed);
            joint.learn(&all, Submission::new(&guesses, &scores), interval);
        }
        entries.submit((platform, organization), random, &mut reading, &mut joint);
    }
    entries.learn(platform, &mut joint);
    (0..public.n).map(|item| joint.likeliest(item)).collect()
}
