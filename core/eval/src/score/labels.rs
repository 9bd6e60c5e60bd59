//! Label figures. They agree with scikit-learn's `accuracy_score`, `f1_score`,
//! `balanced_accuracy_score`, `matthews_corrcoef` and `cohen_kappa_score`.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::item_scores::{ItemScoresBuilder, Kind};
use crate::metric::{Metric, Scale};
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{
    Estimate, estimate_within, fisher_delta, stderr_of_influences, wilson,
};

use super::agreement::{Agreement, LabelShares};
use super::answer_table::{AnswerTable, Item, Right};
use super::packed_u32::PackedU32;
use super::part::{Part, PartFigure};
use super::result::Figures;
use super::weighted_kappa::WeightedKappa;

/// Accumulates the label counts.
pub(super) struct Labels<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    classes: Vec<Class>,
    /// The codes for labels that the suite does not have, by a 64-bit hash. Only the distinct count
    /// matters.
    unknown: HashMap<u64, u32>,
    hash: DefaultHashBuilder,
    n_right: usize,
    /// The predicted label's code by ordinal: the label plus 1, or 0 without a prediction. Empty
    /// unless [`needs_predicted`].
    predicted: PackedU32,
}

/// One suite label's counts.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    /// Items with this label.
    support: u32,
    /// Items that were predicted to have it.
    predicted: u32,
    /// Items with this label that were predicted to have it.
    hits: u32,
}

impl Class {
    /// Returns F1's denominator.
    fn total(self) -> f64 {
        f64::from(self.support) + f64::from(self.predicted)
    }

    fn f1(self) -> f64 {
        2.0 * f64::from(self.hits) / self.total()
    }

    /// Returns the share of the items with this label that were predicted to have it.
    fn recall(self) -> f64 {
        f64::from(self.hits) / f64::from(self.support)
    }
}

impl<'t> Labels<'t> {
    pub(super) fn new(table: &'t AnswerTable, metric: Metric) -> (Self, ItemScoresBuilder) {
        let classes = vec![Class::default(); table.n_labels()];
        let predicted = PackedU32::new(if metric.needs_predicted_labels() {
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
            predicted,
        };
        let kind = if metric.is_mean() {
            Kind::Scores
        } else {
            Kind::Hits
        };
        (labels, ItemScoresBuilder::new(kind, table.len(), 0.0, true))
    }

    pub(super) fn add(&mut self, item: Item<'t>, label: &str, items: &mut ItemScoresBuilder) {
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
        if self.metric.needs_predicted_labels() {
            self.predicted.set(item.ordinal, code);
        }
        if items.kind() != Kind::Hits {
            items.set(item.ordinal, f64::from(is_right));
        } else if is_right {
            items.mark_right(item.ordinal);
        }
    }

    pub(super) fn finish(mut self, items: &mut ItemScoresBuilder, n_missing: usize) -> Figures {
        let n = self.table.len();
        let accuracy = self.n_right as f64 / n.max(1) as f64;
        let mut figures = vec![("accuracy", accuracy), ("exact_match", accuracy)];
        // An item with several right labels belongs to no single class, so F1 is not defined.
        let counts = (!self.table.has_lists()).then(|| {
            self.table
                .items()
                .for_each(|item| self.classes[item.label() as usize].support += 1);
            let classes = std::mem::take(&mut self.classes);
            let others = self.count_others(0..n);
            let n_unknown = self.unknown.len();
            let counts = Counts::new(classes, others, n_unknown, [n, self.n_right, n_missing]);
            counts.with_weights(self.weighted(self.table.items().map(Item::place)))
        });
        if let Some(counts) = &counts {
            figures.push(("f1_macro", counts.f1_macro()));
            figures.push(("f1_micro", counts.f1_micro()));
        }
        let metric = self.metric.to_string();
        let value = match &counts {
            Some(counts) if items.kind() == Kind::Hits => counts.value(self.metric),
            _ => accuracy,
        };
        let estimate = match counts {
            Some(counts) if items.kind() == Kind::Hits => {
                let mut squares = Sum::default();
                for item in self.table.items() {
                    let influence =
                        self.influence(&counts, (item.ordinal, item.label()), items, value);
                    squares.add(influence * influence);
                    items.set(item.ordinal, value + influence);
                }
                estimate(self.metric, value, squares, n)
            }
            _ => wilson(value, n),
        };
        let others = figures
            .into_iter()
            .filter(|(name, _)| *name != metric)
            .map(|(name, figure)| (name.to_owned(), figure));
        Figures::new(value, estimate, others.collect())
    }
    /// Returns the figure of some items.
    pub(super) fn part(&self, part: Part<'_>) -> PartFigure {
        if part.items.kind() != Kind::Hits {
            return part.share();
        }
        let mut classes = vec![Class::default(); self.classes.len()];
        let mut n_right = 0;
        for place in part.places() {
            let right = &mut classes[part.labels[place] as usize];
            let is_right = part.items.is_right(place);
            right.support += 1;
            right.hits += u32::from(is_right);
            n_right += usize::from(is_right);
            if self.metric.needs_predicted_labels()
                && let Some(label) = self.predicted.get(place).checked_sub(1)
                && let Some(class) = classes.get_mut(label as usize)
            {
                class.predicted += 1;
            }
        }
        let others = self.count_others(part.places());
        let n = part.len();
        let n_unknown = others.len() - usize::from(others.contains_key(&0));
        let counts = Counts::new(classes, others, n_unknown, [n, n_right, part.n_missing()]);
        let places = part.places().map(|place| (place, part.labels[place]));
        let counts = counts.with_weights(self.weighted(places));
        let value = counts.value(self.metric);
        let mut squares = Sum::default();
        let contribution = |place| {
            let influence = self.influence(&counts, (place, part.labels[place]), part.items, value);
            squares.add(influence * influence);
            value + influence
        };
        let contributions = part.places().map(contribution).collect();
        PartFigure {
            value,
            estimate: estimate(self.metric, value, squares, n),
            contributions,
        }
    }

    /// Returns the weighted agreement over these items, each with its right label. `None` if the metric is
    /// another one.
    fn weighted(&self, items: impl Iterator<Item = (usize, u32)> + Clone) -> Option<WeightedKappa> {
        if self.metric != Metric::KappaQuadratic {
            return None;
        }
        let places = items.map(|(place, right)| (right, self.predicted_option(place)));
        Some(WeightedKappa::new(self.table.n_options(), places))
    }

    /// Returns the predicted option of an item. The named options are the first labels of the table.
    fn predicted_option(&self, place: usize) -> Option<u32> {
        let label = self.predicted.get(place).checked_sub(1)?;
        ((label as usize) < self.table.n_options()).then_some(label)
    }

    /// Returns how many of these items were predicted to have each label that is none of the
    /// suite's, by its code. No prediction is such a label. Empty if the metric does not need them.
    fn count_others(&self, places: impl Iterator<Item = usize>) -> HashMap<u32, u32> {
        if !self.metric.needs_predicted_labels() {
            return HashMap::new();
        }
        let n_known = self.table.n_labels() as u32;
        let codes = places.map(|place| self.predicted.get(place));
        let mut others = HashMap::new();
        codes
            .filter(|code| *code == 0 || *code > n_known)
            .for_each(|code| *others.entry(code).or_default() += 1);
        others
    }

    /// Returns an item's influence on the value, times n. The influences sum to 0.
    fn influence(
        &self,
        counts: &Counts,
        (place, right): (usize, u32),
        items: &ItemScoresBuilder,
        value: f64,
    ) -> f64 {
        let hit = f64::from(items.is_right(place));
        match self.metric {
            Metric::F1Macro => counts.influence_on_macro(hit, right, self.predicted.get(place)),
            Metric::BalancedAccuracy => counts.influence_on_recall(hit, right),
            Metric::KappaQuadratic => counts.weighted.as_ref().map_or(0.0, |weighted| {
                weighted.influence(right, self.predicted_option(place))
            }),
            Metric::Mcc | Metric::Kappa => {
                let shares = counts.shares(right, self.predicted.get(place));
                if self.metric == Metric::Mcc {
                    counts.agreement.influence_on_mcc(hit, &shares)
                } else {
                    counts.agreement.influence_on_kappa(hit, &shares)
                }
            }
            _ => {
                let counted = if items.is_predicted(place) { 2.0 } else { 1.0 };
                counts.influence_on_micro(hit, counted, value)
            }
        }
    }
}

/// The label counts of some items.
struct Counts {
    classes: Vec<Class>,
    /// Items that were predicted to have a label that is none of the suite's, by its code.
    others: HashMap<u32, u32>,
    agreement: Agreement,
    weighted: Option<WeightedKappa>,
    /// Labels that an item has or was predicted to have.
    n_classes: f64,
    /// Labels that an item has.
    n_supported: f64,
    n: usize,
    n_right: usize,
    n_missing: usize,
}

impl Counts {
    /// Returns the counts. `n_unknown` predicted labels are none of the suite's.
    fn new(
        classes: Vec<Class>,
        others: HashMap<u32, u32>,
        n_unknown: usize,
        [n, n_right, n_missing]: [usize; 3],
    ) -> Self {
        let known_counts = classes.iter().map(|class| [class.support, class.predicted]);
        let other_counts = others.values().map(|count| [0, *count]);
        let agreement = Agreement::new(n, n_right, known_counts.chain(other_counts));
        let known = classes.iter().filter(|class| class.total() > 0.0);
        let supported = classes.iter().filter(|class| class.support > 0);
        Self {
            n_supported: supported.count().max(1) as f64,
            n_classes: (known.count() + n_unknown).max(1) as f64,
            classes,
            others,
            agreement,
            weighted: None,
            n,
            n_right,
            n_missing,
        }
    }

    fn with_weights(self, weighted: Option<WeightedKappa>) -> Self {
        Self { weighted, ..self }
    }

    /// Returns the value of a metric that is no mean over items.
    fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::F1Macro => self.f1_macro(),
            Metric::BalancedAccuracy => self.balanced_accuracy(),
            Metric::Mcc => self.agreement.mcc(),
            Metric::Kappa => self.agreement.kappa(),
            Metric::KappaQuadratic => self.weighted.as_ref().map_or(0.0, WeightedKappa::kappa),
            _ => self.f1_micro(),
        }
    }

    /// Returns the mean F1 over all labels that an item has or was predicted to have. A label that
    /// no item has counts as 0.
    fn f1_macro(&self) -> f64 {
        self.classes
            .iter()
            .filter(|class| class.total() > 0.0)
            .map(|class| class.f1())
            .collect::<Sum>()
            .total()
            / self.n_classes
    }

    /// Returns F1 over all classes. An item without a prediction is a false negative, and no false
    /// positive.
    fn f1_micro(&self) -> f64 {
        2.0 * self.n_right as f64 / (2 * self.n - self.n_missing).max(1) as f64
    }

    /// Returns the shares of an item's right label and of its predicted label, by its code.
    fn shares(&self, right: u32, predicted: u32) -> [LabelShares; 2] {
        let known = |class: Class| self.agreement.shares([class.support, class.predicted]);
        let label = predicted.checked_sub(1).map(|label| label as usize);
        let predicted = match label.and_then(|label| self.classes.get(label)) {
            Some(class) => known(*class),
            None => {
                let count = self.others.get(&predicted).copied().unwrap_or_default();
                self.agreement.shares([0, count])
            }
        };
        [known(self.classes[right as usize]), predicted]
    }

    /// Returns the mean recall of the labels that an item has. An item without a prediction is a
    /// wrong one.
    fn balanced_accuracy(&self) -> f64 {
        let supported = self.classes.iter().filter(|class| class.support > 0);
        let sum = supported.map(|class| class.recall()).collect::<Sum>();
        sum.total() / self.n_supported
    }

    /// Returns an item's influence on the mean recall of the classes, times n.
    fn influence_on_recall(&self, hit: f64, right: u32) -> f64 {
        let class = self.classes[right as usize];
        let share = f64::from(class.support) / self.n as f64;
        (hit - class.recall()) / (self.n_supported * share)
    }

    /// Returns an item's influence on the mean F1, times n. `predicted` is the code of the predicted
    /// label, and `hit` is 1 if it is right, otherwise 0.
    fn influence_on_macro(&self, hit: f64, right: u32, predicted: u32) -> f64 {
        let right = self.classes[right as usize];
        let predicted = predicted
            .checked_sub(1)
            .and_then(|label| self.classes.get(label as usize));
        let influence = (2.0 * hit - right.f1()) / right.total()
            - predicted.map_or(0.0, |class| class.f1() / class.total());
        self.n as f64 * influence / self.n_classes
    }

    /// Returns an item's influence on F1 over all classes, a ratio between two sums, times n.
    /// `counted` is 2 if the item is predicted, otherwise 1.
    fn influence_on_micro(&self, hit: f64, counted: f64, value: f64) -> f64 {
        let n = self.n;
        n as f64 * (2.0 * hit - value * counted) / (2 * n - self.n_missing) as f64
    }
}

/// Returns the estimate for a figure over `n` items by the delta method. `squares` sums their squared
/// influences.
fn estimate(metric: Metric, value: f64, squares: Sum, n: usize) -> Option<Estimate> {
    let stderr = stderr_of_influences(squares.total() / n as f64 / n as f64, n);
    stderr.map(|stderr| match metric.scale() {
        Scale::Fisher => fisher_delta(value, stderr),
        Scale::Linear | Scale::Logit => estimate_within([0.0, 1.0], value, stderr, "delta"),
    })
}
