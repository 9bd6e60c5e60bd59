//! Ranking figures.
//!
//! They agree with `trec_eval`: `success_1`, `success_k`, `recall_k`, `P_k`, `ndcg_cut_k`,
//! `recip_rank` (of a ranking cut at k), `map_cut_k`. Those of sets agree with scikit-learn's
//! `jaccard_score` and `f1_score`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{estimate_within, stderr_of_mean, wilson};

use super::answer_table::{AnswerTable, Item, List, Right};
use super::part::{Part, PartFigure};
use super::result::Figures;

/// The figures' names that are cut at k, in the order of an item's figures.
const NAMES_AT_K: [&str; 6] = ["hit_rate", "recall", "precision", "ndcg", "mrr", "map"];

/// An item's figure count: accuracy, and those cut at k.
const N: usize = 1 + NAMES_AT_K.len();

/// With at most so many ids, or answers, each id is compared with each answer. With more, answers
/// are looked up in a map.
const FEW: usize = 32;

/// Accumulates ranking figures. Its buffers are reused for every item.
pub(super) struct Rankings<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    /// The metric's index among the figures; 0 if it compares sets.
    metric_index: usize,
    k: usize,
    /// log2(rank + 1) for the ranks 1 to k.
    discounts: Vec<f64>,
    /// An item's figures with one answer, by the answer's rank; index 0: it was not
    /// found.
    by_rank: Vec<[f64; N]>,
    /// Items with one answer, by the answer's rank; index 0: it was not found.
    ranks: Vec<u64>,
    /// The summed figures for items with several answers.
    sums: [Sum; N],
    unfound: Unfound<'t>,
}

impl<'t> Rankings<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let metric_index = match metric {
            Metric::HitRate(_) => 1,
            Metric::Recall(_) => 2,
            Metric::Precision(_) => 3,
            Metric::Ndcg(_) => 4,
            Metric::Mrr(_) => 5,
            Metric::Map(_) => 6,
            _ => 0,
        };
        let k = metric.cut().get();
        let discounts: Vec<f64> = (1..=k).map(|rank| (rank as f64 + 1.0).log2()).collect();
        let found = |rank: usize| {
            let reciprocal = 1.0 / rank as f64;
            [
                f64::from(rank == 1),
                1.0,
                1.0,
                1.0 / k as f64,
                1.0 / discounts[rank - 1],
                reciprocal,
                reciprocal,
            ]
        };
        let by_rank = std::iter::once([0.0; N])
            .chain((1..=k).map(found))
            .collect();
        let unfound = Unfound::default();
        let rankings = Self {
            table,
            metric,
            metric_index,
            k,
            by_rank,
            ranks: vec![0; k + 1],
            discounts,
            sums: [Sum::default(); N],
            unfound,
        };
        (
            rankings,
            ItemScoresBuilder::new(Kind::Scores, table.len(), 0.0, true),
        )
    }

    /// Adds an item's ranking, cut at k. A repeated id counts at its first rank only; the
    /// repeat still occupies a rank.
    #[inline]
    pub(super) fn add(
        &mut self,
        item: Item<'t>,
        ranking: &[Cow<'_, str>],
        items: &mut ItemScoresBuilder,
    ) {
        let cut = &ranking[..ranking.len().min(self.k)];
        let score = match item.right() {
            Right::Text(id) => self.single(id, cut),
            Right::Label(label) => self.single(self.table.label(label), cut),
            Right::List(list) => {
                let figures = self.several(list, cut);
                self.sums
                    .iter_mut()
                    .zip(figures)
                    .for_each(|(sum, figure)| sum.add(figure));
                figures[self.metric_index]
            }
        };
        let score = if self.metric.compares_sets() {
            self.set_score(item, ranking)
        } else {
            score
        };
        items.set(item.ordinal, score);
    }

    /// Returns the overlap of the predicted with the right ids.
    fn set_score(&mut self, item: Item<'t>, ids: &[Cow<'_, str>]) -> f64 {
        let single = |right: &[u8]| (usize::from(rank_of(right, ids) > 0), 1);
        let (n_common, n_right) = match item.right() {
            Right::Text(id) => single(id),
            Right::Label(label) => single(self.table.label(label)),
            Right::List(list) => {
                self.unfound.fill(list, ids.len());
                let found = ids
                    .iter()
                    .filter(|id| self.unfound.take(id.as_bytes()).is_some());
                (found.count(), list.len())
            }
        };
        overlap(self.metric, n_common, [n_right, n_distinct(ids)])
    }

    fn single(&mut self, right: &[u8], cut: &[Cow<'_, str>]) -> f64 {
        let rank = rank_of(right, cut);
        self.ranks[rank] += 1;
        self.by_rank[rank][self.metric_index]
    }

    fn several(&mut self, list: List<'t>, cut: &[Cow<'_, str>]) -> [f64; N] {
        self.unfound.fill(list, cut.len());
        let mut hits = 0.0;
        let mut first = None;
        let mut dcg = 0.0;
        let mut precisions = 0.0;
        for (at, id) in cut.iter().enumerate() {
            if let Some(gain) = self.unfound.take(id.as_bytes()) {
                let rank = at as f64 + 1.0;
                hits += 1.0;
                first = first.or(Some(rank));
                dcg += gain / self.discounts[at];
                precisions += hits / rank;
            }
        }
        let Some(first) = first else { return [0.0; N] };
        let relevant = list.len() as f64;
        let ideal_dcg: f64 = list
            .answers()
            .zip(&self.discounts)
            .map(|((_, gain), discount)| gain / discount)
            .sum();
        [
            f64::from(first == 1.0),
            1.0,
            hits / relevant,
            hits / self.k as f64,
            dcg / ideal_dcg,
            1.0 / first,
            precisions / relevant,
        ]
    }

    /// Returns the figure of some items.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        if self.metric.is_share() {
            part.share()
        } else {
            part.mean_figure([0.0, 1.0])
        }
    }

    pub(super) fn finish(self, items: &ItemScoresBuilder) -> Figures {
        let Self {
            table,
            metric,
            metric_index,
            k,
            by_rank,
            ranks,
            mut sums,
            ..
        } = self;
        let n = table.len();
        for (count, figures) in ranks.into_iter().zip(by_rank) {
            sums.iter_mut()
                .zip(figures)
                .for_each(|(sum, figure)| sum.add(figure * count as f64));
        }
        // A suite without items is never published. The maximum keeps the figures from being NaN
        // anyway.
        let means = sums.map(|sum| sum.total() / n.max(1) as f64);
        let value = if metric.compares_sets() {
            let scores = (0..n).map(|item| items.value(item)).collect::<Sum>();
            scores.total() / n.max(1) as f64
        } else {
            means[metric_index]
        };
        let estimate = if metric.is_share() {
            wilson(value, n)
        } else {
            stderr_of_mean(value, n, (0..n).map(|item| items.value(item)))
                .map(|stderr| estimate_within([0.0, 1.0], value, stderr, "normal"))
        };
        let names = std::iter::once("accuracy".to_owned())
            .chain(NAMES_AT_K.map(|name| format!("{name}@{k}")));
        let others = names
            .zip(means)
            .enumerate()
            .filter(|(at, _)| metric.compares_sets() || *at != metric_index)
            .map(|(_, figure)| figure);
        Figures::new(value, estimate, others.collect::<BTreeMap<_, _>>())
    }
}

/// Returns the overlap of two sets with these sizes and this number of common ids: their F1 score with
/// `f1_set`, otherwise their Jaccard index.
pub(super) fn overlap(metric: Metric, n_common: usize, [one, other]: [usize; 2]) -> f64 {
    match metric {
        Metric::F1Set => 2.0 * n_common as f64 / (one + other) as f64,
        _ => n_common as f64 / (one + other - n_common) as f64,
    }
}

/// Returns the number of distinct ids.
fn n_distinct(ids: &[Cow<'_, str>]) -> usize {
    if ids.len() > FEW {
        return ids.iter().collect::<HashSet<_>>().len();
    }
    let is_first = |(at, id): &(usize, &Cow<'_, str>)| !ids[..*at].contains(id);
    ids.iter().enumerate().filter(is_first).count()
}

/// Returns an id's rank in a ranking, or 0. Looks at every rank, so that the time does not
/// depend on the result: callers see how long a job took.
#[inline]
fn rank_of(right: &[u8], cut: &[Cow<'_, str>]) -> usize {
    let mut rank = 0;
    match right.last_chunk::<8>() {
        // Most ids differ in their last eight bytes, which compare as one number.
        Some(end) => {
            for (at, id) in cut.iter().enumerate().rev() {
                if id.as_bytes().last_chunk::<8>() == Some(end) && id.as_bytes() == right {
                    rank = at + 1;
                }
            }
        }
        None => {
            for (at, id) in cut.iter().enumerate().rev() {
                if id.as_bytes() == right {
                    rank = at + 1;
                }
            }
        }
    }
    rank
}

/// One item's relevant ids that were not found yet. A found id is removed, so that a repeat
/// has no gain.
#[derive(Default)]
struct Unfound<'t> {
    few: Vec<(&'t [u8], f64)>,
    /// Used if comparing each id with each answer would take too long.
    many: HashMap<&'t [u8], f64>,
    is_many: bool,
}

impl<'t> Unfound<'t> {
    fn fill(&mut self, list: List<'t>, n_ids: usize) {
        self.is_many = n_ids > FEW && list.len() > FEW;
        if self.is_many {
            self.many.clear();
            self.many.extend(list.answers());
        } else {
            self.few.clear();
            self.few.extend(list.answers());
        }
    }

    /// Removes an id, and returns its gain if it was relevant and not found before.
    fn take(&mut self, id: &[u8]) -> Option<f64> {
        if self.is_many {
            return self.many.remove(id);
        }
        let at = self.few.iter().position(|(answer, _)| *answer == id)?;
        Some(self.few.swap_remove(at).1)
    }
}
