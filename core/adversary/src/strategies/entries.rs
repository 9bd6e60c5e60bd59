//! Entries in the final board, which shows a level of each slice for each entry.
//!
//! The levels are disclosed after the last submission, so no entry can depend on them. An
//! organization's last submissions are its entries. Each is the drawn submission whose levels have
//! the largest entropy, given the sums of earlier entries: an answer set determines the levels, so
//! their entropy is the information that they disclose. Sums over a slice's items are assumed to be
//! normal, as everywhere in [`super::filtering`].

use assay_eval::Metric;

use super::guesses::{Guesses, Submission, predict_boldly};
use super::intervals::{Interval, Reading, above, bold_scores, sum_of};
use crate::platform::Platform;
use crate::random::Random;
use crate::suite::{Public, Slice};

/// The shares of guesses that follow the beliefs in the drawn submissions.
const SHARES: [f64; 6] = [1.0, 0.95, 0.9, 0.75, 0.5, 0.0];

/// The boldness of the drawn submissions, if a loss is convex in the prediction. A bold wrong
/// prediction costs more than a right one gains, so guesses that are little better than random
/// reach a level only if they are timid.
const BOLDNESS: [f64; 3] = [1.0, 0.5, 0.25];

/// A smaller variance is a rounding error.
const VARIANCE_MIN: f64 = 1e-9;

/// A strategy's beliefs about the answers. A submission's score is the sum of its items' scores.
pub(super) trait Beliefs {
    /// Returns an item's likeliest candidate.
    fn likeliest(&self, item: usize) -> u8;
    /// Returns the mean score of these items.
    fn mean(&self, items: &[usize], submission: Submission<'_>) -> f64;
    /// Returns the covariance between the scores that two submissions have for these items.
    fn covariance(&self, items: &[usize], one: Submission<'_>, other: Submission<'_>) -> f64;
    /// Updates the beliefs by an interval that contains the score of these items.
    fn learn(&mut self, items: &[usize], submission: Submission<'_>, interval: Interval);
}

/// A drawn submission: its guesses, and the place of its boldness.
#[derive(Clone, Default)]
struct Entry {
    guesses: Guesses,
    boldness: usize,
}

/// The entries of all organizations.
pub(super) struct Entries<'p> {
    public: &'p Public,
    /// Each organization's number of entries; 0 without slices.
    per_organization: u32,
    /// The boldness of submissions that are drawn, and their scores by guess and answer.
    scores: Vec<(f64, Vec<Vec<f64>>)>,
    submitted: Vec<Entry>,
    /// For each slice the covariance matrix of the entries' scores, as its Cholesky factor.
    factors: Vec<Vec<Vec<f64>>>,
}

impl<'p> Entries<'p> {
    /// Creates the state before the first submission.
    pub(super) fn new(platform: &Platform<'p>) -> Self {
        let public = platform.public();
        let has_slices = !public.slices.is_empty();
        let is_convex = matches!(
            public.metric,
            Metric::Rmse
                | Metric::LogLoss
                | Metric::Brier
                | Metric::Kl
                | Metric::Jsd
                | Metric::Hellinger
                | Metric::Rps
        );
        let scores = |boldness: &f64| {
            let scores = bold_scores(public, platform.numbers(), *boldness);
            (*boldness, scores)
        };
        let n_bold = if is_convex { BOLDNESS.len() } else { 1 };
        Self {
            public,
            per_organization: if has_slices {
                platform.caps().entries
            } else {
                0
            },
            scores: BOLDNESS[..n_bold].iter().map(scores).collect(),
            submitted: Vec::new(),
            factors: vec![Vec::new(); public.slices.len()],
        }
    }

    /// Returns how many of each organization's last submissions are entries.
    pub(super) fn per_organization(&self) -> u32 {
        self.per_organization
    }

    /// Submits an organization's entries. Their scores are disclosed at once, like those of other
    /// submissions.
    pub(super) fn submit(
        &mut self,
        (platform, organization): (&mut Platform<'_>, usize),
        random: &mut Random,
        reading: &mut Reading<'_>,
        beliefs: &mut impl Beliefs,
    ) {
        let public = self.public;
        let all: Vec<usize> = (0..public.n).collect();
        for _ in 0..self.per_organization.min(platform.left(organization)) {
            let (entry, rows) = self.draw(random, beliefs);
            let (boldness, _) = self.scores[entry.boldness];
            let predictions = predict_boldly(public, platform.numbers(), &entry.guesses, boldness);
            let Some(disclosed) = platform.submit_entry(organization, &predictions) else {
                continue;
            };
            let interval = reading.observe(&disclosed);
            beliefs.learn(&all, self.submission(&entry), interval);
            self.submitted.push(entry);
            for (factor, row) in self.factors.iter_mut().zip(rows) {
                factor.push(row);
            }
        }
    }

    /// Closes the suite, and updates the beliefs by the levels in the final board.
    pub(super) fn learn(self, platform: &mut Platform<'_>, beliefs: &mut impl Beliefs) {
        for (entry, values) in self.submitted.iter().zip(platform.close()) {
            for (slice, value) in self.public.slices.iter().zip(values) {
                let interval = slice_interval(self.public, slice, value);
                beliefs.learn(&slice.items, self.submission(entry), interval);
            }
        }
    }

    fn submission<'s>(&'s self, entry: &'s Entry) -> Submission<'s> {
        let (_, scores) = &self.scores[entry.boldness];
        Submission::new(&entry.guesses, scores)
    }

    /// Draws submissions, and returns the one whose levels disclose most, with the next row of each
    /// slice's factor.
    fn draw(&self, random: &mut Random, beliefs: &impl Beliefs) -> (Entry, Vec<Vec<f64>>) {
        let public = self.public;
        let mut best: Option<(f64, Entry, Vec<Vec<f64>>)> = None;
        for share in SHARES {
            let guess = |item: usize| {
                let other = random.index(&public.frequencies) as u8;
                if random.unit() < share {
                    beliefs.likeliest(item)
                } else {
                    other
                }
            };
            let guesses: Guesses = (0..public.n).map(guess).collect();
            for boldness in 0..self.scores.len() {
                let guesses = guesses.clone();
                let entry = Entry { guesses, boldness };
                let submission = self.submission(&entry);
                let mut bits = 0.0;
                let mut rows = Vec::new();
                for (slice, factor) in public.slices.iter().zip(&self.factors) {
                    let row = self.factor_row(slice, factor, submission, beliefs);
                    let deviation = row.last().copied().unwrap_or_default();
                    let mean = beliefs.mean(&slice.items, submission);
                    bits += level_entropy(public, slice, mean, deviation);
                    rows.push(row);
                }
                if best.as_ref().is_none_or(|(most, ..)| bits > *most) {
                    best = Some((bits, entry, rows));
                }
            }
        }
        best.map(|(_, entry, rows)| (entry, rows))
            .unwrap_or_default()
    }

    /// Returns the next row of a slice's Cholesky factor. Its last number is the standard deviation
    /// of the score given the earlier entries' scores.
    fn factor_row(
        &self,
        slice: &Slice,
        factor: &[Vec<f64>],
        submission: Submission<'_>,
        beliefs: &impl Beliefs,
    ) -> Vec<f64> {
        let mut row: Vec<f64> = Vec::new();
        let mut variance = beliefs.covariance(&slice.items, submission, submission);
        for (earlier, earlier_row) in self.submitted.iter().zip(factor) {
            let earlier = self.submission(earlier);
            let covariance = beliefs.covariance(&slice.items, submission, earlier);
            let explained: f64 = row.iter().zip(earlier_row).map(|(a, b)| a * b).sum();
            let deviation = earlier_row.last().copied().unwrap_or_default();
            let next = if deviation > 0.0 {
                (covariance - explained) / deviation
            } else {
                0.0
            };
            row.push(next);
            variance -= next * next;
        }
        row.push(if variance > VARIANCE_MIN {
            variance.sqrt()
        } else {
            0.0
        });
        row
    }
}

/// Returns the interval of a slice's score that its value in the board implies.
fn slice_interval(public: &Public, slice: &Slice, value: f64) -> Interval {
    let level = slice.grid.climb(0, value);
    let sum = |level: u32| sum_of(public.metric, slice.grid.value(level), slice.items.len());
    Interval {
        low: if level > 0 {
            sum(level)
        } else {
            f64::NEG_INFINITY
        },
        high: if level < slice.grid.levels {
            sum(level + 1)
        } else {
            f64::INFINITY
        },
    }
}

/// Returns the entropy of a slice's level in bits, if its score is normal.
fn level_entropy(public: &Public, slice: &Slice, mean: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return 0.0;
    }
    let mut bits = 0.0;
    let mut above_low = 1.0;
    for level in 1..=slice.grid.levels + 1 {
        let above_high = if level <= slice.grid.levels {
            let sum = sum_of(public.metric, slice.grid.value(level), slice.items.len());
            above((sum - mean) / deviation)
        } else {
            0.0
        };
        let probability: f64 = above_low - above_high;
        if probability > 0.0 {
            bits -= probability * probability.log2();
        }
        if above_high < VARIANCE_MIN {
            break;
        }
        above_low = above_high;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caps;
    use crate::suite::Suite;

    /// Beliefs about independent answers that are equally likely right or wrong.
    struct Coins;

    impl Beliefs for Coins {
        fn likeliest(&self, _: usize) -> u8 {
            0
        }

        fn mean(&self, items: &[usize], _: Submission<'_>) -> f64 {
            items.len() as f64 / 2.0
        }

        fn covariance(&self, items: &[usize], one: Submission<'_>, other: Submission<'_>) -> f64 {
            let sign = |item: &usize| {
                if one.scores(*item) == other.scores(*item) {
                    0.25
                } else {
                    -0.25
                }
            };
            items.iter().map(sign).sum()
        }

        fn learn(&mut self, _: &[usize], _: Submission<'_>, _: Interval) {}
    }

    fn suite() -> Suite {
        let policy = "ladder(0.05)".parse().unwrap();
        let suite = crate::bench::suite(assay_eval::Metric::Accuracy, policy, 100, 1).unwrap();
        let mut field =
            assay_eval::slices::FieldSlices::new("f".into(), vec!["x".into(), "y".into()]);
        field.codes = (0..100).map(|at| (at % 2) as u8).collect();
        suite.with_slices(vec![field]).unwrap()
    }

    #[test]
    fn certain_level_has_no_entropy() {
        let suite = suite();
        let public = suite.public();
        let slice = &public.slices[0];
        let first = sum_of(public.metric, slice.grid.value(1), slice.items.len());
        let at_first = |deviation| level_entropy(public, slice, first, deviation);
        assert_eq!(at_first(0.0), 0.0);
        assert!((at_first(0.01) - 1.0).abs() < 1e-6);
        assert!(level_entropy(public, slice, first + 0.1, 0.01) < 1e-6);
        assert!(at_first(3.0) > 1.5);
    }

    #[test]
    fn repeated_or_inverted_entry_discloses_nothing() {
        let suite = suite();
        let caps = Caps {
            submissions: 3,
            organizations: 1,
            comparisons_count: false,
            entries: 3,
        };
        let mut entries = Entries::new(&Platform::new(&suite, caps));
        let slice = &suite.public().slices[0];
        let deviation = |entries: &Entries<'_>, guesses: &[u8]| {
            let submission = Submission::new(guesses, &entries.scores[0].1);
            let row = entries.factor_row(slice, &entries.factors[0], submission, &Coins);
            row.last().copied().unwrap()
        };
        let first = vec![0; 100];
        let half: Guesses = (0..100).map(|at| u8::from(at % 4 < 2)).collect();
        let independent = 0.5 * (slice.items.len() as f64).sqrt();
        assert!((deviation(&entries, &first) - independent).abs() < 1e-9);
        let submission = Submission::new(&first, &entries.scores[0].1);
        let row = entries.factor_row(slice, &[], submission, &Coins);
        entries.factors[0].push(row);
        let guesses = first.clone();
        entries.submitted.push(Entry {
            guesses,
            boldness: 0,
        });
        assert_eq!(deviation(&entries, &first), 0.0);
        assert_eq!(deviation(&entries, &[1; 100]), 0.0);
        assert!((deviation(&entries, &half) - independent).abs() < 1e-9);
    }

    #[test]
    fn board_is_shown_after_close() {
        let suite = suite();
        let caps = Caps {
            submissions: 5,
            organizations: 1,
            comparisons_count: false,
            entries: 2,
        };
        let mut platform = Platform::new(&suite, caps);
        let right: Guesses = suite
            .truth
            .iter()
            .map(|(_, right, _)| right.trailing_zeros() as u8)
            .collect();
        let wrong: Guesses = right.iter().map(|right| 1 - right).collect();
        let predictions = |guesses: &[u8]| predict_boldly(suite.public(), &[], guesses, 1.0);
        for guesses in [&wrong, &right] {
            assert!(platform.submit_entry(0, &predictions(guesses)).is_some());
        }
        assert!(platform.submit_entry(0, &predictions(&right)).is_none());
        assert_eq!(platform.left(0), 3);
        let slices = &suite.public().slices;
        let start: Vec<f64> = slices.iter().map(|slice| slice.grid.value(0)).collect();
        let end: Vec<f64> = slices
            .iter()
            .map(|slice| slice.grid.value(u32::MAX))
            .collect();
        assert_eq!(platform.close(), [start, end]);
        assert!(platform.submit(0, &predictions(&right)).is_none());
    }
}
