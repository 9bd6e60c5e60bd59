//! What labels are worth: the figures of scikit-learn's `accuracy_score` and `f1_score`.

use std::hash::BuildHasher as _;

use crate::item_scores::{ItemScores, Kind, PackedU32};
use crate::metric::Metric;
use crate::stats::compensated_sum::Sum;
use hashbrown::{DefaultHashBuilder, HashMap};

use super::Figures;
use super::answer_table::{AnswerTable, Item, Right};
use crate::stats::confidence::{around, stderr_of_influences, wilson};

/// Counts labels one after the other.
pub(super) struct Labels<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    classes: Vec<Class>,
    /// Labels that the suite does not have, by 64 bits of a hash: all that is asked of them is how many there are.
    unknown: HashMap<u64, u32>,
    hash: DefaultHashBuilder,
    n_right: usize,
    /// For the mean over classes, by ordinal: 0, or one more than the predicted label.
    labels: PackedU32,
}

/// A label of the suite.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    /// How many items have it.
    support: u32,
    /// How many were predicted to have it.
    predicted: u32,
    /// How many of these have it.
    hits: u32,
}

impl Class {
    fn both(self) -> f64 {
        f64::from(self.support) + f64::from(self.predicted)
    }

    fn f1(self) -> f64 {
        2.0 * f64::from(self.hits) / self.both()
    }
}

impl<'t> Labels<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScores) {
        let classes = vec![Class::default(); table.n_labels()];
        let labels = PackedU32::new(if metric == Metric::F1Macro {
            table.len()
        } else {
            0
        });
        let labels = Self {
            table,
            metric,
            classes,
            unknown: HashMap::new(),
            hash: DefaultHashBuilder::default(),
            n_right: 0,
            labels,
        };
        let kind = if metric == Metric::ExactMatch {
            Kind::Scores
        } else {
            Kind::Hits
        };
        (labels, ItemScores::new(kind, table.len(), 0.0, true))
    }

    pub(super) fn add(&mut self, item: Item<'t>, label: &str, items: &mut ItemScores) {
        let known = self.table.find_label(label);
        let is_right = match item.right() {
            Right::Label(right) => known == Some(right),
            Right::Text(right) => label.as_bytes() == right,
            Right::List(list) => {
                known.is_some() && list.answers().any(|(id, _)| id == label.as_bytes())
            }
        };
        self.n_right += usize::from(is_right);
        let n_known = self.classes.len() as u32;
        let code = match known {
            Some(known) => {
                let class = &mut self.classes[known as usize];
                class.predicted += 1;
                class.hits += u32::from(is_right);
                known + 1
            }
            None => {
                let next = n_known + 1 + self.unknown.len() as u32;
                *self
                    .unknown
                    .entry(self.hash.hash_one(label.as_bytes()))
                    .or_insert(next)
            }
        };
        if self.metric == Metric::F1Macro {
            self.labels.set(item.ordinal, code);
        }
        if is_right && items.kind() == Kind::Hits {
            items.set_right(item.ordinal);
        } else if is_right {
            items.set(item.ordinal, 1.0);
        }
    }

    pub(super) fn finish(mut self, items: &mut ItemScores, n_missing: usize) -> Figures {
        let n = self.table.len();
        let accuracy = self.n_right as f64 / n.max(1) as f64;
        let mut figures = vec![("accuracy", accuracy), ("exact_match", accuracy)];
        // With several right labels an item is of no one class.
        if !self.table.has_lists() {
            self.table
                .items()
                .for_each(|item| self.classes[item.label() as usize].support += 1);
            figures.push(("f1_macro", self.f1_macro()));
            figures.push(("f1_micro", self.f1_micro(n_missing)));
        }
        let wanted = self.metric.to_string();
        let value = figures
            .iter()
            .find(|(name, _)| **name == wanted)
            .map_or(0.0, |(_, figure)| *figure);
        let estimate = if items.kind() == Kind::Hits {
            let mut squares = Sum::default();
            for item in self.table.items() {
                let influence = match self.metric {
                    Metric::F1Macro => self.influence_on_macro(item, items),
                    _ => self.influence_on_micro(item, items, value, n_missing),
                };
                squares.add(influence * influence);
                items.set(item.ordinal, value + influence);
            }
            let stderr = stderr_of_influences(squares.total() / n as f64 / n as f64, n);
            stderr.map(|stderr| around(value, stderr, [0.0, 1.0], "delta"))
        } else {
            wilson(value, n)
        };
        let others = figures
            .into_iter()
            .filter(|(name, _)| *name != wanted)
            .map(|(name, figure)| (name.to_owned(), figure));
        Figures {
            value,
            estimate,
            metrics: others.collect(),
        }
    }

    fn n_classes(&self) -> f64 {
        (self.classes.len() + self.unknown.len()).max(1) as f64
    }

    /// The mean over all labels that an item has or was predicted to have. One that no item has is worth 0.
    fn f1_macro(&self) -> f64 {
        self.classes
            .iter()
            .map(|class| class.f1())
            .collect::<Sum>()
            .total()
            / self.n_classes()
    }

    /// An item without a prediction is a miss, and no false alarm.
    fn f1_micro(&self, n_missing: usize) -> f64 {
        2.0 * self.n_right as f64 / (2 * self.table.len() - n_missing).max(1) as f64
    }

    /// How much an item moves the mean of the classes' F1, n times: these sum to 0.
    fn influence_on_macro(&self, item: Item<'t>, items: &ItemScores) -> f64 {
        let of = |label: u32| self.classes[label as usize];
        let right = of(item.label());
        let hit = if items.is_right(item.ordinal) {
            2.0
        } else {
            0.0
        };
        let predicted = self
            .labels
            .get(item.ordinal)
            .checked_sub(1)
            .and_then(|label| self.classes.get(label as usize));
        let moved = (hit - right.f1()) / right.both()
            - predicted.map_or(0.0, |class| class.f1() / class.both());
        self.table.len() as f64 * moved / self.n_classes()
    }

    /// The same for a ratio of two sums.
    fn influence_on_micro(
        &self,
        item: Item<'t>,
        items: &ItemScores,
        value: f64,
        n_missing: usize,
    ) -> f64 {
        let n = self.table.len();
        let (hit, counted) = (
            if items.is_right(item.ordinal) {
                2.0
            } else {
                0.0
            },
            if items.is_predicted(item.ordinal) {
                2.0
            } else {
                1.0
            },
        );
        n as f64 * (hit - value * counted) / (2 * n - n_missing) as f64
    }
}
