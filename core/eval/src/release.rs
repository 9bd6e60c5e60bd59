//! What is released of a score. Whoever is told exact figures of many submissions can read the answers out of them, an item
//! at a time; so the operator says at publishing how much is told. What each policy is worth is measured in
//! `core/eval/tests/probing.rs`, and told in `docs/threats.md`.

use std::fmt;
use std::str::FromStr;

use crate::{Corrupt, Metric};

/// How a suite's scores are released. Written `exact`, `rounded(2)`, `ladder(0.01)`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Release {
    /// Every figure as it is.
    #[default]
    Exact,
    /// Every figure with so many decimals.
    Rounded(Decimals),
    /// The best of the organization so far, which only a better one by more than the step replaces.
    Ladder(Step),
}

/// How many decimals a figure is released with: 1 to 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimals(u8);

/// By how much a score must be better to be told: above 0, at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step(f64);

/// Above this many steps a figure is coarser than the step.
const STEPS_MAX: f64 = 9_007_199_254_740_992.0;

/// The number with so many decimals, as it would be read from a text: 0.3, and not 0.30000000000000004; never −0.
fn to_decimals(figure: f64, decimals: usize) -> f64 {
    format!("{figure:.decimals$}").parse().unwrap_or(figure) + 0.0
}

impl Decimals {
    const MAX: u8 = 6;

    fn parse(text: &str) -> Option<Self> {
        let decimals: u8 = text.parse().ok()?;
        ((1..=Self::MAX).contains(&decimals) && decimals.to_string() == text).then_some(Self(decimals))
    }

    /// A figure with this many decimals.
    pub fn round(self, figure: f64) -> f64 {
        to_decimals(figure, usize::from(self.0))
    }
}

impl Step {
    fn parse(text: &str) -> Option<Self> {
        let step: f64 = text.parse().ok()?;
        (step > 0.0 && step <= 1.0 && step.to_string() == text).then_some(Self(step))
    }

    /// The multiple of the step that is nearest.
    fn nearest(self, value: f64) -> f64 {
        let steps = (value / self.0).round();
        if steps.abs() >= STEPS_MAX {
            return value;
        }
        let decimals = self.0.to_string().split_once('.').map_or(0, |(_, decimals)| decimals.len());
        to_decimals(steps * self.0, decimals)
    }
}

/// The Ladder of A. Blum and M. Hardt, "The Ladder: A Reliable Leaderboard for Machine Learning Competitions", ICML 2015
/// (the mechanism with a fixed step): a submission is told its own score only where that is better by more than a step
/// than the best that was told before, and then only to a step; otherwise it is told that best again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ladder {
    /// How high a rung is.
    pub step: Step,
    /// Says which way is up.
    pub metric: Metric,
}

impl Ladder {
    /// What is told of a value after `best`, the best that was told so far: that again, or what is better.
    pub fn climb(self, best: Option<f64>, value: f64) -> f64 {
        let Some(best) = best else { return self.step.nearest(value) };
        let gain = if self.metric.lower_is_better() { best - value } else { value - best };
        // What a difference of two figures has in its last bits is no gain: 0.8 − 0.7 is not more than 0.1.
        let noise = 4.0 * f64::EPSILON * (best.abs() + value.abs());
        if gain > self.step.0 + noise { self.step.nearest(value) } else { best }
    }
}

impl Release {
    /// That of a published suite, which was checked then: the error is [`Corrupt`].
    pub fn published(text: &str) -> Result<Self, Corrupt> {
        text.parse().map_err(|_| Corrupt::new("a published suite has an unknown disclosure policy"))
    }
}

impl FromStr for Release {
    type Err = &'static str;

    /// Only the one canonical spelling: `ladder(0.05)`, never `ladder(.05)` or `ladder(0.050)`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let within = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        let release = if text == "exact" {
            Some(Self::Exact)
        } else if let Some(decimals) = within("rounded") {
            Decimals::parse(decimals).map(Self::Rounded)
        } else {
            within("ladder").and_then(Step::parse).map(Self::Ladder)
        };
        release.ok_or(
            "expected exact, rounded(d) with d from 1 to 6, or ladder(step) with a step above 0 and at most 1, such as rounded(2) or \
             ladder(0.01)",
        )
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Rounded(Decimals(decimals)) => write!(f, "rounded({decimals})"),
            Self::Ladder(Step(step)) => write!(f, "ladder({step})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(step: f64, metric: &str) -> Ladder {
        Ladder { step: Step(step), metric: metric.parse().unwrap() }
    }

    #[test]
    fn a_policy_is_written_as_it_was_read() {
        for text in ["exact", "rounded(1)", "rounded(6)", "ladder(1)", "ladder(0.05)", "ladder(0.000001)", "ladder(0.3333)"] {
            assert_eq!(text.parse::<Release>().unwrap().to_string(), text);
        }
        let bad = ["", "Exact", "exact()", "rounded", "rounded()", "rounded(0)", "rounded(7)", "rounded(02)", "rounded(+2)", "rounded(2"];
        let bad = bad.into_iter().chain(["rounded 2", " exact", "ladder()", "ladder(0)", "ladder(-0.1)", "ladder(1.0)", "ladder(1.5)"]);
        for text in
            bad.chain(["ladder(.05)", "ladder(0.050)", "ladder(5e-2)", "ladder(nan)", "ladder(inf)", "ladder(0.05))", "ladder(1e-999)"])
        {
            assert!(text.parse::<Release>().unwrap_err().contains("ladder(0.01)"), "{text:?}");
        }
    }

    #[test]
    fn rounding_leaves_no_noise_and_no_sign_of_nothing() {
        assert_eq!([1, 2, 6].map(|decimals| Decimals(decimals).round(0.1 + 0.2)), [0.3; 3]);
        assert_eq!(Decimals(2).round(2.0 / 3.0), 0.67);
        assert!(Decimals(1).round(-0.001).is_sign_positive());
        assert_eq!(Decimals(1).round(-1e50), -1e50);
        assert_eq!(Step(0.1).nearest(0.3 + 1e-9), 0.3);
        assert_eq!(Step(0.3333).nearest(0.9), 0.9999);
        assert_eq!((Step(1.0).nearest(0.2), Step(1.0).nearest(7.9)), (0.0, 8.0));
        assert_eq!(Step(1e-300).nearest(1e50), 1e50);
    }

    #[test]
    fn a_ladder_is_climbed_by_more_than_a_step_only() {
        let told = |ladder: Ladder, values: &[f64]| {
            let mut best = None;
            values.iter().map(|value| *best.insert(ladder.climb(best, *value))).collect::<Vec<_>>()
        };
        // First, not better, a bit better, exactly a step better, better by more, worse.
        assert_eq!(told(ladder(0.1, "accuracy"), &[0.52, 0.5, 0.59, 0.6, 0.66, 0.1]), [0.5, 0.5, 0.5, 0.5, 0.7, 0.7]);
        assert_eq!(told(ladder(0.1, "accuracy"), &[0.7, 0.8, 0.81]), [0.7, 0.7, 0.8]);
        assert_eq!(told(ladder(0.1, "rmse"), &[3.12, 3.2, 3.01, 2.99, 9.0, 0.0]), [3.1, 3.1, 3.1, 3.0, 3.0, 0.0]);
        assert_eq!(told(ladder(0.25, "spearman"), &[-1.0, -0.9, 0.0]), [-1.0, -1.0, 0.0]);
    }

    #[test]
    fn what_is_released_never_falls_and_lies_within_a_step_of_the_best() {
        let ladder = ladder(0.05, "accuracy");
        let (mut best, mut real, mut state) = (None, f64::MIN, 7_u64);
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 40) as f64 / f64::from(1 << 24) * ((state >> 8) & 1023) as f64 / 1023.0;
            real = real.max(value);
            let told = ladder.climb(best, value);
            assert!(best.is_none_or(|best| told == best || told >= best + 0.05 - 1e-12), "{best:?} {told}");
            assert!((told - real).abs() <= 0.05 + 1e-12, "{told} {real}");
            assert_eq!(told, Step(0.05).nearest(told));
            best = Some(told);
        }
    }
}
