//! The platform as an attacker sees it: submissions are scored by the real scorer, and disclosed by the real policy.

use std::borrow::Cow;
use std::ops::ControlFlow;

use assay_eval::compare::{Aggregate, Difference, Pairs, StoredItems, point};
use assay_eval::item_scores::ItemScores;
use assay_eval::prediction::{Prediction, Value};
use assay_eval::score::{Figures, Prefetch, Progress, Scorer};

use crate::suite::{Candidate, Public, Suite};

/// A label that no suite has: an id that takes a place in a ranking, or a label whose probability is lost.
const FILLER: &str = "\u{1}filler";

/// The numbers of submissions that the attacker may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Submissions per organization.
    pub submissions: u32,
    /// Organizations, each with its own allowance and its own ladder.
    pub organizations: u32,
    /// Whether a comparison takes one submission of the allowance.
    pub comparisons_count: bool,
}

/// The prediction for an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicted {
    /// Nothing.
    Missing,
    /// This candidate at this rank, from 1, below ranks that hold no candidate.
    Rank(u8, u8),
    /// Candidates, the most probable first.
    Ranking(Vec<u8>),
    /// The label of this candidate.
    Label(u8),
    /// A number.
    Number(f64),
    /// A probability for each candidate, and what is left to 1 for a label that no item has.
    Probabilities(Vec<f64>),
}

/// The disclosed figures of a submission.
#[derive(Debug, Clone)]
pub struct Disclosed {
    /// The number of the job within its organization.
    pub job: usize,
    /// The number of open items.
    pub n: i64,
    /// The figures, as far as the policy discloses them.
    pub figures: Figures,
}

impl Disclosed {
    /// Returns a figure by its name, whether it is the metric's value or stands beside it.
    pub fn figure(&self, public: &Public, name: &str) -> Option<f64> {
        if public.metric.to_string() == name {
            Some(self.figures.value)
        } else {
            self.figures.metrics.get(name).copied()
        }
    }
}

/// One organization of the attacker.
#[derive(Debug, Default)]
struct Account {
    used: u32,
    level: u32,
    jobs: Vec<(f64, ItemScores)>,
}

/// The platform with the attacker's organizations.
#[derive(Debug)]
pub struct Platform<'s> {
    suite: &'s Suite,
    caps: Caps,
    accounts: Vec<Account>,
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
            labels,
            numbers: candidates.iter().map(number).collect(),
        }
    }

    /// Returns the public facts about the suite.
    pub fn public(&self) -> &'s Public {
        &self.suite.public
    }

    /// The caps.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// The candidates of a suite of numbers.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// The number of submissions, with comparisons that count, over all organizations.
    pub fn used(&self) -> u32 {
        self.accounts.iter().map(|account| account.used).sum()
    }

    /// The number of submissions that an organization has left.
    pub fn left(&self, organization: usize) -> u32 {
        self.accounts
            .get(organization)
            .map_or(0, |account| self.caps.submissions - account.used)
    }

    /// The number of submissions that all organizations together have left.
    pub fn left_in_all(&self) -> u32 {
        (0..self.accounts.len())
            .map(|organization| self.left(organization))
            .sum()
    }

    /// Submits from the first organization that still may.
    pub fn submit_from_any(&mut self, predictions: &[Predicted]) -> Option<Disclosed> {
        let organization =
            (0..self.accounts.len()).find(|organization| self.left(*organization) > 0)?;
        self.submit(organization, predictions)
    }

    /// Submits predictions, one for each item in the suite's order. `None`: the cap is reached, or the predictions are
    /// refused, which takes a submission too.
    pub fn submit(&mut self, organization: usize, predictions: &[Predicted]) -> Option<Disclosed> {
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
        let (pulse, foresight) = (Progress::default(), Prefetch::default());
        let mut tally =
            Scorer::new(open, public.metric, &pulse, &foresight).with_sealed(sealed.as_ref());
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
                Predicted::Number(number) => Value::Number(*number),
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
            if let ControlFlow::Break(_) = tally.add(Ok(prediction)) {
                return None;
            }
        }
        let score = tally.finish().ok()?;
        let ladder = public.ladder.map(|ladder| (ladder, &mut account.level));
        let figures = public.policy.disclose(score.figures, ladder).ok()?;
        account.jobs.push((figures.value, score.items));
        Some(Disclosed {
            job: account.jobs.len() - 1,
            n: score.n,
            figures,
        })
    }

    /// Compares two jobs of an organization: the difference of their values, and what was computed from the items. `None`
    /// where comparisons are not allowed, or a comparison counts and the cap is reached.
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
        let (one, other) = (kept(items), kept(other_items));
        let parts = |kept: &StoredItems| {
            let mut figure = Aggregate::new(public.metric);
            figure.add(kept);
            figure.parts()
        };
        let mut pairs = Pairs::new(public.metric);
        pairs.add((&one, &parts(&one)), (&other, &parts(&other)));
        let difference = value - other_value;
        let found = pairs.finish(difference, point(public.metric, *value, *other_value), true);
        public.policy.disclose_difference(difference, found)
    }
}

fn kept(items: &ItemScores) -> StoredItems {
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
