//! The noise ceiling: the value that a second set of human answers reaches, and the share of it that a
//! job reaches.

use serde::Serialize;

use super::accumulator::Accumulator;
use super::answer_table::{AnswerTable, Item, NextRecord, Prefetch};
use super::by_cluster::estimate_by_cluster;
use super::part::ScoredItems;
use super::trivial::{Trivial, best_trivial, trivial_submissions};
use super::trivial_losses::TrivialLosses;
use crate::clusters::{CLUSTERS_MIN, Clusters};
use crate::disclosure::Ladder;
use crate::item_scores::{Bits, ItemScoresBuilder, Kind};
use crate::metric::Metric;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Z, stderr_of_influences};
use crate::suite::retest::RetestAnswers;

/// The fewest items whose retest answers give a ceiling.
const RETESTED_MIN: usize = 50;

/// The value that a second set of human answers reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceiling {
    /// The source of the ceiling: `retest`.
    pub kind: &'static str,
    /// The metric over the items with retest answers. Their answers count as predictions.
    pub value: f64,
    /// The standard error. `None` if it is not disclosed.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The number of items with retest answers.
    pub n: i64,
}

impl Ceiling {
    /// Returns the ceiling with rounded figures.
    #[must_use]
    pub(crate) fn rounded(self, round: impl Fn(f64) -> f64) -> Self {
        Self {
            value: round(self.value),
            stderr: self.stderr.map(&round),
            ci95: self.ci95.map(|ends| ends.map(&round)),
            ..self
        }
    }

    /// Returns the value alone, rounded down to a grid.
    #[must_use]
    pub(crate) fn on_ladder(self, ladder: Ladder) -> Self {
        Self {
            value: ladder.value(ladder.climb(0, self.value)),
            stderr: None,
            ci95: None,
            ..self
        }
    }
}

/// The share of the ceiling that a job's value reaches. It is not cut: it can be negative or above 1.
///
/// With the value a and the ceiling κ, it is a/κ if higher is better (the center of Brain-Score's
/// `ceil_score`), and (u − a)/(u − κ) if lower is better, where u is the value of the best trivial
/// submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShareOfCeiling {
    /// The share.
    pub value: f64,
    /// The standard error, with the error of the ceiling. `None` if it cannot be estimated.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The value whose share is 0.
    #[serde(skip)]
    origin: f64,
}

/// Returns the share of the way from the origin to the ceiling at which a value is.
fn share_between(value: f64, ceiling: f64, origin: f64) -> f64 {
    (value - origin) / (ceiling - origin)
}

impl ShareOfCeiling {
    /// Returns the share of a rounded value and a rounded ceiling, itself rounded. `None` if the ceiling
    /// is rounded to the value whose share is 0.
    pub(crate) fn rounded(
        self,
        value: f64,
        ceiling: f64,
        round: impl Fn(f64) -> f64,
    ) -> Option<Self> {
        let origin = round(self.origin);
        (ceiling != origin).then(|| Self {
            value: round(share_between(value, ceiling, origin)),
            stderr: self.stderr.map(&round),
            ci95: self.ci95.map(|ends| ends.map(&round)),
            origin,
        })
    }
}

/// The scores of a table's retest: the ceiling, and the contributions to it.
#[derive(Debug)]
pub struct RetestScores {
    ceiling: Ceiling,
    is_retested: Bits,
    /// The contribution of each retested item, in the suite's order. Their mean is the ceiling.
    contributions: Vec<f64>,
    trivial: Option<Trivial>,
    /// `None` if the ceiling is not better than the best trivial submission.
    origin: Option<Origin>,
}

/// The figure whose share of the ceiling is 0.
#[derive(Debug)]
enum Origin {
    /// The value 0.
    Zero,
    /// The best trivial submission.
    Trivial(TrivialLosses),
}

impl Origin {
    fn value(&self) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Trivial(losses) => losses.value(),
        }
    }

    /// Returns an item's contribution to the value.
    fn contribution(&self, item: Item<'_>) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Trivial(losses) => losses.contribution(item),
        }
    }
}

impl RetestScores {
    /// Returns the ceiling.
    pub fn ceiling(&self) -> Ceiling {
        self.ceiling
    }

    /// Returns what the publisher should know about the ceiling: no job has a share of one that is not
    /// better than the best trivial submission.
    pub fn warning(&self) -> Option<String> {
        if self.origin.is_some() {
            return None;
        }
        let value = self.ceiling.value;
        let reason = match self.trivial {
            Some(Trivial {
                name,
                value: trivial,
                ..
            }) if value > 0.0 => {
                format!("not better than the best trivial submission ({name}: {trivial:.4})")
            }
            _ => "not above 0".into(),
        };
        Some(format!(
            "the ceiling is {value:.4}, {reason}, so results have no share_of_ceiling; check the retest answers"
        ))
    }

    /// Returns the share of the ceiling that a job reaches. The mean of its items' contributions is
    /// `value`. The standard error is that of the delta method, and contains the error of the ceiling.
    pub(super) fn share(
        &self,
        table: &AnswerTable,
        value: f64,
        contributions: impl Iterator<Item = f64>,
    ) -> Option<ShareOfCeiling> {
        let origin = self.origin.as_ref()?;
        let zero = origin.value();
        let ceiling = self.ceiling.value;
        let share = share_between(value, ceiling, zero);
        let n = table.len();
        let weight = n as f64 / self.contributions.len() as f64;
        let mut retested = self.contributions.iter();
        let influences = contributions
            .zip(table.items())
            .map(|(contribution, item)| {
                let retest_influence = if self.is_retested.get(item.ordinal) {
                    retested
                        .next()
                        .map_or(0.0, |of_item| weight * (of_item - ceiling))
                } else {
                    0.0
                };
                let origin_influence = origin.contribution(item) - zero;
                contribution - value - share * retest_influence - (1.0 - share) * origin_influence
            });
        let (stderr, half_width) = match table.clusters() {
            Some(clusters) => {
                let sums = clustered::sums(clusters, influences);
                let sizes = clusters.sizes();
                (
                    clustered::stderr(sizes, sums.into_iter()),
                    clustered::half_width(sizes.degrees()),
                )
            }
            None => {
                let squares: Sum = influences.map(|influence| influence * influence).collect();
                let squares = squares.total() / n as f64 / n as f64;
                (stderr_of_influences(squares, n), Z)
            }
        };
        let stderr = stderr.map(|stderr| stderr / (ceiling - zero).abs());
        Some(ShareOfCeiling {
            value: share,
            stderr,
            ci95: stderr.map(|stderr| [share - half_width * stderr, share + half_width * stderr]),
            origin: zero,
        })
    }

    /// Returns the heap memory in bytes: 8 for each retested item, a bit for each item of the table, and 8
    /// for each label if the metric is a loss of probabilities.
    pub fn bytes(&self) -> usize {
        let origin_bytes = match &self.origin {
            Some(Origin::Trivial(losses)) => losses.bytes(),
            Some(Origin::Zero) | None => 0,
        };
        self.is_retested.bytes() + size_of::<f64>() * self.contributions.capacity() + origin_bytes
    }
}

/// Returns `true` if the metric is the mean over the items' scores. Other metrics are functions of all
/// items together.
const fn is_mean(metric: Metric) -> bool {
    !matches!(
        metric,
        Metric::F1Macro
            | Metric::F1Micro
            | Metric::BalancedAccuracy
            | Metric::Mcc
            | Metric::Kappa
            | Metric::Rmse
            | Metric::Spearman
            | Metric::Auc
            | Metric::AucOvr
            | Metric::Ece
    )
}

/// Scores the retest answers of a table's items.
pub struct CeilingBuilder<'t> {
    table: &'t AnswerTable,
    metric: Metric,
    accumulator: Accumulator<'t>,
    /// The retested items' scores, as if the retest answers were predictions.
    items: ItemScoresBuilder,
    /// Set if a score is the mean over several answers, and so not 0 or 1 where that of one answer is.
    has_means: bool,
    next_record: NextRecord,
}

impl<'t> CeilingBuilder<'t> {
    /// Creates a builder without retest answers.
    pub fn new(table: &'t AnswerTable, metric: Metric) -> Self {
        let (accumulator, items) = Accumulator::new(table, metric);
        let items = if is_mean(metric) {
            // Stores any score in 64 bits, and a later one replaces it.
            ItemScoresBuilder::new(Kind::Parts, table.len(), 0.0, false)
        } else {
            items
        };
        Self {
            table,
            metric,
            accumulator,
            items,
            has_means: false,
            next_record: NextRecord::default(),
        }
    }

    /// Adds an item's retest answers: the JSON array of `retest.ndjson`. A mean has the mean score over the
    /// answers; other metrics use the first answer. Returns `false` if the table does not have the item.
    ///
    /// # Errors
    /// Returns the reason if the answers are invalid, or if the item has some already.
    pub fn add(&mut self, item_id: &str, answers: &str) -> Result<bool, String> {
        let answers = RetestAnswers::parse(answers, self.metric)?;
        let mut prefetch = Prefetch::default();
        let found = self
            .table
            .find(item_id, &mut self.next_record, &mut prefetch);
        let Some(item) = found else { return Ok(false) };
        if self.items.mark_predicted(item.ordinal) {
            return Err(format!("item_id {item_id:?} is repeated"));
        }
        if !is_mean(self.metric) {
            let first = answers.values().take(1);
            first.for_each(|value| self.accumulator.add(item, value, &mut self.items));
            return Ok(true);
        }
        let scores = answers.values().map(|value| {
            self.accumulator.add(item, value, &mut self.items);
            self.items.value(item.ordinal)
        });
        let sum: Sum = scores.collect();
        self.items
            .set(item.ordinal, sum.total() / answers.len() as f64);
        self.has_means |= answers.len() > 1;
        Ok(true)
    }

    /// Returns the scores, for [`AnswerTable::set_retest`].
    ///
    /// # Errors
    /// Returns the reason if there are fewer than 50 items or 10 clusters, if the metric is not defined for
    /// them, or if the value is an average over clusters: what share of it a job reaches is not defined.
    pub fn finish(self) -> Result<RetestScores, String> {
        let Self {
            table,
            metric,
            accumulator,
            items,
            has_means,
            ..
        } = self;
        if table.averages_clusters() {
            return Err(
                "a value that averages clusters has no ceiling; remove the file, or average in suite.toml".into(),
            );
        }
        let mut is_retested = Bits::new(table.len());
        let is_predicted = |place: &u32| items.is_predicted(*place as usize);
        let places: Vec<u32> = (0..table.len() as u32).filter(is_predicted).collect();
        for place in &places {
            is_retested.set(*place as usize);
        }
        let n = places.len();
        if n < RETESTED_MIN {
            return Err(format!(
                "{n} items have retest answers, but a ceiling needs {RETESTED_MIN}"
            ));
        }
        let clusters = table.clusters().map(|all| {
            Clusters::from_labels(places.iter().map(|place| all.of(*place as usize) as u32))
        });
        if let Some(n) = clusters.as_ref().map(|clusters| clusters.sizes().len())
            && n < CLUSTERS_MIN
        {
            return Err(format!(
                "the items with retest answers are in {n} clusters, but a ceiling needs {CLUSTERS_MIN}"
            ));
        }
        let scored = ScoredItems::new(table, metric, &accumulator, &items);
        let part = scored.part(&places);
        let figure = if has_means {
            part.mean_figure(metric.range(table.clip(), table.n_labels()))
        } else {
            accumulator.part(part)
        };
        let independent = figure.estimate.ok_or_else(|| {
            format!(
                "{metric} is not defined: all answers of these items, or all first retest answers, are the same"
            )
        })?;
        let estimate = match &clusters {
            None => Some(independent),
            Some(clusters) => {
                let value = (figure.value, &independent);
                let contributions = figure.contributions.iter().copied();
                estimate_by_cluster(
                    clusters,
                    (table, metric),
                    value,
                    contributions,
                    part.stored(),
                )
            }
        };
        let ceiling = Ceiling {
            kind: "retest",
            value: figure.value,
            stderr: estimate.map(|estimate| estimate.stderr),
            ci95: estimate.map(|estimate| estimate.ci95),
            n: n as i64,
        };
        let trivial = best_trivial(&trivial_submissions(table, metric), metric);
        Ok(RetestScores {
            ceiling,
            is_retested,
            contributions: figure.contributions,
            trivial,
            origin: trivial.and_then(|trivial| origin(table, metric, ceiling.value, trivial)),
        })
    }
}

/// Returns the figure whose share of the ceiling is 0. `None` if no share is defined: the ceiling must be
/// better than the best trivial submission, and above 0 if higher is better.
fn origin(table: &AnswerTable, metric: Metric, ceiling: f64, trivial: Trivial) -> Option<Origin> {
    if metric.lower_is_better() {
        let losses = || TrivialLosses::new(table, metric, trivial).map(Origin::Trivial);
        (ceiling < trivial.value).then(losses).flatten()
    } else {
        (ceiling > trivial.value && ceiling > 0.0).then_some(Origin::Zero)
    }
}
