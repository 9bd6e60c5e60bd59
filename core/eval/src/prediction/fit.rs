//! The comparison of predictions with the items and the metric of a suite, without answers.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::sink::PredictionSink;
use super::value::{FIELD_ERRORS_MAX, Prediction, Value, check_value, location};
use crate::error::FieldError;
use crate::metric::Metric;

/// Largest number of unmatched predictions and of missing items that a [`Fit`] names.
const NAMED_MAX: usize = 10;

/// The comparison of predictions with the items and the metric of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Number of items of the suite.
    pub n_items: i64,
    /// Number of items of the suite with a prediction.
    pub n_matched: i64,
    /// Number of predictions for items that are not in the suite.
    pub n_unmatched: i64,
    /// The first of these items, at most 10, each with the place of its prediction.
    pub first_unmatched: Vec<(String, String)>,
    /// The first items without a prediction, in the order of the suite, at most 10.
    pub first_missing: Vec<String>,
    /// The first errors for which a job would fail, at most [`FIELD_ERRORS_MAX`].
    pub errors: Vec<FieldError>,
    /// Set if reading stopped at the last of these errors: the numbers do not cover the rest.
    pub is_partial: bool,
}

impl Fit {
    /// Returns the number of items without a prediction.
    pub fn n_missing(&self) -> i64 {
        self.n_items - self.n_matched
    }
}

/// Compares predictions with the items of a suite as a [`PredictionSink`].
pub struct FitCheck {
    metric: Metric,
    /// The place of the prediction of each item once there is one, with the number of the item.
    places: HashMap<String, (usize, Option<String>)>,
    fit: Fit,
}

impl FitCheck {
    /// Creates a comparison with the items of a suite, in its order.
    pub fn new(metric: Metric, item_ids: impl IntoIterator<Item = String>) -> Self {
        let places: HashMap<_, _> = item_ids
            .into_iter()
            .enumerate()
            .map(|(number, item_id)| (item_id, (number, None)))
            .collect();
        let fit = Fit {
            n_items: places.len() as i64,
            n_matched: 0,
            n_unmatched: 0,
            first_unmatched: Vec::new(),
            first_missing: Vec::new(),
            errors: Vec::new(),
            is_partial: false,
        };
        Self {
            metric,
            places,
            fit,
        }
    }

    /// Returns the comparison with the predictions that were taken.
    pub fn finish(self) -> Fit {
        let Self {
            places, mut fit, ..
        } = self;
        let mut missing: Vec<(usize, String)> = places
            .into_iter()
            .filter(|(_, (_, place))| place.is_none())
            .map(|(item_id, (number, _))| (number, item_id))
            .collect();
        missing.sort_unstable();
        missing.truncate(NAMED_MAX);
        fit.first_missing = missing.into_iter().map(|(_, item_id)| item_id).collect();
        fit
    }
}

impl<'a> PredictionSink<'a> for FitCheck {
    type Stop = ();

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        let fit = &mut self.fit;
        match prediction {
            Err(error) => fit.errors.push(error),
            Ok(prediction) => {
                if matches!(prediction.value, Value::Failed) {
                    return ControlFlow::Continue(());
                }
                let place = location(prediction.index, prediction.line);
                if let Err((reason, message)) = check_value(self.metric, prediction.value) {
                    let field = format!("{place}.prediction");
                    fit.errors.push(FieldError::new(field, reason, message));
                }
                match self.places.get_mut(prediction.item_id.as_ref()) {
                    None => {
                        fit.n_unmatched += 1;
                        if fit.first_unmatched.len() < NAMED_MAX {
                            let item_id = prediction.item_id.into_owned();
                            fit.first_unmatched.push((item_id, place));
                        }
                    }
                    Some((_, Some(first))) => fit.errors.push(FieldError::new(
                        format!("{place}.item_id"),
                        "duplicate",
                        format!("this item is already predicted by {first}"),
                    )),
                    Some((_, first)) => {
                        fit.n_matched += 1;
                        *first = Some(place);
                    }
                }
            }
        }
        if fit.errors.len() < FIELD_ERRORS_MAX {
            ControlFlow::Continue(())
        } else {
            fit.is_partial = true;
            ControlFlow::Break(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn fit(metric: &str, items: &[&str], predictions: &str) -> Fit {
        let items = items.iter().map(|item| (*item).to_owned());
        let mut check = FitCheck::new(metric.parse().unwrap(), items);
        let _ = read(predictions.as_bytes(), &mut check).unwrap();
        check.finish()
    }

    #[test]
    fn missing_unknown_repeated_and_mistyped_predictions_are_found() {
        let fit = fit(
            "accuracy",
            &["c", "b", "a"],
            r#"[{"item_id":"a","prediction":"x"},{"item_id":"z","prediction":"x"},
               {"item_id":"a","prediction":"y"},{"item_id":"q","error":{}},
               {"item_id":"z","prediction":1}]"#,
        );
        assert_eq!((fit.n_items, fit.n_matched, fit.n_missing()), (3, 1, 2));
        assert_eq!(fit.first_missing, ["c", "b"], "in the order of the suite");
        assert_eq!(fit.n_unmatched, 2);
        assert_eq!(
            fit.first_unmatched[0],
            ("z".to_owned(), "predictions[1]".to_owned())
        );
        let errors: Vec<_> = fit
            .errors
            .iter()
            .map(|error| (error.field.as_str(), error.reason))
            .collect();
        assert_eq!(
            errors,
            [
                ("predictions[2].item_id", "duplicate"),
                ("predictions[4].prediction", "type"),
            ]
        );
        assert!(!fit.is_partial);
    }

    #[test]
    fn reading_stops_after_the_last_error_that_is_kept() {
        let many = vec![r#"{"item_id":"a","prediction":1}"#; FIELD_ERRORS_MAX + 5].join(",");
        let fit = fit("accuracy", &["a"], &format!("[{many}]"));
        assert!(fit.is_partial && fit.errors.len() >= FIELD_ERRORS_MAX);
    }
}
