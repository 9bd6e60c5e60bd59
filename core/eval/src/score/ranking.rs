//! What rankings are worth.
//!
//! The figures are those of `trec_eval`: `success_1`, `success_k`, `recall_k`, `P_k`, `ndcg_cut_k`, `recip_rank` (of a ranking
//! cut at k), `map_cut_k`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use crate::item_scores::{ItemScores, Kind};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;

use super::answer_table::{AnswerTable, Item, List, Right};
use super::{Figures, NAMED_AT_K};
use crate::stats::confidence::{around, stderr_of_mean, wilson};

/// Up to how many places, or answers, each place is compared with each answer; beyond, answers are looked up.
const FEW: usize = 32;

/// How many figures an item has: accuracy, and what is cut at k.
const N: usize = 1 + NAMED_AT_K.len();

/// Scores rankings one after the other; its memory is used again.
pub(super) struct Rankings<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    /// Which of the figures is the metric.
    wanted: usize,
    k: usize,
    /// log2(rank + 1) of the ranks 1 to k.
    discounts: Vec<f64>,
    /// The figures of an item with one answer, by the rank at which it was found; 0: it was not.
    by_rank: Vec<[f64; N]>,
    /// How many items with one answer were found at which rank.
    ranks: Vec<u64>,
    /// Of the items with several answers.
    sums: [Sum; N],
    unfound: Unfound<'t>,
}

impl<'t> Rankings<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        let wanted = match metric {
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
            wanted,
            k,
            by_rank,
            ranks: vec![0; k + 1],
            discounts,
            sums: [Sum::default(); N],
            unfound,
        };
        (
            rankings,
            ItemScores::new(Kind::Scores, table.len(), 0.0, true),
        )
    }

    /// Scores a ranking for this item. It is cut at k. An id that is repeated counts at its first place only, and the
    /// repeat still takes its place.
    #[inline]
    pub(super) fn add(&mut self, item: Item<'t>, ranking: &[Cow<'_, str>], items: &mut ItemScores) {
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
                figures[self.wanted]
            }
        };
        items.set(item.ordinal, score);
    }

    fn single(&mut self, right: &[u8], cut: &[Cow<'_, str>]) -> f64 {
        let rank = rank_of(right, cut);
        self.ranks[rank] += 1;
        self.by_rank[rank][self.wanted]
    }

    fn several(&mut self, list: List<'t>, cut: &[Cow<'_, str>]) -> [f64; N] {
        self.unfound.fill(list, cut.len());
        let (mut hits, mut first, mut gained, mut precisions) = (0.0, None, 0.0, 0.0);
        for (place, id) in cut.iter().enumerate() {
            if let Some(gain) = self.unfound.take(id.as_bytes()) {
                let rank = place as f64 + 1.0;
                hits += 1.0;
                first = first.or(Some(rank));
                gained += gain / self.discounts[place];
                precisions += hits / rank;
            }
        }
        let Some(first) = first else { return [0.0; N] };
        let relevant = list.len() as f64;
        let ideal: f64 = list
            .answers()
            .zip(&self.discounts)
            .map(|((_, gain), discount)| gain / discount)
            .sum();
        [
            f64::from(first == 1.0),
            1.0,
            hits / relevant,
            hits / self.k as f64,
            gained / ideal,
            1.0 / first,
            precisions / relevant,
        ]
    }

    pub(super) fn finish(self, items: &ItemScores) -> Figures {
        let Self {
            table,
            metric,
            wanted,
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
        // A suite without items is never published, but no figure is ever NaN.
        let means = sums.map(|sum| sum.total() / n.max(1) as f64);
        let value = means[wanted];
        let estimate = match metric {
            Metric::Accuracy | Metric::HitRate(_) => wilson(value, n),
            _ => stderr_of_mean(value, n, (0..n).map(|item| items.value(item)))
                .map(|stderr| around(value, stderr, [0.0, 1.0], "normal")),
        };
        let names = std::iter::once("accuracy".to_owned())
            .chain(NAMED_AT_K.map(|name| format!("{name}@{k}")));
        let others = names
            .zip(means)
            .enumerate()
            .filter(|(at, _)| *at != wanted)
            .map(|(_, figure)| figure);
        Figures {
            value,
            estimate,
            metrics: others.collect::<BTreeMap<_, _>>(),
        }
    }
}

/// At which rank a ranking shows an id; 0: it does not. Looks at every place, so that the time does not depend on the rank: a job
/// shows how long it took.
#[inline]
fn rank_of(right: &[u8], cut: &[Cow<'_, str>]) -> usize {
    let mut rank = 0;
    match right.last_chunk::<8>() {
        // Ids mostly differ at their ends: a comparison of numbers, not a call.
        Some(end) => {
            for (place, id) in cut.iter().enumerate().rev() {
                if id.as_bytes().last_chunk::<8>() == Some(end) && id.as_bytes() == right {
                    rank = place + 1;
                }
            }
        }
        None => {
            for (place, id) in cut.iter().enumerate().rev() {
                if id.as_bytes() == right {
                    rank = place + 1;
                }
            }
        }
    }
    rank
}

/// The relevant ids of one item that a ranking has not shown yet. Taking an id out is what makes a repeat worth nothing.
#[derive(Default)]
struct Unfound<'t> {
    few: Vec<(&'t [u8], f64)>,
    /// Used where comparing each place with each answer would take time in the order of their product.
    many: HashMap<&'t [u8], f64>,
    is_many: bool,
}

impl<'t> Unfound<'t> {
    fn fill(&mut self, list: List<'t>, n_places: usize) {
        self.is_many = n_places > FEW && list.len() > FEW;
        if self.is_many {
            self.many.clear();
            self.many.extend(list.answers());
        } else {
            self.few.clear();
            self.few.extend(list.answers());
        }
    }

    fn take(&mut self, id: &[u8]) -> Option<f64> {
        if self.is_many {
            return self.many.remove(id);
        }
        let at = self.few.iter().position(|(answer, _)| *answer == id)?;
        Some(self.few.swap_remove(at).1)
    }
}
