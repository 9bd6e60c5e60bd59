//! Figures of the catalog's ids that rankings show. They do not depend on any answer.
//!
//! They agree with RecBole's `ItemCoverage`, `GiniIndex` and `AveragePopularity`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::catalog::Catalog;
use crate::metric::{K, Metric};
use crate::prediction::Value;

/// One in the unit of [`MeanSum`].
const ONE: f64 = (1_u128 << 80) as f64;

/// A sum over means, each from 0 to 2^12, as an integer in units of 2^−80. So the order of up to 2^32 terms
/// does not matter, not even in the last bit.
#[derive(Debug, Default)]
struct MeanSum(u128);

impl MeanSum {
    fn add(&mut self, mean: f64) {
        self.0 += (mean * ONE) as u128;
    }

    fn mean(&self, n: u64) -> f64 {
        self.0 as f64 / ONE / n as f64
    }
}

/// Counts how often each id of the catalog is shown: by how many rankings among their first k ids.
///
/// An id that the catalog does not have counts nowhere: it is no part of what could be shown, and has no
/// popularity. A repeated id counts once, and the repetition occupies its position.
#[derive(Debug)]
pub(super) struct ShownIds<'t> {
    catalog: &'t Catalog,
    k: K,
    counts: Vec<u32>,
    /// The sum over the rankings that show any id: the mean popularity of their ids.
    popularity: MeanSum,
    /// The same for the novelty.
    novelty: MeanSum,
    /// Rankings that show any id.
    n: u64,
    /// The codes of one ranking.
    codes: Vec<u32>,
}

impl<'t> ShownIds<'t> {
    pub(super) fn new(catalog: &'t Catalog, metric: Metric) -> Self {
        Self {
            catalog,
            k: metric.cut(),
            counts: vec![0; catalog.len()],
            popularity: MeanSum::default(),
            novelty: MeanSum::default(),
            n: 0,
            codes: Vec::new(),
        }
    }

    /// Adds an item's ranking.
    pub(super) fn add(&mut self, value: Value<'_, '_>) {
        match value {
            Value::Ranking(ids) => self.add_ids(ids),
            Value::Label(id) => self.add_ids(std::slice::from_ref(id)),
            Value::Number(_) | Value::Probabilities(_) | Value::Failed => {}
        }
    }

    fn add_ids(&mut self, ids: &[Cow<'_, str>]) {
        let Self { catalog, codes, .. } = self;
        let shown = &ids[..ids.len().min(self.k.get())];
        codes.clear();
        codes.extend(shown.iter().filter_map(|id| catalog.code(id)));
        // Sums in this order do not depend on that of the ranking.
        codes.sort_unstable();
        codes.dedup();
        if codes.is_empty() {
            return;
        }
        let [mut popularity, mut novelty] = [0.0; 2];
        for code in codes.iter() {
            self.counts[*code as usize] += 1;
            let weights = catalog.weights(*code);
            popularity += weights.popularity;
            novelty += weights.novelty;
        }
        let n = codes.len() as f64;
        self.popularity.add(popularity / n);
        self.novelty.add(novelty / n);
        self.n += 1;
    }

    /// Returns the figures by name. Without any shown id, only the coverage is defined.
    pub(super) fn figures(self) -> BTreeMap<String, f64> {
        let Self {
            catalog,
            k,
            mut counts,
            popularity,
            novelty,
            n,
            codes: _,
        } = self;
        let n_shown = counts.iter().filter(|count| **count > 0).count();
        let mut figures = vec![("coverage", n_shown as f64 / catalog.len() as f64)];
        if n > 0 {
            counts.sort_unstable();
            figures.extend([
                ("gini", gini(&counts)),
                (
                    "popularity",
                    (popularity.mean(n) * catalog.scale()).min(f64::MAX),
                ),
                ("novelty", novelty.mean(n)),
            ]);
        }
        let k = k.get();
        let named = figures.into_iter();
        named
            .map(|(name, figure)| (format!("{name}@{k}"), figure))
            .collect()
    }
}

/// Returns the Gini index of ascending counts, which are not all 0: Σ (2j − C − 1)x/(C·Σx).
fn gini(ascending: &[u32]) -> f64 {
    let n = ascending.len() as i128;
    let weighted = (1..).zip(ascending);
    let weighted: i128 = weighted
        .map(|(rank, count): (i128, _)| (2 * rank - n - 1) * i128::from(*count))
        .sum();
    let total: i128 = ascending.iter().map(|count| i128::from(*count)).sum();
    weighted as f64 / (n * total) as f64
}
