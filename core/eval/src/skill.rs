//! Skill: the share of the way from a baseline to the best value. The baseline knows nothing about
//! single items.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::clusters::Average;
use crate::error::Corrupt;
use crate::metric::{Family, Metric};

/// The submission whose skill is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillBaseline {
    /// Each option of an item has the same probability.
    Uniform,
    /// The mean of the answers, for every item.
    Marginal,
}

impl SkillBaseline {
    /// Reads a published suite's baseline, which was checked when it was published.
    pub fn published(name: &str) -> Result<Self, Corrupt> {
        name.parse()
            .map_err(|_| Corrupt::new("a published suite has an unknown baseline of its skill"))
    }

    /// Returns the name in `suite.toml` and in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Marginal => "marginal",
        }
    }

    /// Checks that a skill against this baseline is defined.
    ///
    /// # Errors
    /// Returns the reason if the value is no mean over items, or if the metric has no such baseline.
    pub fn check(self, metric: Metric, average: Average) -> Result<(), String> {
        if !metric.is_mean() {
            return Err(format!(
                "{metric} is no mean over the scores of items, so it has no skill; choose a metric such as log_loss, brier, mae or \
                 accuracy"
            ));
        }
        if average == Average::Cluster {
            return Err(
                "a value that averages clusters has no skill; write average = \"item\"".into(),
            );
        }
        let reason = match (self, metric.family()) {
            (Self::Uniform, Family::Numbers | Family::Quantiles) => {
                "no uniform prediction of a number"
            }
            (Self::Uniform, Family::Rankings) => {
                "no uniform ranking, because the ids that could be ranked are not known"
            }
            (Self::Uniform, Family::Labels | Family::Probabilities) | (Self::Marginal, _) => {
                return Ok(());
            }
        };
        Err(format!(
            "with {metric} there is {reason}; write baseline = \"marginal\""
        ))
    }
}

impl FromStr for SkillBaseline {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "marginal" => Ok(Self::Marginal),
            _ => Err("baseline must be \"uniform\" or \"marginal\""),
        }
    }
}

impl fmt::Display for SkillBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for SkillBaseline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_round_trips_through_its_name() {
        for baseline in [SkillBaseline::Uniform, SkillBaseline::Marginal] {
            assert_eq!(baseline.as_str().parse(), Ok(baseline));
        }
        assert!("Uniform".parse::<SkillBaseline>().is_err());
    }

    #[test]
    fn skill_is_defined_for_means() {
        let check = |baseline: SkillBaseline, metric: &str| {
            baseline
                .check(metric.parse().unwrap(), Average::Item)
                .is_ok()
        };
        let [uniform, marginal] = [SkillBaseline::Uniform, SkillBaseline::Marginal];
        for (metric, of_uniform, of_marginal) in [
            ("log_loss", true, true),
            ("brier", true, true),
            ("exact_match", true, true),
            ("accuracy", false, true),
            ("ndcg@5", false, true),
            ("jaccard", false, true),
            ("mae", false, true),
            ("rmse", false, false),
            ("r2", false, false),
            ("f1_macro", false, false),
            ("auc", false, false),
            ("ece@15", false, false),
        ] {
            assert_eq!(check(uniform, metric), of_uniform, "{metric}");
            assert_eq!(check(marginal, metric), of_marginal, "{metric}");
        }
        let brier = "brier".parse().unwrap();
        assert!(marginal.check(brier, Average::Cluster).is_err());
    }
}
