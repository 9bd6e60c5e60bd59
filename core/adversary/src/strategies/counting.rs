//! Correct-item counts, by rank and by submission pair.
//!
//! One organization's submissions form a block. Some submissions in the block predict the first
//! candidate for an item, the others leave the item out. If a ranking's figures disclose the
//! correct-item count at each of up to ten ranks, each rank has its own items, and a detecting
//! matrix chooses their submissions. At the first rank, and for labels, a comparison discloses how
//! many items are correct in both submissions: k submissions and their pairs cover k(k+1)/2 items,
//! each alone in its pair.

use assay_eval::{DisclosurePolicy, Family, Metric};

use super::guesses::Guesses;
use super::lattice::Decoder;
use super::rounding;
use super::weighing::{Detecting, columns_of};
use crate::platform::{Disclosed, Platform, Predicted};
use crate::random::Random;
use crate::suite::Public;

/// The most ranks whose counts a decoder can distinguish.
const RANKS_MAX: usize = 10;

/// Returns `true` if the strategy applies. Under `rounded`, the decimals must suffice to convert an
/// item share to a count.
pub fn applies(public: &Public) -> bool {
    let is_counted = match public.policy {
        DisclosurePolicy::Exact | DisclosurePolicy::Sealed(_) => true,
        policy => rounding::unit(policy).is_some_and(|unit| unit * (public.n_open as f64) < 1.0),
    };
    is_counted
        && public.is_complete
        && public.candidates.len() >= 2
        && matches!(public.metric.family(), Family::Rankings | Family::Labels)
}

/// Returns how many ranks' counts a result discloses.
fn n_ranks(public: &Public) -> usize {
    let ranks = match public.metric.family() {
        Family::Labels => 1,
        // Accuracy and hit rate give counts; the other figures are rounded too coarsely.
        _ if matches!(public.policy, DisclosurePolicy::Rounded(_)) => 2,
        _ => RANKS_MAX,
    };
    ranks.min(public.metric.cut().get())
}

/// The size of a submission block, which determines the disclosed item count.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AttackBlock {
    submissions: usize,
    ranks: usize,
    with_pairs: bool,
}

impl AttackBlock {
    /// Returns the item count at the first rank, or in a suite with labels.
    fn first(self) -> usize {
        let k = self.submissions;
        if self.with_pairs {
            k * (k + 1) / 2
        } else {
            columns_of(k)
        }
    }

    fn capacity(self) -> usize {
        self.first() + (self.ranks - 1) * columns_of(self.submissions)
    }

    /// Returns how many submissions from the allowance the block uses.
    fn cost(self, comparisons_count: bool) -> usize {
        let k = self.submissions;
        if self.with_pairs && comparisons_count {
            k * (k + 1) / 2
        } else {
            k
        }
    }

    /// Returns the cheapest block for `n` items, or else the block that discloses most items within
    /// the allowance.
    fn best(public: &Public, n: usize, allowance: usize, comparisons_count: bool) -> Option<Self> {
        let ranks = n_ranks(public);
        let can_pair = !matches!(public.policy, DisclosurePolicy::Rounded(_));
        let plans = (1..=allowance).flat_map(|submissions| {
            [can_pair, false].map(|with_pairs| Self {
                submissions,
                ranks,
                with_pairs,
            })
        });
        let affordable: Vec<Self> = plans
            .filter(|shape| shape.cost(comparisons_count) <= allowance)
            .collect();
        let sufficient = affordable
            .iter()
            .filter(|shape| shape.capacity() >= n)
            .min_by_key(|shape| shape.cost(comparisons_count));
        sufficient
            .or_else(|| affordable.iter().max_by_key(|shape| shape.capacity()))
            .copied()
    }
}

/// Returns how many submissions disclose every answer in a suite with two candidates.
/// With more candidates it is the maximum.
pub fn submissions_needed(public: &Public, comparisons_count: bool) -> Option<u32> {
    if !applies(public) {
        return None;
    }
    let cost = AttackBlock::best(public, public.n, 4 * public.n, comparisons_count)?
        .cost(comparisons_count);
    Some((cost * (public.candidates.len() - 1)) as u32)
}

/// Finds the items, one candidate after the other, the most frequent first. The remaining items
/// have the last candidate.
pub fn run(platform: &mut Platform<'_>, _: &mut Random) -> Guesses {
    let public = platform.public();
    let mut guesses = public.most_frequent();
    let mut open: Vec<usize> = (0..public.n).collect();
    for candidate in 0..public.candidates.len() - 1 {
        let mut left = Vec::new();
        let mut waiting = open.clone();
        while !waiting.is_empty() {
            let Some(organization) = (0..platform.caps().organizations as usize)
                .find(|organization| platform.left(*organization) > 0)
            else {
                // Without information, guess the most frequent candidate that is not excluded.
                waiting
                    .iter()
                    .for_each(|item| guesses[*item] = candidate as u8);
                left.iter()
                    .for_each(|item: &usize| guesses[*item] = candidate as u8 + 1);
                return guesses;
            };
            let allowance = platform.left(organization) as usize;
            let Some(shape) = AttackBlock::best(
                public,
                waiting.len(),
                allowance,
                platform.caps().comparisons_count,
            ) else {
                break;
            };
            let block: Vec<usize> = waiting
                .drain(..shape.capacity().min(waiting.len()))
                .collect();
            for (item, is_right) in block.iter().zip(read_block(
                platform,
                organization,
                shape,
                &block,
                candidate as u8,
            )) {
                if is_right {
                    guesses[*item] = candidate as u8;
                } else {
                    left.push(*item);
                }
            }
        }
        open = left;
    }
    open.iter()
        .for_each(|item| guesses[*item] = (public.candidates.len() - 1) as u8);
    guesses
}

/// The submissions that count an item in a block, and its rank.
#[derive(Clone, Copy)]
enum Place {
    /// Two submissions, possibly the same one, at the first rank.
    Pair(usize, usize),
    /// A rank, from 0, and a column's submissions.
    Column(usize, usize),
}

impl Place {
    fn is_in(self, submission: usize, matrix: &Detecting) -> Option<usize> {
        match self {
            Self::Pair(one, other) => (one == submission || other == submission).then_some(0),
            Self::Column(rank, column) => matrix.has(submission, column).then_some(rank),
        }
    }
}

fn places(shape: AttackBlock, n: usize) -> Vec<Place> {
    let k = shape.submissions;
    let pairs = (0..k).flat_map(|one| (one..k).map(move |other| Place::Pair(one, other)));
    let first: Vec<Place> = if shape.with_pairs {
        pairs.collect()
    } else {
        (0..columns_of(k))
            .map(|column| Place::Column(0, column))
            .collect()
    };
    let others = (1..shape.ranks)
        .flat_map(|rank| (0..columns_of(k)).map(move |column| Place::Column(rank, column)));
    first.into_iter().chain(others).take(n).collect()
}

/// Returns for each item in a block `true` if the item is open and this candidate is its answer.
fn read_block(
    platform: &mut Platform<'_>,
    organization: usize,
    shape: AttackBlock,
    block: &[usize],
    candidate: u8,
) -> Vec<bool> {
    let public = platform.public();
    let matrix = Detecting::new(shape.submissions);
    let places = places(shape, block.len());
    let is_ranked = public.metric.family() == Family::Rankings;
    let decoder = is_ranked.then(|| Decoder::new(weights(shape.ranks)));
    let share = public.frequencies[usize::from(candidate)] * public.n_open as f64 / public.n as f64;
    let mut jobs = Vec::new();
    let mut counts = Vec::new();
    for submission in 0..shape.submissions {
        let mut predictions = vec![Predicted::Missing; public.n];
        let mut expected = vec![0.0; shape.ranks];
        for (item, place) in block.iter().zip(&places) {
            if let Some(rank) = place.is_in(submission, &matrix) {
                predictions[*item] = if is_ranked {
                    Predicted::Rank(candidate, rank as u8 + 1)
                } else {
                    Predicted::Label(candidate)
                };
                expected[rank] += share;
            }
        }
        let Some(disclosed) = platform.submit(organization, &predictions) else {
            return vec![false; block.len()];
        };
        counts.push(counts_of(public, decoder.as_ref(), &disclosed, &expected));
        jobs.push(disclosed.job);
    }
    let column_counts =
        |rank: usize| -> Vec<i64> { counts.iter().map(|counts| counts[rank]).collect() };
    let by_rank: Vec<Vec<bool>> = (0..shape.ranks)
        .map(|rank| matrix.decode(&column_counts(rank)))
        .collect();
    let mut right: Vec<bool> = places
        .iter()
        .map(|place| matches!(place, Place::Column(rank, column) if by_rank[*rank][*column]))
        .collect();
    if !shape.with_pairs {
        return right;
    }
    // One submission's items alone: its count without the pairs.
    let mut alone: Vec<i64> = column_counts(0);
    for (at, place) in places.iter().enumerate() {
        let Place::Pair(one, other) = *place else {
            continue;
        };
        if one == other {
            continue;
        }
        let Some((_, found)) = platform.compare(organization, jobs[one], jobs[other]) else {
            continue;
        };
        // Items at other ranks also have scores, except with accuracy.
        let scores_ranks = is_ranked && public.metric != Metric::Accuracy;
        let differs = |(place, right): (&Place, &bool)| match place {
            Place::Column(..) => {
                *right && scores_ranks && place.is_in(one, &matrix) != place.is_in(other, &matrix)
            }
            Place::Pair(..) => false,
        };
        let other_counts = places
            .iter()
            .zip(&right)
            .filter(|pair| differs(*pair))
            .count() as i64;
        let n_differ = found.n_differ.map_or(0, |n| n as i64) - other_counts;
        right[at] = (counts[one][0] + counts[other][0] - n_differ) / 2 > 0;
        if right[at] {
            alone[one] -= 1;
            alone[other] -= 1;
        }
    }
    for (at, place) in places.iter().enumerate() {
        if let Place::Pair(one, other) = *place
            && one == other
        {
            right[at] = alone[one] > 0;
        }
    }
    right
}

/// Returns the amounts that a correct item at each rank adds to accuracy, hit rate, mrr and ndcg.
fn weights(ranks: usize) -> Vec<Vec<f64>> {
    let of = |figure: fn(f64) -> f64| (1..=ranks).map(|rank| figure(rank as f64)).collect();
    vec![
        of(|rank| f64::from(u8::from(rank == 1.0))),
        of(|_| 1.0),
        of(|rank| 1.0 / rank),
        of(|rank| 1.0 / (rank + 1.0).log2()),
    ]
}

/// Returns the correct-item count at each rank.
fn counts_of(
    public: &Public,
    decoder: Option<&Decoder>,
    disclosed: &Disclosed,
    expected: &[f64],
) -> Vec<i64> {
    let sum = |name: &str| {
        disclosed
            .figure(public, name)
            .map_or(0.0, |figure| figure * disclosed.n as f64)
    };
    let k = public.metric.cut().get();
    let Some(decoder) = decoder else {
        return vec![sum("accuracy").round() as i64];
    };
    if matches!(public.policy, DisclosurePolicy::Rounded(_)) {
        let first = sum("accuracy").round() as i64;
        let all = sum(&format!("hit_rate@{k}")).round() as i64;
        return if expected.len() == 1 {
            vec![first]
        } else {
            vec![first, all - first]
        };
    }
    let sums = [
        sum("accuracy"),
        sum(&format!("hit_rate@{k}")),
        sum(&format!("mrr@{k}")),
        sum(&format!("ndcg@{k}")),
    ];
    decoder.decode(&sums, expected).unwrap_or_else(|| {
        expected
            .iter()
            .map(|expected| expected.round() as i64)
            .collect()
    })
}
