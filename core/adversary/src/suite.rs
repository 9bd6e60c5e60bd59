//! A suite under attack: its hidden answers in the real scorer's tables, and its public facts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use assay_eval::score::{
    AnswerTable, Builder, Progress, Scorer, SkillGroups, best_trivial, score_skill_baseline,
    trivial_submissions,
};
use assay_eval::skill::SkillBaseline;
use assay_eval::slices::{FieldSlices, NO_SLICE};
use assay_eval::{Answer, Clip, Corrupt, DisclosurePolicy, Family, Ladder, Metric, QuantileLevels};

use crate::caps::Caps;
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

/// A slice whose values the final board of a suite with a ladder shows.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The slice's items, by their places in the suite.
    pub items: Vec<usize>,
    /// The grid of the slice's values.
    pub grid: Ladder,
}

/// The facts that an attacker knows without submissions: everything except the items' answers and
/// which items are sealed.
#[derive(Debug, Clone)]
pub struct Public {
    /// The suite's primary metric.
    pub metric: Metric,
    /// The options that the suite names; empty if it names none.
    pub options: Vec<String>,
    /// The levels of predicted quantiles, if the suite has them.
    pub levels: Option<QuantileLevels>,
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
    /// `true` if an answer is a distribution. Such a suite has no candidates: see
    /// [`read_shares`](crate::read_shares).
    pub has_distributions: bool,
    /// One item with each candidate as its answer, if the metric compares distributions.
    pub(crate) by_answer: Option<Arc<AnswerTable>>,
    /// The slices in the final board, by field. The attacker is assumed to know the slices of each
    /// item, even by a hidden field.
    pub slices: Vec<Slice>,
    /// The distance of the baseline's value from the best one, if results have a skill. It follows from
    /// the frequencies.
    pub skill_distance: Option<f64>,
}

impl Public {
    /// Returns the builder of a table for `n` of the suite's items.
    fn builder(&self, n: usize) -> Builder {
        self.rules().builder(n)
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            metric: self.metric,
            clip: self.clip,
            options: &self.options,
            levels: self.levels.as_ref(),
        }
    }

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
    pub(crate) items: Vec<Item<'static>>,
    /// Each field's slices, which `public.slices` has in the same order.
    fields: Vec<FieldSlices>,
    skill: Option<SkillBaseline>,
}

/// The rules by which a suite is scored.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'r> {
    /// The suite's metric.
    pub metric: Metric,
    /// The bounds on an item's loss, if the suite clips it.
    pub clip: Option<Clip>,
    /// The options that the suite names; empty if it names none.
    pub options: &'r [String],
    /// The levels of predicted quantiles, if the suite has them.
    pub levels: Option<&'r QuantileLevels>,
}

impl Rules<'_> {
    /// Returns the builder of a table for `n` items.
    fn builder(self, n: usize) -> Builder {
        Builder::new(self.metric, n)
            .options(self.options)
            .clip(self.clip)
            .quantiles(self.levels.cloned())
    }
}

/// Builds these items' answer table.
fn table<'i>(
    items: impl Iterator<Item = &'i Item<'static>> + Clone,
    rules: Rules<'_>,
) -> Result<AnswerTable, Corrupt> {
    let mut builder = rules.builder(items.clone().count());
    for item in items {
        builder.push(&item.item_id, &item.answer)?;
    }
    builder.finish()
}

fn owned(item: Item<'_>) -> Item<'static> {
    let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
    let weights = |weights: Vec<(Cow<'_, str>, f64)>| {
        let owned = weights.into_iter().map(|(id, weight)| (text(id), weight));
        owned.collect()
    };
    let answer = match item.answer {
        Answer::Label(label) => Answer::Label(text(label)),
        Answer::Set(ids) => Answer::Set(ids.into_iter().map(text).collect()),
        Answer::Gains(gains) => Answer::Gains(weights(gains)),
        Answer::Shares(shares) => Answer::Shares(weights(shares)),
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
        Self::with_options(metric, clip, policy, &[], items)
    }

    /// Builds a suite like [`Self::new`] that names these options.
    pub fn with_options(
        metric: Metric,
        clip: Option<Clip>,
        policy: DisclosurePolicy,
        options: &[String],
        items: Vec<Item<'_>>,
    ) -> Result<Self, SuiteError> {
        let rules = Rules {
            metric,
            clip,
            options,
            levels: None,
        };
        Self::with_rules(rules, policy, items)
    }

    /// Builds a suite like [`Self::new`], with the levels that predictions of quantiles have. Other
    /// metrics ignore them.
    pub fn with_quantiles(
        metric: Metric,
        levels: Option<QuantileLevels>,
        clip: Option<Clip>,
        policy: DisclosurePolicy,
        items: Vec<Item<'_>>,
    ) -> Result<Self, SuiteError> {
        let levels = levels.filter(|_| metric.family() == Family::Quantiles);
        let rules = Rules {
            metric,
            clip,
            options: &[],
            levels: levels.as_ref(),
        };
        Self::with_rules(rules, policy, items)
    }

    /// Builds a suite like [`Self::new`] with all of its rules.
    pub fn with_rules(
        rules: Rules<'_>,
        policy: DisclosurePolicy,
        items: Vec<Item<'_>>,
    ) -> Result<Self, SuiteError> {
        let Rules {
            metric,
            clip,
            options,
            levels,
        } = rules;
        let is_sealed = matches!(policy, DisclosurePolicy::Sealed(_));
        let mut items: Vec<Item<'static>> = items.into_iter().map(owned).collect();
        items
            .iter_mut()
            .for_each(|item| item.is_sealed &= is_sealed);
        let open = table(items.iter().filter(|item| !item.is_sealed), rules)?;
        if open.is_empty() {
            return Err(SuiteError::Empty);
        }
        let any_sealed = items.iter().any(|item| item.is_sealed);
        let sealed = any_sealed.then(|| table(items.iter().filter(|item| item.is_sealed), rules));
        let sealed = sealed.transpose()?;
        let is_shares = |item: &Item<'_>| matches!(item.answer, Answer::Shares(_));
        let has_distributions = items.iter().any(is_shares);
        let (candidates, frequencies) = if has_distributions {
            (Vec::new(), Vec::new())
        } else {
            candidates(&items)
        };
        let by_answer = metric
            .compares_distributions()
            .then(|| by_answer(&candidates, &open, metric, clip, options))
            .transpose()?;
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
            (Answer::Gains(_) | Answer::Shares(_), _) => false,
        };
        let is_complete = items
            .iter()
            .zip(&truth)
            .all(|(item, (_, right, _))| *right != 0 && is_single(item));
        let n_open = open.len();
        let public = Public {
            metric,
            options: options.to_vec(),
            levels: levels.cloned(),
            clip,
            policy,
            ladder,
            n: items.len(),
            n_open,
            candidates,
            frequencies,
            is_complete,
            has_distributions,
            by_answer: by_answer.map(Arc::new),
            slices: Vec::new(),
            skill_distance: None,
        };
        Ok(Self {
            public,
            open,
            sealed,
            truth,
            items,
            fields: Vec::new(),
            skill: None,
        })
    }

    /// Adds the skill against this baseline to the results, as far as the policy discloses it. Slices must
    /// be added before.
    pub fn with_skill(mut self, baseline: SkillBaseline) -> Result<Self, SuiteError> {
        let metric = self.public.metric;
        let scores = score_skill_baseline(&self.open, metric, baseline, SkillGroups::default());
        self.open.set_skill(scores.map_err(SuiteError::Corrupt)?);
        // The skill of any submission is 1 minus the ratio of its distance to the baseline's.
        let progress = Progress::default();
        let empty = Scorer::new(&self.open, metric, &progress).finish();
        let empty = empty.map_err(|failure| SuiteError::Corrupt(format!("{failure:?}")))?;
        let best = if metric.lower_is_better() { 0.0 } else { 1.0 };
        let distance = (empty.figures.value - best).abs();
        let skill = empty.figures.skill.map(|skill| skill.value);
        self.public.skill_distance = skill.map(|skill| distance / (1.0 - skill));
        self.skill = Some(baseline);
        Ok(self)
    }

    /// Adds slices by these fields, which have one code for each item of the suite, in its order.
    /// Under a ladder, the final board shows their levels. Other policies have no such levels, and
    /// the suite stays as it is.
    ///
    /// A slice without a trivial submission is left out, such as one without items in a sample. So is
    /// a field with fewer than two slices.
    pub fn with_slices(mut self, fields: Vec<FieldSlices>) -> Result<Self, SuiteError> {
        let Public { metric, clip, .. } = self.public;
        let bounds = metric.bounds(clip, self.open.n_options());
        let Some((ladder, bounds)) = self.public.ladder.zip(bounds) else {
            return Ok(self);
        };
        for mut field in fields {
            if field.codes.len() != self.items.len() {
                let field = field.field;
                let message = format!("the field {field:?} must have one code for each item");
                return Err(SuiteError::Corrupt(message));
            }
            let mut slices = Vec::new();
            let mut groups = Vec::new();
            let mut new_codes = vec![NO_SLICE; field.codes.len()];
            for (code, group) in field.groups.into_iter().enumerate() {
                let items: Vec<usize> = (0..field.codes.len())
                    .filter(|item| usize::from(field.codes[*item]) == code)
                    .collect();
                if let Some(trivial) = self.trivial_value(&items)? {
                    let new_code = slices.len() as u8;
                    items.iter().for_each(|item| new_codes[*item] = new_code);
                    let grid = ladder.for_slice(bounds, trivial);
                    slices.push(Slice { items, grid });
                    groups.push(group);
                }
            }
            if slices.len() >= 2 {
                field = FieldSlices::new(field.field, groups);
                field.codes = new_codes;
                self.public.slices.append(&mut slices);
                self.fields.push(field);
            }
        }
        let names = self.fields.iter();
        let names = names.map(|field| FieldSlices::new(field.field.clone(), field.groups.clone()));
        let mut builder = self
            .public
            .builder(self.items.len())
            .slices(names.collect());
        for (at, item) in self.items.iter().enumerate() {
            builder.push(&item.item_id, &item.answer)?;
            let codes: Vec<u8> = self.fields.iter().map(|field| field.codes[at]).collect();
            builder.put_into_slices(&codes);
        }
        self.open = builder.finish()?;
        Ok(self)
    }

    /// Returns the value of the best trivial submission to these items alone, if there is one.
    fn trivial_value(&self, items: &[usize]) -> Result<Option<f64>, Corrupt> {
        let metric = self.public.metric;
        if items.is_empty() {
            return Ok(None);
        }
        let mut builder = self.public.builder(items.len());
        // A slice's bounds and scores are by the labels of all items.
        builder.know_labels(&self.open)?;
        for item in items.iter().map(|item| &self.items[*item]) {
            builder.push(&item.item_id, &item.answer)?;
        }
        let best = best_trivial(&trivial_submissions(&builder.finish()?, metric), metric);
        Ok(best.map(|best| best.value))
    }

    /// Returns the grid, if the policy is a ladder.
    pub fn ladder(&self) -> Option<Ladder> {
        self.public.ladder
    }

    /// Returns the most bits that these caps disclose under a ladder: in the scores, and in the
    /// slices of all entries. `None` for another policy.
    pub fn bits(&self, caps: Caps) -> Option<f64> {
        let Public { ladder, slices, .. } = &self.public;
        let per_slice = |slice: &Slice| (f64::from(slice.grid.levels) + 1.0).log2();
        let per_entry: f64 = slices.iter().map(per_slice).sum();
        let entries = f64::from(caps.entries.min(caps.submissions));
        let organization_bits =
            |ladder: Ladder| ladder.bits(caps.submissions) + entries * per_entry;
        ladder.map(|ladder| organization_bits(ladder) * f64::from(caps.organizations))
    }

    /// Returns the item count, open and sealed.
    pub fn n(&self) -> usize {
        self.public.n
    }

    /// Returns the options that the suite names; empty if it names none.
    pub(crate) fn named_options(&self) -> &[String] {
        &self.public.options
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
        let items = chosen.iter().map(|at| self.items[*at].clone()).collect();
        let sampled_field = |field: &FieldSlices| FieldSlices {
            codes: chosen.iter().map(|at| field.codes[*at]).collect(),
            ..field.clone()
        };
        // If the sample has no grid, the caller attacks the suite itself.
        let sample = Self::with_rules(self.public.rules(), self.public.policy, items)
            .ok()?
            .with_slices(self.fields.iter().map(sampled_field).collect())
            .ok()?;
        match self.skill {
            Some(baseline) => sample.with_skill(baseline).ok(),
            None => Some(sample),
        }
    }

    /// Returns the open- and sealed-item shares whose answer is the most frequent candidate,
    /// and which are therefore known without submissions. With slices, it is the most frequent one in
    /// the slices of one field: where the grids of the final board begin says how frequent it is.
    pub fn chance(&self) -> (f64, Option<f64>) {
        let overall = self.public.most_frequent();
        let by_field = self.fields.iter().map(|field| {
            let mut guesses = overall.clone();
            for code in 0..field.groups.len() {
                let items =
                    || (0..guesses.len()).filter(|at| usize::from(field.codes[*at]) == code);
                let count = |candidate: &u8| {
                    let is_right = |at: &usize| self.truth[*at].1 >> candidate & 1 == 1;
                    items().filter(is_right).count()
                };
                let candidates = 0..self.public.frequencies.len() as u8;
                let Some(most) = candidates.max_by_key(count) else {
                    continue;
                };
                for at in items().collect::<Vec<_>>() {
                    guesses[at] = most;
                }
            }
            self.grade(&guesses)
        });
        by_field.fold(self.grade(&overall), |best, other| {
            if other.0 > best.0 { other } else { best }
        })
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

/// Returns the table of one item for each candidate, with the options of the suite.
fn by_answer(
    candidates: &[Candidate],
    open: &AnswerTable,
    metric: Metric,
    clip: Option<Clip>,
    options: &[String],
) -> Result<AnswerTable, Corrupt> {
    let mut builder = Builder::new(metric, candidates.len())
        .options(options)
        .clip(clip);
    builder.know_labels(open)?;
    for (at, candidate) in candidates.iter().enumerate() {
        if let Candidate::Label(label) = candidate {
            builder.push(&at.to_string(), &Answer::Label(label.clone()))?;
        }
    }
    builder.finish()
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
