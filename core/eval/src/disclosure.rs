//! Disclosure policies: how much of a score is disclosed. A caller who sees exact figures for
//! enough submissions can compute the answers from them, so a suite's publisher chooses a policy.
//! `assay-adversary` measures each policy's protection against known attacks; `docs/threats.md`
//! states the results.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::compare::Difference;
use crate::error::Corrupt;
use crate::metric::{Clip, Metric};
use crate::score::{
    AnswerTable, Ceiling, ClusterFigures, Figures, best_trivial, trivial_submissions,
};

/// A suite's disclosure policy, written `exact`, `rounded(2)`, `ladder(0.05)`, `sealed(0.5)`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum DisclosurePolicy {
    /// Every figure and comparison, for open practice.
    #[default]
    Exact,
    /// Every figure with this many decimals. For readability only: rounding does not protect
    /// the answers.
    Rounded(Decimals),
    /// The best value so far, on a grid with this step, and no other figure of the answers.
    Ladder(Step),
    /// Every open-item figure. This item share is sealed: scored now, and disclosed
    /// after the suite has closed.
    Sealed(Fraction),
}

/// The number of decimals that a figure is disclosed with: 1 to 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimals(u8);

/// A ladder's step as a share of the metric's range: above 0, at most 0.5.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step(f64);

/// The suite's item share that is sealed: above 0, below 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction(f64);

/// Returns the number with this many decimals, as it is read from a string: 0.3, not
/// 0.30000000000000004; never −0.
fn to_decimals(figure: f64, decimals: usize) -> f64 {
    format!("{figure:.decimals$}").parse().unwrap_or(figure) + 0.0
}

impl Decimals {
    const MAX: u8 = 6;

    fn parse(text: &str) -> Option<Self> {
        let decimals: u8 = text.parse().ok()?;
        ((1..=Self::MAX).contains(&decimals) && decimals.to_string() == text)
            .then_some(Self(decimals))
    }

    /// Returns the decimal count.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Rounds a figure to this many decimals.
    pub fn round(self, figure: f64) -> f64 {
        to_decimals(figure, usize::from(self.0))
    }
}

/// Reads an allowed number in its one canonical spelling.
fn canonical(text: &str, is_allowed: impl Fn(f64) -> bool) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (is_allowed(number) && number.to_string() == text).then_some(number)
}

impl Step {
    /// The smallest step. A finer grid could have more levels than the suite has items.
    pub const MIN: f64 = 0.0001;

    fn parse(text: &str) -> Option<Self> {
        canonical(text, |step| (Self::MIN..=0.5).contains(&step)).map(Self)
    }

    /// Returns the step as a share of the metric's range.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Fraction {
    fn parse(text: &str) -> Option<Self> {
        canonical(text, |fraction| (Self::MIN..1.0).contains(&fraction)).map(Self)
    }

    const MIN: f64 = 0.001;

    /// Returns the sealed item count among `n` items: at least one, and never all if there are two or more.
    pub fn of(self, n: usize) -> usize {
        ((self.0 * n as f64).round() as usize).clamp(1, n.saturating_sub(1).max(1))
    }
}

/// A ladder's grid: values from `start`, the best trivial submission's value, towards the
/// best possible value.
///
/// After A. Blum and M. Hardt, "The Ladder: A Reliable Leaderboard for Machine Learning
/// Competitions", ICML 2015, with a fixed step; here a value is always rounded down to the grid, so
/// that the responses are a non-decreasing level sequence, and the count of such sequences bounds
/// what they disclose ([`Ladder::bits`]).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ladder {
    /// Level 0's value, the least that any submission is shown.
    pub start: f64,
    /// The difference between neighbouring levels, in metric units; negative where lower is
    /// better.
    pub step: f64,
    /// The level count above level 0: at least 1, but for a slice.
    pub levels: u32,
}

impl Ladder {
    /// Returns the grid for a suite whose best trivial submission has the value `trivial`. It
    /// starts there, rounded up by at most a 10,000th of the metric's range, so that the first
    /// level is a whole step above a value that takes no knowledge. `None` if the metric has no
    /// bounds, or no level lies between the start and the best value.
    pub fn new(
        step: Step,
        metric: Metric,
        clip: Option<Clip>,
        n_labels: usize,
        trivial: f64,
    ) -> Option<Self> {
        let ladder = Self::from_start(step.0, metric.bounds(clip, n_labels)?, trivial);
        (ladder.levels >= 1).then_some(ladder)
    }

    /// Returns the grid that begins at a trivial value, and whose step is this share of the range from
    /// the worst to the best value.
    fn from_start(step: f64, [worst, best]: [f64; 2], trivial: f64) -> Self {
        const PLACES: f64 = 10_000.0;

        let range = best - worst;
        // A value with four decimals stays as it is, in spite of rounding errors.
        let share = (((trivial - worst) / range * PLACES - 1e-6).ceil() / PLACES).clamp(0.0, 1.0);
        let levels = ((1.0 - share) / step + 1e-9).floor();
        Self {
            start: to_decimals(worst + share * range, 9),
            step: step * range,
            levels: levels as u32,
        }
    }

    /// Returns a slice's grid: it has the step of the suite's grid, and begins at the slice's own
    /// trivial value. It has no levels if none lies above that. `bounds` are the metric's worst and best
    /// value.
    #[must_use]
    pub fn for_slice(self, bounds: [f64; 2], trivial: f64) -> Self {
        let [worst, best] = bounds;
        Self {
            step: self.step,
            ..Self::from_start(self.step / (best - worst), bounds, trivial)
        }
    }

    /// Returns the grid for a suite with these open answers; see [`Ladder::new`].
    pub fn for_suite(
        step: Step,
        metric: Metric,
        clip: Option<Clip>,
        open: &AnswerTable,
    ) -> Option<Self> {
        let trivial = best_trivial(&trivial_submissions(open, metric), metric)?;
        Self::new(step, metric, clip, open.n_options(), trivial.value)
    }

    /// Returns the level that a value reaches, and at least `best`, the highest level so far.
    pub fn climb(self, best: u32, value: f64) -> u32 {
        let reached = ((value - self.start) / self.step + 1e-9)
            .floor()
            .clamp(0.0, f64::from(self.levels));
        best.max(reached as u32)
    }

    /// Returns a level's value. A level above the last one counts as the last.
    pub fn value(self, level: u32) -> f64 {
        to_decimals(
            self.start + f64::from(level.min(self.levels)) * self.step,
            9,
        )
    }

    /// Returns the bits that one figure carries that is rounded down to the grid, such as the ceiling:
    /// log2(M+1) for M+1 levels. It is a constant of the suite, so it counts once.
    pub fn constant_bits(self) -> f64 {
        (f64::from(self.levels) + 1.0).log2()
    }

    /// Returns the most bits that the scores from `submissions` submissions can carry:
    /// log2 C(k+M, M), where C(k+M, M) counts the non-decreasing sequences with k out of M+1
    /// levels.
    pub fn bits(self, submissions: u32) -> f64 {
        let k = f64::from(submissions);
        let m = f64::from(self.levels);
        (1..=submissions.min(self.levels))
            .map(|at| ((k.max(m) + f64::from(at)) / f64::from(at)).log2())
            .sum()
    }
}

/// Returns the largest expected share among `n` independent answers that can be known from `bits`
/// bits, if the share `chance` is known without them: the p ≥ chance with n·D(p‖chance) = bits, by
/// Fano's inequality in its form for binary divergence (data-processing inequality).
pub fn known_at_most(bits: f64, n: usize, chance: f64) -> f64 {
    let divergence = |p: f64| {
        let term = |p: f64, q: f64| if p > 0.0 { p * (p / q).log2() } else { 0.0 };
        term(p, chance) + term(1.0 - p, 1.0 - chance)
    };
    let each = bits / n.max(1) as f64;
    let mut low = chance;
    let mut high = 1.0;
    if chance >= 1.0 || divergence(high) <= each {
        return 1.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if divergence(middle) <= each {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

impl DisclosurePolicy {
    /// Reads a published suite's policy, which was checked when it was published.
    pub fn published(text: &str) -> Result<Self, Corrupt> {
        text.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown disclosure policy"))
    }

    /// Returns `true` if two jobs may be compared, and so their items' values are stored.
    pub const fn allows_comparisons(self) -> bool {
        !matches!(self, Self::Ladder(_))
    }

    /// Returns `true` if figures are held back, so that the scoring duration must not disclose
    /// them either.
    pub const fn hides_figures(self) -> bool {
        matches!(self, Self::Ladder(_) | Self::Sealed(_))
    }

    /// Discloses the difference between two disclosed values, and its uncertainty `found` from the
    /// items. `None` if the policy does not allow comparisons.
    pub fn disclose_difference(
        self,
        difference: f64,
        found: Difference,
    ) -> Option<(f64, Difference)> {
        match self {
            Self::Exact | Self::Sealed(_) => Some((difference, found)),
            Self::Rounded(decimals) => {
                let difference = decimals.round(difference);
                Some((
                    difference,
                    found.rounded(difference, |figure| decimals.round(figure)),
                ))
            }
            Self::Ladder(_) => None,
        }
    }

    /// Discloses the ceiling of a suite's open items, as each result has it. Fails if a ladder has no
    /// grid.
    pub fn disclose_ceiling(
        self,
        ceiling: Ceiling,
        ladder: Option<Ladder>,
    ) -> Result<Ceiling, Corrupt> {
        match (self, ladder) {
            (Self::Exact | Self::Sealed(_), _) => Ok(ceiling),
            (Self::Rounded(decimals), _) => Ok(ceiling.rounded(|figure| decimals.round(figure))),
            (Self::Ladder(_), Some(ladder)) => {
                Ok(ceiling.value_only(|value| ladder.value(ladder.climb(0, value))))
            }
            (Self::Ladder(_), None) => Err(without_grid()),
        }
    }

    /// Discloses a submission's own figures, as a board or a baseline shows them: under a ladder its own
    /// value instead of the best so far, and each slice's value on the grid of the slice. `ladder` is the
    /// suite's grid, and `slice_grids` has those of each field's slices. Fails if a ladder has no grid.
    pub fn disclose_own(
        self,
        figures: Figures,
        ladder: Option<Ladder>,
        slice_grids: &[Vec<Ladder>],
    ) -> Result<Figures, Corrupt> {
        let mut level = 0;
        let grid = ladder.map(|ladder| (ladder, &mut level));
        let slices = figures.slices.clone();
        let mut disclosed = self.disclose(figures, grid)?;
        if let Self::Ladder(_) = self {
            let on_grids = slices.into_iter().zip(slice_grids).map(|(field, grids)| {
                field.values_only(|place, value| {
                    let grid = grids[place];
                    grid.value(grid.climb(0, value))
                })
            });
            disclosed.slices = on_grids.collect();
        }
        Ok(disclosed)
    }

    /// Discloses a score's figures; under [`DisclosurePolicy::Sealed`], its open items'
    /// figures. `ladder` is the suite's grid and the highest level that the allowance's holder
    /// has reached so far, which is raised. Fails if a ladder has no grid.
    pub fn disclose(
        self,
        mut figures: Figures,
        ladder: Option<(Ladder, &mut u32)>,
    ) -> Result<Figures, Corrupt> {
        let public_metrics = std::mem::take(&mut figures.public_metrics);
        if !matches!(self, Self::Ladder(_)) {
            figures.metrics.extend(public_metrics.clone());
        }
        let grid = ladder.as_ref().map(|(ladder, _)| *ladder);
        let ceiling = figures
            .ceiling
            .map(|ceiling| self.disclose_ceiling(ceiling, grid))
            .transpose()?;
        match (self, ladder) {
            (Self::Exact | Self::Sealed(_), _) => Ok(figures),
            (Self::Rounded(decimals), _) => {
                let round = |figure: f64| decimals.round(figure);
                let Figures {
                    value,
                    estimate,
                    metrics,
                    public_metrics: _,
                    clusters,
                    slices,
                    ceiling: _,
                    share_of_ceiling,
                    skill,
                } = figures;
                let value = round(value);
                let share_of_ceiling = share_of_ceiling
                    .zip(ceiling)
                    .and_then(|(share, ceiling)| share.rounded(value, ceiling.value, round));
                let metrics: BTreeMap<_, _> = metrics
                    .into_iter()
                    .map(|(name, figure)| (name, round(figure)))
                    .collect();
                Ok(Figures {
                    value,
                    estimate: estimate.map(|estimate| estimate.map(round)),
                    metrics,
                    public_metrics: BTreeMap::new(),
                    clusters: clusters.map(|clusters| ClusterFigures {
                        design_effect: clusters.design_effect.map(round),
                        ..clusters
                    }),
                    slices: slices
                        .into_iter()
                        .map(|field| field.rounded(round))
                        .collect(),
                    ceiling,
                    share_of_ceiling,
                    skill: skill.map(|skill| skill.rounded(round)),
                })
            }
            (Self::Ladder(_), Some((ladder, level))) => {
                *level = ladder.climb(*level, figures.value);
                Ok(Figures {
                    value: ladder.value(*level),
                    estimate: None,
                    metrics: public_metrics,
                    public_metrics: BTreeMap::new(),
                    clusters: figures.clusters.map(|clusters| ClusterFigures {
                        design_effect: None,
                        ..clusters
                    }),
                    slices: Vec::new(),
                    ceiling,
                    share_of_ceiling: None,
                    skill: None,
                })
            }
            (Self::Ladder(_), None) => Err(without_grid()),
        }
    }
}

fn without_grid() -> Corrupt {
    Corrupt::new("a suite with a ladder was published without its grid")
}

impl FromStr for DisclosurePolicy {
    type Err = &'static str;

    /// Reads a policy in its one canonical spelling: `ladder(0.05)`, never `ladder(.05)` or
    /// `ladder(0.050)`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let within = |name: &str| {
            text.strip_prefix(name)?
                .strip_prefix('(')?
                .strip_suffix(')')
        };
        let policy = if text == "exact" {
            Some(Self::Exact)
        } else if let Some(decimals) = within("rounded") {
            Decimals::parse(decimals).map(Self::Rounded)
        } else if let Some(fraction) = within("sealed") {
            Fraction::parse(fraction).map(Self::Sealed)
        } else {
            within("ladder").and_then(Step::parse).map(Self::Ladder)
        };
        policy.ok_or(
            "expected exact; rounded(d) with d from 1 to 6; ladder(step) with a step from 0.0001 to 0.5, a share of the metric's range; \
             or sealed(fraction) with a fraction from 0.001 to below 1; such as rounded(2), ladder(0.05) or sealed(0.5)",
        )
    }
}

impl fmt::Display for DisclosurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Rounded(Decimals(decimals)) => write!(f, "rounded({decimals})"),
            Self::Ladder(Step(step)) => write!(f, "ladder({step})"),
            Self::Sealed(Fraction(fraction)) => write!(f, "sealed({fraction})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> DisclosurePolicy {
        text.parse().unwrap()
    }

    fn ladder(step: f64, metric: &str, clip: Option<Clip>, trivial: f64) -> Option<Ladder> {
        Ladder::new(Step(step), metric.parse().unwrap(), clip, 2, trivial)
    }

    fn figures(value: f64) -> Figures {
        Figures {
            value,
            estimate: None,
            metrics: [("other".to_owned(), value / 3.0)].into(),
            public_metrics: BTreeMap::new(),
            clusters: None,
            slices: Vec::new(),
            ceiling: None,
            share_of_ceiling: None,
            skill: None,
        }
    }

    #[test]
    fn policy_round_trips_through_its_name() {
        let good = [
            "exact",
            "rounded(1)",
            "rounded(6)",
            "ladder(0.5)",
            "ladder(0.05)",
            "ladder(0.0001)",
            "sealed(0.001)",
            "sealed(0.999)",
        ];
        for text in good {
            assert_eq!(policy(text).to_string(), text);
        }
        let bad = [
            "",
            "Exact",
            "exact()",
            "rounded",
            "rounded()",
            "rounded(0)",
            "rounded(7)",
            "rounded(02)",
            "rounded(+2)",
            "rounded(2",
        ];
        let bad = bad.into_iter().chain([
            "rounded 2",
            " exact",
            "ladder()",
            "ladder(0)",
            "ladder(-0.1)",
            "ladder(1)",
            "ladder(0.00001)",
        ]);
        let bad = bad.chain([
            "ladder(.05)",
            "ladder(0.050)",
            "ladder(5e-2)",
            "ladder(nan)",
            "ladder(inf)",
            "ladder(0.05))",
        ]);
        for text in bad.chain([
            "sealed",
            "sealed()",
            "sealed(0)",
            "sealed(1)",
            "sealed(0.50)",
            "sealed(-0.5)",
            "sealed(nan)",
        ]) {
            assert!(
                text.parse::<DisclosurePolicy>()
                    .unwrap_err()
                    .contains("ladder(0.05)"),
                "{text:?}"
            );
        }
    }

    #[test]
    fn rounding_leaves_no_noise() {
        assert_eq!(
            [1, 2, 6].map(|decimals| Decimals(decimals).round(0.1 + 0.2)),
            [0.3; 3]
        );
        assert_eq!(Decimals(2).round(2.0 / 3.0), 0.67);
        assert!(Decimals(1).round(-0.001).is_sign_positive());
        assert_eq!(Decimals(1).round(-1e50), -1e50);
    }

    #[test]
    fn grid_starts_at_trivial_value() {
        let grid = |ladder: Ladder| {
            (0..=ladder.levels)
                .map(|level| ladder.value(level))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            grid(ladder(0.1, "accuracy", None, 0.73).unwrap()),
            [0.73, 0.83, 0.93]
        );
        // The start has four places, and is not below the trivial value; its last bits do not
        // matter.
        assert_eq!(
            grid(ladder(0.2, "accuracy", None, 1.0 / 3.0).unwrap()),
            [0.3334, 0.5334, 0.7334, 0.9334]
        );
        assert_eq!(
            grid(ladder(0.1, "accuracy", None, 0.1 + 0.2 + 0.4).unwrap()),
            [0.7, 0.8, 0.9, 1.0]
        );
        assert_eq!(
            grid(ladder(0.25, "spearman", None, 0.0).unwrap()),
            [0.0, 0.5, 1.0]
        );
        // For errors the grid descends; the step is a share of the clipped range.
        let clip = Clip::new(2.0, 22.0);
        assert_eq!(
            grid(ladder(0.25, "rmse", clip, 13.0).unwrap()),
            [13.0, 8.0, 3.0]
        );
        assert_eq!(
            grid(ladder(0.3, "accuracy", None, 0.5).unwrap()),
            [0.5, 0.8]
        );
        // There is no grid without bounds, or if a trivial submission leaves no room for a step.
        assert_eq!(ladder(0.1, "rmse", None, 13.0), None);
        assert_eq!(ladder(0.1, "ece@15", None, 0.0), None);
        assert_eq!(ladder(0.5, "accuracy", None, 0.7), None);
        assert_eq!(
            ladder(0.5, "accuracy", None, 0.5).map(|ladder| ladder.levels),
            Some(1)
        );
    }

    #[test]
    fn level_rises_only_at_next_step() {
        let ladder = ladder(0.1, "accuracy", None, 0.5).unwrap();
        let mut level = 0;
        let disclosed = [0.3, 0.5, 0.59, 0.6, 0.55, 0.79, 0.8, 0.1, 1.0, 0.0].map(|value| {
            let disclosed = policy("ladder(0.1)")
                .disclose(figures(value), Some((ladder, &mut level)))
                .unwrap();
            assert_eq!((disclosed.estimate, disclosed.metrics.len()), (None, 0));
            disclosed.value
        });
        assert_eq!(
            disclosed,
            [0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.8, 1.0, 1.0]
        );
        assert!(policy("ladder(0.1)").disclose(figures(0.5), None).is_err());
    }

    #[test]
    fn ladder_of_errors_descends() {
        let clip = Clip::new(0.0, 20.0);
        let ladder = ladder(0.1, "rmse", clip, 9.0).unwrap();
        let mut level = 0;
        let values = [15.0, 8.0, 8.1, 5.9, 19.0, 0.0].map(|value| {
            level = ladder.climb(level, value);
            ladder.value(level)
        });
        assert_eq!(values, [9.0, 9.0, 9.0, 7.0, 7.0, 1.0]);
    }

    #[test]
    fn bits_count_non_decreasing_sequences() {
        // Counts the non-decreasing sequences with k out of m + 1 levels by recursion.
        fn count(k: u32, m: u32) -> u64 {
            if k == 0 {
                1
            } else {
                (0..=m).map(|first| count(k - 1, m - first)).sum()
            }
        }
        for (k, m) in [(1, 1), (3, 1), (2, 5), (5, 2), (6, 6), (4, 9)] {
            let bits = Ladder {
                start: 0.0,
                step: 0.1,
                levels: m,
            }
            .bits(k);
            assert!(
                (bits - (count(k, m) as f64).log2()).abs() < 1e-9,
                "{k} {m} {bits}"
            );
        }
        assert_eq!(
            Ladder {
                start: 0.0,
                step: 0.1,
                levels: 5
            }
            .bits(0),
            0.0
        );
    }

    #[test]
    fn known_share_is_bounded_by_bits() {
        assert!((known_at_most(0.0, 500, 0.5) - 0.5).abs() < 1e-9);
        assert_eq!(known_at_most(500.0, 500, 0.5), 1.0);
        // H(0.11) is 0.4999 bits: half a bit per answer is enough to know 89 %.
        assert!((known_at_most(250.0, 500, 0.5) - 0.89).abs() < 1e-3);
        let bound = known_at_most(14.5, 500, 0.5);
        assert!((0.599..0.601).contains(&bound), "{bound}");
    }

    #[test]
    fn sealed_items_are_neither_none_nor_all() {
        let sealed = |fraction: f64, n| Fraction(fraction).of(n);
        assert_eq!(
            [
                sealed(0.5, 500),
                sealed(0.001, 10),
                sealed(0.999, 10),
                sealed(0.25, 6)
            ],
            [250, 1, 9, 2]
        );
    }

    #[test]
    fn exact_and_sealed_policies_keep_figures() {
        for text in ["exact", "sealed(0.5)"] {
            assert_eq!(
                policy(text).disclose(figures(0.123_456), None).unwrap(),
                figures(0.123_456)
            );
        }
        let rounded = policy("rounded(2)")
            .disclose(figures(0.123_456), None)
            .unwrap();
        assert_eq!((rounded.value, rounded.metrics["other"]), (0.12, 0.04));
    }
}
