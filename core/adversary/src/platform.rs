//! The platform as seen by an attacker: the real scorer scores submissions, and the real policy
//! discloses the figures.

use std::borrow::Cow;
use std::ops::ControlFlow;

use assay_eval::QuantileLevels;
use assay_eval::compare::{Aggregate, Difference, Pairs, StoredItems, point};
use assay_eval::item_scores::ItemScores;
use assay_eval::prediction::{Prediction, PredictionSink as _, Value};
use assay_eval::score::{Figures, Progress, Scorer};

use crate::caps::Caps;
use crate::suite::{Candidate, Public, Slice, Suite};

/// A label that no suite contains. It fills ranks in a ranking, or takes the remaining probability.
const FILLER: &str = "\u{1}filler";

/// The prediction for an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicted {
    /// No prediction for the item.
    Missing,
    /// A candidate and its rank, from 1. No candidate is at the ranks above it.
    Rank(u8, u8),
    /// Candidates, the most probable first.
    Ranking(Vec<u8>),
    /// A candidate's label.
    Label(u8),
    /// A number, not necessarily a candidate. In a suite with quantiles, the number at each level.
    Number(f64),
    /// A number for each level of the suite.
    Quantiles(Vec<f64>),
    /// A probability for each candidate. The remainder to 1 goes to a label that no item has.
    Probabilities(Vec<f64>),
}

/// A submission's disclosed figures.
#[derive(Debug, Clone)]
pub struct Disclosed {
    /// The job's index within its organization, from 0.
    pub job: usize,
    /// The open item count.
    pub n: i64,
    /// The figures that the policy discloses.
    pub figures: Figures,
}

impl Disclosed {
    /// Returns a figure by its name: the metric's value, or an additional metric.
    pub fn figure(&self, public: &Public, name: &str) -> Option<f64> {
        if public.metric.to_string() == name {
            Some(self.figures.value)
        } else {
            self.figures.metrics.get(name).copied()
        }
    }
}

/// One attacker organization.
#[derive(Debug, Default)]
struct Account {
    used: u32,
    level: u32,
    /// For each entry the slices' values, in their order.
    entries: Vec<Vec<f64>>,
    jobs: Vec<(f64, ItemScores)>,
}

/// The platform with the attacker's organizations.
#[derive(Debug)]
pub struct Platform<'s> {
    suite: &'s Suite,
    caps: Caps,
    accounts: Vec<Account>,
    is_closed: bool,
    labels: Vec<Cow<'static, str>>,
    numbers: Vec<f64>,
}

impl<'s> Platform<'s> {
    /// Opens the attacker's organizations on a platform with this suite.
    pub fn new(suite: &'s Suite, caps: Caps) -> Self {
        let accounts = (0..caps.organizations)
            .map(|_| Account::default())
            .collect();
        let text = |candidate: &Candidate| match candidate {
            Candidate::Label(label) => label.clone(),
            Candidate::Number(_) => Cow::Borrowed(FILLER),
        };
        let number = |candidate: &Candidate| match candidate {
            Candidate::Number(number) => *number,
            Candidate::Label(_) => 0.0,
        };
        let candidates = &suite.public.candidates;
        let labels = candidates
            .iter()
            .map(text)
            .chain([Cow::Borrowed(FILLER)])
            .collect();
        Self {
            suite,
            caps,
            accounts,
            is_closed: false,
            labels,
            numbers: candidates.iter().map(number).collect(),
        }
    }

    /// Returns the public facts about the suite.
    pub fn public(&self) -> &'s Public {
        &self.suite.public
    }

    /// Returns the attack's caps.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Returns the candidates in a suite with numbers; 0.0 for each label.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// Returns the submission count over all organizations, including comparisons that
    /// count.
    pub fn used(&self) -> u32 {
        self.accounts.iter().map(|account| account.used).sum()
    }

    /// Returns how many submissions an organization has left: none after the close.
    pub fn left(&self, organization: usize) -> u32 {
        if self.is_closed {
            return 0;
        }
        self.accounts
            .get(organization)
            .map_or(0, |account| self.caps.submissions - account.used)
    }

    /// Returns how many submissions all organizations together have left.
    pub fn total_left(&self) -> u32 {
        (0..self.accounts.len())
            .map(|organization| self.left(organization))
            .sum()
    }

    /// Submits from the first organization with submissions left.
    pub fn submit_from_any(&mut self, predictions: &[Predicted]) -> Option<Disclosed> {
        let organization =
            (0..self.accounts.len()).find(|organization| self.left(*organization) > 0)?;
        self.submit(organization, predictions)
    }

    /// Submits predictions, one for each item in the suite's order. Returns `None` if the cap is
    /// reached, or if the predictions are rejected, which uses a submission too.
    pub fn submit(&mut self, organization: usize, predictions: &[Predicted]) -> Option<Disclosed> {
        self.score(organization, predictions, false)
    }

    /// Submits predictions, and enters them in the final board. Returns `None` like
    /// [`Self::submit`], and if the organization has no entry left.
    pub fn submit_entry(
        &mut self,
        organization: usize,
        predictions: &[Predicted],
    ) -> Option<Disclosed> {
        let entries = &self.accounts.get(organization)?.entries;
        let is_free = (entries.len() as u32) < self.caps.entries;
        is_free.then(|| self.score(organization, predictions, true))?
    }

    /// Closes the suite: no submission is accepted any more. Returns the final board: the slices'
    /// values on their grids for each entry, by organization and in the order of its entries.
    pub fn close(&mut self) -> Vec<Vec<f64>> {
        self.is_closed = true;
        let accounts = self.accounts.iter();
        accounts
            .flat_map(|account| account.entries.clone())
            .collect()
    }

    fn score(
        &mut self,
        organization: usize,
        predictions: &[Predicted],
        is_entry: bool,
    ) -> Option<Disclosed> {
        if self.left(organization) == 0 {
            return None;
        }
        let Suite {
            public,
            open,
            sealed,
            truth,
            ..
        } = self.suite;
        let account = self.accounts.get_mut(organization)?;
        account.used += 1;
        let progress = Progress::default();
        let mut scorer = Scorer::new(open, public.metric, &progress).with_sealed(sealed.as_ref());
        if !is_entry {
            scorer = scorer.without_slices();
        }
        let filler = self.labels.len() - 1;
        let mut ids: Vec<Cow<'_, str>> = Vec::new();
        let mut shares: Vec<(Cow<'_, str>, f64)> = Vec::new();
        let label = |at: usize| Cow::Borrowed(self.labels[at].as_ref());
        for (index, ((item_id, ..), predicted)) in truth.iter().zip(predictions).enumerate() {
            let value = match predicted {
                Predicted::Missing => continue,
                Predicted::Rank(candidate, rank) => {
                    ids.clear();
                    ids.extend((1..*rank).map(|_| label(filler)));
                    ids.push(label(usize::from(*candidate)));
                    Value::Ranking(&ids)
                }
                Predicted::Ranking(candidates) => {
                    ids.clear();
                    ids.extend(
                        candidates
                            .iter()
                            .map(|candidate| label(usize::from(*candidate))),
                    );
                    Value::Ranking(&ids)
                }
                Predicted::Label(candidate) => Value::Label(&self.labels[usize::from(*candidate)]),
                Predicted::Number(number) => match &public.levels {
                    Some(levels) => {
                        shares.clear();
                        shares.extend(levels.names().map(|name| (name.into(), *number)));
                        Value::Probabilities(&shares)
                    }
                    None => Value::Number(*number),
                },
                Predicted::Quantiles(numbers) => {
                    let names = public.levels.iter().flat_map(QuantileLevels::names);
                    shares.clear();
                    shares.extend(names.map(Cow::Borrowed).zip(numbers.iter().copied()));
                    Value::Probabilities(&shares)
                }
                Predicted::Probabilities(of_candidates) => {
                    shares.clear();
                    shares.extend(
                        of_candidates
                            .iter()
                            .enumerate()
                            .map(|(at, share)| (label(at), *share)),
                    );
                    let rest = 1.0 - of_candidates.iter().sum::<f64>();
                    if rest > 1e-9 {
                        shares.push((label(filler), rest));
                    }
                    Value::Probabilities(&shares)
                }
            };
            let prediction = Prediction {
                index,
                line: None,
                item_id: Cow::Borrowed(item_id),
                value,
            };
            if let ControlFlow::Break(_) = scorer.take(Ok(prediction)) {
                return None;
            }
        }
        let score = scorer.finish().ok()?;
        if is_entry {
            let groups = score.figures.slices.iter().flat_map(|field| &field.groups);
            let on_grid =
                |(Slice { grid, .. }, value): (&Slice, f64)| grid.value(grid.climb(0, value));
            let values = public.slices.iter().zip(groups.map(|group| group.value));
            account.entries.push(values.map(on_grid).collect());
        }
        let ladder = public.ladder.map(|ladder| (ladder, &mut account.level));
        let figures = public.policy.disclose(score.figures, ladder).ok()?;
        account.jobs.push((figures.value, score.items));
        Some(Disclosed {
            job: account.jobs.len() - 1,
            n: score.n,
            figures,
        })
    }

    /// Compares an organization's two jobs. Returns the disclosed difference between their values
    /// and the items' statistics, or `None` if the policy does not allow comparisons, or if
    /// comparisons count and the cap is reached.
    pub fn compare(
        &mut self,
        organization: usize,
        one: usize,
        other: usize,
    ) -> Option<(f64, Difference)> {
        let public = &self.suite.public;
        if !public.policy.allows_comparisons()
            || (self.caps.comparisons_count && self.left(organization) == 0)
        {
            return None;
        }
        let account = self.accounts.get_mut(organization)?;
        account.used += u32::from(self.caps.comparisons_count);
        let ((value, items), (other_value, other_items)) =
            (account.jobs.get(one)?, account.jobs.get(other)?);
        let one = stored_items(items);
        let other = stored_items(other_items);
        let contribution = |stored: &StoredItems| {
            let mut figure = Aggregate::new(public.metric);
            figure.add(stored);
            figure.contribution()
        };
        let mut pairs = Pairs::new(public.metric);
        pairs.add(
            (&one, &contribution(&one)),
            (&other, &contribution(&other)),
            None,
        );
        let difference = value - other_value;
        let found = pairs.finish(difference, point(public.metric, *value, *other_value), true);
        public.policy.disclose_difference(difference, found)
    }
}

fn stored_items(items: &ItemScores) -> StoredItems {
    let rights = if items.kind().has_right() {
        (0..items.len()).map(|item| items.is_right(item)).collect()
    } else {
        Vec::new()
    };
    StoredItems {
        values: (0..items.len()).map(|item| items.value(item)).collect(),
        rights,
    }
}
