//! The rules by which a suite takes a predicted value.

use super::quantiles::check_quantiles;
use super::value::{NUMBER_MAX, Value, check_probabilities};
use crate::error::Corrupt;
use crate::metric::{Family, Metric};
use crate::quantile_levels::QuantileLevels;

/// The rules by which a suite takes a predicted value: those of its metric, and its quantile levels.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionRules {
    metric: Metric,
    levels: Option<QuantileLevels>,
}

impl PredictionRules {
    /// Returns the rules of a published suite. `levels` are the suite's, if its metric is of the family
    /// [`Family::Quantiles`].
    ///
    /// # Errors
    /// Fails with [`Corrupt`] if the metric needs levels and the suite has none, or others than it needs:
    /// publishing has checked them.
    pub fn new(metric: Metric, levels: Option<QuantileLevels>) -> Result<Self, Corrupt> {
        let is_valid = match (metric.family(), &levels) {
            (Family::Quantiles, None) => Err(format!("{metric} needs quantiles")),
            (_, None) => Ok(()),
            (_, Some(levels)) => levels.check_metric(metric),
        };
        is_valid
            .map(|()| Self::checked(metric, levels))
            .map_err(|reason| Corrupt::new(format!("the suite's quantiles: {reason}")))
    }

    /// Reads the rules of a published suite, which were checked when it was published. `quantiles` are its
    /// levels; empty without them.
    pub fn published(metric: &str, quantiles: &[f64]) -> Result<Self, Corrupt> {
        let levels = (!quantiles.is_empty()).then(|| QuantileLevels::published(quantiles));
        Self::new(Metric::published(metric)?, levels.transpose()?)
    }

    /// Returns the rules of a suite whose levels [`PredictionRules::new`] has accepted.
    pub(crate) fn checked(metric: Metric, levels: Option<QuantileLevels>) -> Self {
        Self { metric, levels }
    }

    /// Returns the suite's metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Checks that the suite takes such a value. The error is a field error's `reason` and message.
    pub fn check(&self, value: Value<'_, '_>) -> Result<(), (&'static str, String)> {
        let expected = match (self.metric.family(), value) {
            (Family::Rankings, Value::Label(_) | Value::Ranking(_))
            | (Family::Labels, Value::Label(_))
            | (_, Value::Failed) => return Ok(()),
            (Family::Numbers, Value::Number(number)) => {
                return if number.abs() <= NUMBER_MAX {
                    Ok(())
                } else {
                    Err((
                        "range",
                        format!("must be from -{NUMBER_MAX:e} to {NUMBER_MAX:e}"),
                    ))
                };
            }
            (Family::Probabilities, Value::Probabilities(probabilities)) => {
                return check_probabilities(probabilities);
            }
            (Family::Quantiles, Value::Probabilities(object)) => match &self.levels {
                Some(levels) => return check_quantiles(levels, object),
                // [`PredictionRules::new`] has checked that there are levels.
                None => "an object of level → number",
            },
            (Family::Rankings, _) => "a string or an array of strings",
            (Family::Labels, _) => "a string",
            (Family::Numbers, _) => "a number",
            (Family::Probabilities, _) => "an object of label → probability",
            (Family::Quantiles, _) => "an object of level → number",
        };
        Err((
            "type",
            format!("must be {expected}: the suite's metric is {}", self.metric),
        ))
    }
}
