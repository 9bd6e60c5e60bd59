//! A suite under attack: its hidden answers in the real scorer's tables, and its public facts.

use std::borrow::Cow;
use std::collections::HashMap;

use assay_eval::score::{AnswerTable, Builder};
use assay_eval::{Answer, Clip, Corrupt, DisclosurePolicy, Ladder, Metric};

use crate::random::Random;

/// The most candidate answers that an attacker considers per item.
pub const CANDIDATES_MAX: usize = 16;

/// The most items that [`crate::attack`] attacks. It samples a larger suite at random.
pub const ITEMS_MAX: usize = 1000;

/// One suite item with its answer.
#[derive(Debug, Clone)]
pub struct Item<'a> {
    /// The item's id.
    pub item_id: Cow<'a, str>,
    /// The item's answer, which the attacker does not see.
    pub answer: Answer<'a>,
    /// `true` if the item is sealed.
    pub is_sealed: bool,
}

/// The reason why a suite cannot be attacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuiteError {
    /// The suite has no open items.
    Empty,
    /// The policy is a ladder, and the metric has no grid.
    NoGrid,
    /// The answers are inconsistent. Holds the scorer's message.
    Corrupt(String),
}

impl std::fmt::Display for SuiteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the suite has no open items"),
            Self::NoGrid => f.write_str("the suite has a ladder without a grid: the metric is unbounded, or a trivial submission is best"),
            Self::Corrupt(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SuiteError {}

impl From<Corrupt> for SuiteError {
    fn from(Corrupt(message): Corrupt) -> Self {
        Self::Corrupt(message)
    }
}

/// A possible answer that an attacker can predict.
#[derive(Debug, Clone, PartialEq)]
pub enum Candidate {
    /// An id or a label.
    Label(Cow<'static, str>),
    /// A numeric answer's value.
    Number(f64),
}

/// The facts that an attacker knows without submissions: everything except the items' answers and
/// which items are sealed.
#[derive(Debug, Clone)]
pub struct Public {
    /// The suite's primary metric.
    pub metric: Metric,
    /// The bounds on an item's loss, if the suite clips it.
    pub clip: Option<Clip>,
    /// The disclosure policy.
    pub policy: DisclosurePolicy,
    /// The grid, if the policy is a ladder.
    pub ladder: Option<Ladder>,
    /// The item count, open and sealed.
    pub n: usize,
    /// The open item count.
    pub n_open: usize,
    /// The candidate answers, the most frequent first.
    pub candidates: Vec<Candidate>,
    /// For each candidate, the item share whose answer it is.
    pub frequencies: Vec<f64>,
    /// `true` if each item has exactly one answer, which is a candidate.
    pub is_complete: bool,
}

impl Public {
    /// Guesses the most frequent candidate for every item: the first.
    pub fn most_frequent(&self) -> Vec<u8> {
        vec![0; self.n]
    }
}

/// A suite under attack.
#[derive(Debug)]
pub struct Suite {
    pub(crate) public: Public,
    pub(crate) open: AnswerTable,
    pub(crate) sealed: Option<AnswerTable>,
    /// For each item, in prediction order: the id, the correct candidates as a bit set,
    /// and `true` if the item is sealed.
    pub(crate) truth: Vec<(String, u32, bool)>,
    items: Vec<Item<'static>>,
}

/// Builds these items' answer table.
fn table<'i>(
    items: impl Iterator<Item = &'i Item<'static>> + Clone,
    metric: Metric,
    clip: Option<Clip>,
) -> Result<AnswerTable, Corrupt> {
    let mut builder = Builder::new(metric, items.clone().count()).clip(clip);
    for item in items {
        builder.push(&item.item_id, &item.answer)?;
    }
    builder.finish()
}

fn owned(item: Item<'_>) -> Item<'static> {
    let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    let answer = match item.answer {
        Answer::Label(label) => Answer::Label(text(label)),
        Answer::Set(ids) => Answer::Set(ids.into_iter().map(text).collect()),
        Answer::Gains(gains) => Answer::Gains(
            gains
                .into_iter()
                .map(|(id, gain)| (text(id), gain))
                .collect(),
        ),
        Answer::Number(number) => Answer::Number(number),
    };
    Item {
        item_id: text(item.item_id),
        answer,
        is_sealed: item.is_sealed,
    }
}

impl Suite {
    /// Builds a suite. Under [`DisclosurePolicy::Sealed`] the sealed items have their own table,
    /// like a published suite's; under any other policy all items are open. A ladder's
    /// grid starts at the best trivial submission to the open items.
    ///
    /// The candidates are the most frequent answers, at most [`CANDIDATES_MAX`]. Numbers with more
    /// distinct values are represented by as many quantiles; a number then counts as known if the
    /// attacker finds the nearest quantile.
    pub fn new(
        metric: Metric,
        clip: Option<Clip>,
        policy: DisclosurePolicy,
        items: Vec<Item<'_>>,
    ) -> Result<Self, SuiteError> {
        let is_sealed = matches!(policy, DisclosurePolicy::Sealed(_));
        let mut items: Vec<Item<'static>> = items.into_iter().map(owned).collect();
        items
            .iter_mut()
            .for_each(|item| item.is_sealed &= is_sealed);
        let open = table(items.iter().filter(|item| !item.is_sealed), metric, clip)?;
        if open.is_empty() {
            return Err(SuiteError::Empty);
        }
        let any_sealed = items.iter().any(|item| item.is_sealed);
        let sealed = if any_sealed {
            Some(table(
                items.iter().filter(|item| item.is_sealed),
                metric,
                clip,
            )?)
        } else {
            None
        };
        let (candidates, frequencies) = candidates(&items);
        let ladder = match policy {
            DisclosurePolicy::Ladder(step) => {
                Some(Ladder::for_suite(step, metric, clip, &open).ok_or(SuiteError::NoGrid)?)
            }
            _ => None,
        };
        let truth: Vec<_> = items
            .iter()
            .map(|item| {
                (
                    item.item_id.to_string(),
                    right_candidates(&item.answer, &candidates),
                    item.is_sealed,
                )
            })
            .collect();
        let is_single = |item: &Item<'_>| match (&item.answer, &candidates[..]) {
            (Answer::Number(number), candidates) => {
                candidates.contains(&Candidate::Number(*number))
            }
            (Answer::Label(_), _) => true,
            (Answer::Set(ids), _) => ids.len() == 1,
            (Answer::Gains(_), _) => false,
        };
        let is_complete = items
            .iter()
            .zip(&truth)
            .all(|(item, (_, right, _))| *right != 0 && is_single(item));
        let n_open = open.len();
        let public = Public {
            metric,
            clip,
            policy,
            ladder,
            n: items.len(),
            n_open,
            candidates,
            frequencies,
            is_complete,
        };
        Ok(Self {
            public,
            open,
            sealed,
            truth,
            items,
        })
    }

    /// Returns the grid, if the policy is a ladder.
    pub fn ladder(&self) -> Option<Ladder> {
        self.public.ladder
    }

    /// Returns the item count, open and sealed.
    pub fn n(&self) -> usize {
        self.public.n
    }

    /// Returns the public facts about the suite.
    pub fn public(&self) -> &Public {
        &self.public
    }

    /// Builds a suite from a random sample with [`ITEMS_MAX`] items, in the suite's order, with its
    /// own grid. Returns `None` if the suite has no more items than that, or if the sample has no
    /// grid.
    pub fn sample(&self, seed: u64) -> Option<Self> {
        if self.items.len() <= ITEMS_MAX {
            return None;
        }
        let mut chosen = Random::new(seed).order(self.items.len());
        chosen.truncate(ITEMS_MAX);
        chosen.sort_unstable();
        let items = chosen
            .into_iter()
            .map(|at| self.items[at].clone())
            .collect();
        // If the sample has no grid, the caller attacks the suite itself.
        Self::new(
            self.public.metric,
            self.public.clip,
            self.public.policy,
            items,
        )
        .ok()
    }

    /// Returns the open- and sealed-item shares whose answer is the most frequent candidate,
    /// and which are therefore known without submissions.
    pub fn chance(&self) -> (f64, Option<f64>) {
        self.grade(&self.public.most_frequent())
    }

    /// Returns the open- and sealed-item shares whose guessed candidate is correct.
    pub fn grade(&self, guesses: &[u8]) -> (f64, Option<f64>) {
        let share = |of_sealed: bool| {
            let graded = self
                .truth
                .iter()
                .zip(guesses)
                .filter(|((.., is_sealed), _)| *is_sealed == of_sealed);
            let (n, right) = graded.fold((0_u32, 0_u32), |(n, right), ((_, truth, _), guess)| {
                (n + 1, right + (truth >> guess & 1))
            });
            (n > 0).then(|| f64::from(right) / f64::from(n))
        };
        (share(false).unwrap_or(0.0), share(true))
    }
}

/// Returns a bit set with the candidates that are correct for an answer; for a number, the nearest
/// one.
fn right_candidates(answer: &Answer<'_>, candidates: &[Candidate]) -> u32 {
    match answer {
        Answer::Number(number) => {
            let distance = |candidate: &Candidate| match candidate {
                Candidate::Number(other) => (number - other).abs(),
                Candidate::Label(_) => f64::INFINITY,
            };
            candidates
                .iter()
                .map(distance)
                .enumerate()
                .min_by(|(_, one), (_, other)| one.total_cmp(other))
                .map_or(0, |(at, _)| 1 << at)
        }
        _ => {
            let relevant = answer.relevant();
            let is_right = |candidate: &Candidate| match candidate {
                Candidate::Label(label) => relevant.iter().any(|(id, _)| id == label),
                Candidate::Number(_) => false,
            };
            candidates
                .iter()
                .enumerate()
                .filter(|(_, candidate)| is_right(candidate))
                .map(|(at, _)| 1 << at)
                .sum()
        }
    }
}

/// Returns a suite's candidates with their frequencies, the most frequent first. Equally
/// frequent candidates keep their natural order.
fn candidates(items: &[Item<'_>]) -> (Vec<Candidate>, Vec<f64>) {
    let mut numbers: Vec<f64> = items
        .iter()
        .filter_map(|item| {
            if let Answer::Number(number) = item.answer {
                Some(number)
            } else {
                None
            }
        })
        .collect();
    let n = items.len() as f64;
    if numbers.is_empty() {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        items
            .iter()
            .flat_map(|item| item.answer.relevant())
            .for_each(|(id, _)| *counts.entry(id).or_default() += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|(one, of_one), (other, of_other)| {
            of_other.cmp(of_one).then(one.cmp(other))
        });
        counts.truncate(CANDIDATES_MAX);
        return counts
            .into_iter()
            .map(|(id, count)| {
                (
                    Candidate::Label(Cow::Owned(id.to_owned())),
                    count as f64 / n,
                )
            })
            .unzip();
    }
    numbers.sort_unstable_by(f64::total_cmp);
    let mut distinct = numbers.clone();
    distinct.dedup();
    if distinct.len() > CANDIDATES_MAX {
        distinct = (0..CANDIDATES_MAX)
            .map(|at| numbers[(2 * at + 1) * numbers.len() / (2 * CANDIDATES_MAX)])
            .collect();
        distinct.dedup();
    }
    let nearest = |number: f64| {
        let distances = distinct
            .iter()
            .map(|candidate| (number - candidate).abs())
            .enumerate();
        distances
            .min_by(|(_, one), (_, other)| one.total_cmp(other))
            .map_or(0, |(at, _)| at)
    };
    let mut counts: Vec<(f64, usize)> = distinct.iter().map(|number| (*number, 0)).collect();
    numbers
        .iter()
        .for_each(|number| counts[nearest(*number)].1 += 1);
    counts.sort_by(|(_, one), (_, other)| other.cmp(one));
    counts
        .into_iter()
        .map(|(number, count)| (Candidate::Number(number), count as f64 / n))
        .unzip()
}
