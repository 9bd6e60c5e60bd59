//! What one ranking is worth.
//!
//! The figures are those of `trec_eval`: `recip_rank` (of a ranking cut at k), `ndcg_cut_k`, `recall_k`, `success_k`.

use std::borrow::Cow;
use std::collections::HashMap;

use assay_core::Metric;

use super::table::Item;

/// Up to how many places, or answers, each place is compared with each answer; beyond, answers are looked up.
const FEW: usize = 32;

/// Scores rankings one after the other; its memory is used again.
pub(super) struct Ranker<'t> {
    metric: Metric,
    /// log2(rank + 1) of the ranks 1 to k, for `ndcg` only.
    discounts: Vec<f64>,
    unfound: Unfound<'t>,
}

impl<'t> Ranker<'t> {
    pub(super) fn new(metric: Metric) -> Self {
        let discounts = match metric {
            Metric::Ndcg(k) => (1..=k.get()).map(|rank| (rank as f64 + 1.0).log2()).collect(),
            Metric::Accuracy | Metric::HitRate(_) | Metric::Recall(_) | Metric::Mrr(_) => Vec::new(),
        };
        Self { metric, discounts, unfound: Unfound::default() }
    }

    /// The ranking's worth for this item, 0 to 1. It is cut at k. An id that is repeated counts at its first place
    /// only, and the repeat still takes its place.
    pub(super) fn score(&mut self, ranking: &[Cow<'_, str>], item: Item<'t>) -> f64 {
        let k = match self.metric {
            Metric::Accuracy => 1,
            Metric::HitRate(k) | Metric::Recall(k) | Metric::Ndcg(k) | Metric::Mrr(k) => k.get(),
        };
        let cut = &ranking[..ranking.len().min(k)];
        self.unfound.fill(item, cut.len());
        let unfound = &mut self.unfound;
        // Place (from 0) and gain of each relevant id that is found.
        let mut hits = cut.iter().enumerate().filter_map(|(place, id)| Some((place, unfound.take(id.as_bytes())?)));
        match self.metric {
            Metric::Accuracy | Metric::HitRate(_) => f64::from(hits.next().is_some()),
            Metric::Recall(_) => hits.count() as f64 / item.answers().len() as f64,
            Metric::Mrr(_) => hits.next().map_or(0.0, |(place, _)| 1.0 / (place as f64 + 1.0)),
            Metric::Ndcg(_) => {
                let gained: f64 = hits.map(|(place, gain)| gain / self.discounts[place]).sum();
                let ideal: f64 = item.answers().zip(&self.discounts).map(|((_, gain), discount)| gain / discount).sum();
                gained / ideal
            }
        }
    }
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
    fn fill(&mut self, item: Item<'t>, n_places: usize) {
        let answers = item.answers();
        self.is_many = n_places > FEW && answers.len() > FEW;
        if self.is_many {
            self.many.clear();
            self.many.extend(answers);
        } else {
            self.few.clear();
            self.few.extend(answers);
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
