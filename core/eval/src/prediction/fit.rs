//! Compares predictions with a suite's items and metric, without answers.

use std::collections::HashMap;
use std::ops::ControlFlow;

use serde::Serialize;
use unicode_normalization::UnicodeNormalization as _;

use super::rules::PredictionRules;
use super::sink::PredictionSink;
use super::unmatched::Unmatched;
use super::value::{FIELD_ERRORS_MAX, Prediction, Value, location};
use crate::error::{FieldError, quoted};
use crate::metric::{Family, Metric};

/// The most unmatched predictions and missing items that a [`Fit`] names.
const NAMED_MAX: usize = 10;

/// A comparison between predictions and a suite's items and metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The suite's item count.
    pub n_items: i64,
    /// Suite items with a prediction.
    pub n_matched: i64,
    /// Predictions for items that are not in the suite.
    pub n_unmatched: i64,
    /// The first such items, at most 10, each with its prediction's place.
    pub first_unmatched: Vec<(String, String)>,
    /// The first items without a prediction, in suite order, at most 10.
    pub first_missing: Vec<String>,
    /// The first errors for which a job would fail, at most [`FIELD_ERRORS_MAX`].
    pub errors: Vec<FieldError>,
    /// Set if reading stopped at the last such error: the numbers do not cover the rest.
    pub is_partial: bool,
    /// Likely mistakes for which a job would not fail, each with its cause, for people.
    pub warnings: Vec<String>,
}

impl Fit {
    /// Returns how many items lack a prediction.
    pub fn n_missing(&self) -> i64 {
        self.n_items - self.n_matched
    }
}

/// Compares predictions with a suite's items as a [`PredictionSink`].
pub struct FitCheck {
    rules: PredictionRules,
    /// The place of each item's prediction once there is one, with the item number.
    places: HashMap<String, (usize, Option<String>)>,
    unmatched: Unmatched,
    /// Predictions with a value.
    n_values: i64,
    /// The first text with a separator in a place for one id, and the count of such texts.
    separated: (Option<String>, i64),
    /// The first id or label with white space around it, and how many predictions have one.
    padded: (Option<String>, i64),
    fit: Fit,
}

impl FitCheck {
    /// Creates a comparison with a suite's rules and items, in its order.
    pub fn new(rules: PredictionRules, item_ids: impl IntoIterator<Item = String>) -> Self {
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
            warnings: Vec::new(),
        };
        Self {
            rules,
            places,
            unmatched: Unmatched::default(),
            n_values: 0,
            separated: (None, 0),
            padded: (None, 0),
            fit,
        }
    }

    /// Returns the comparison with the predictions that were taken.
    pub fn finish(mut self) -> Fit {
        if !self.fit.is_partial {
            self.check_whole();
            self.fit.warnings = self.warnings();
        }
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

impl FitCheck {
    /// Adds the errors that only all predictions together show.
    fn check_whole(&mut self) {
        if let Some(place) = self.unmatched.first_repeated() {
            self.fit.errors.push(FieldError::new(
                format!("{place}.item_id"),
                "duplicate",
                "this item is already predicted",
            ));
        }
        let metric = self.rules.metric();
        if metric.needs_all_predictions() && self.fit.n_missing() > 0 {
            let message = format!("{metric} needs a prediction for each item of the suite");
            self.fit
                .errors
                .push(FieldError::new("predictions", "required", message));
        }
    }

    fn warnings(&self) -> Vec<String> {
        let fit = &self.fit;
        let mut warnings = Vec::new();
        if fit.n_unmatched * 2 > self.n_values {
            let cause = self.similar_id().map_or_else(String::new, |(found, item)| {
                format!(
                    ": {} differs from {} in case, white space or Unicode form only",
                    quoted(found),
                    quoted(item)
                )
            });
            warnings.push(format!(
                "{} of {} predictions are for items that the suite does not have{cause}",
                fit.n_unmatched, self.n_values
            ));
        } else if fit.n_missing() * 2 > fit.n_items {
            warnings.push(format!(
                "{} of {} items have no prediction, and count as the worst possible one",
                fit.n_missing(),
                fit.n_items
            ));
        }
        if let (Some(text), n) = &self.separated
            && n * 2 > self.n_values
        {
            warnings.push(format!(
                "{} is one id; write a ranking of several as an array of texts",
                quoted(text)
            ));
        }
        if let (Some(text), n) = &self.padded {
            warnings.push(format!(
                "{n} predictions have white space around an id or a label, such as {}; it counts as a part", quoted(text)
            ));
        }
        warnings
    }

    /// Returns the first unmatched id that equals a suite id except for its writing, and that id.
    fn similar_id(&self) -> Option<(&str, &str)> {
        let items: HashMap<String, &str> = self
            .places
            .keys()
            .map(|item| (plain(item), item.as_str()))
            .collect();
        let mut first = self.fit.first_unmatched.iter();
        first.find_map(|(found, _)| Some((found.as_str(), *items.get(&plain(found))?)))
    }

    /// Counts texts that are probably mistakes.
    fn count_mistakes(&mut self, value: Value<'_, '_>) {
        let is_padded = |text: &&str| text.trim() != *text;
        let padded = match value {
            Value::Label(label) => {
                // `accuracy`'s one answer may well be several words.
                let metric = self.rules.metric();
                let is_id = metric.family() == Family::Rankings && metric != Metric::Accuracy;
                if is_id && label.trim().contains([' ', '|', ',', ';', '\t']) {
                    self.separated.1 += 1;
                    self.separated.0.get_or_insert_with(|| label.to_string());
                }
                Some(label.as_ref()).filter(is_padded)
            }
            Value::Ranking(ids) => ids.iter().map(AsRef::as_ref).find(is_padded),
            Value::Probabilities(all) => {
                all.iter().map(|(label, _)| label.as_ref()).find(is_padded)
            }
            Value::Number(_) | Value::Failed => None,
        };
        if let Some(text) = padded {
            self.padded.1 += 1;
            self.padded.0.get_or_insert_with(|| text.into());
        }
    }
}

/// Returns a text in the form in which ids are compared for warnings.
fn plain(text: &str) -> String {
    text.trim().to_lowercase().nfkc().collect()
}

impl<'a> PredictionSink<'a> for FitCheck {
    type Stop = ();

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        if let Ok(prediction) = &prediction {
            self.count_mistakes(prediction.value);
        }
        let fit = &mut self.fit;
        match prediction {
            Err(error) => fit.errors.push(error),
            Ok(prediction) => {
                if matches!(prediction.value, Value::Failed) {
                    return ControlFlow::Continue(());
                }
                self.n_values += 1;
                let place = location(prediction.index, prediction.line);
                if let Err((reason, message)) = self.rules.check(prediction.value) {
                    let field = format!("{place}.prediction");
                    fit.errors.push(FieldError::new(field, reason, message));
                }
                match self.places.get_mut(prediction.item_id.as_ref()) {
                    None => {
                        fit.n_unmatched += 1;
                        self.unmatched.add(&prediction);
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
        let rules = PredictionRules::new(metric.parse().unwrap(), None).unwrap();
        let mut check = FitCheck::new(rules, items);
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
                ("predictions[4].item_id", "duplicate"),
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

    #[test]
    fn likely_mistakes_have_warnings() {
        let row = |id: &str, value: &str| format!(r#"{{"item_id":"{id}","prediction":{value}}}"#);
        for (metric, rows, expected) in [
            (
                "accuracy",
                vec![row("A1", "\"x\""), row(" b2 ", "\"x\"")],
                vec![
                    "2 of 2 predictions are for items that the suite does not have: \"A1\" differs from \"a1\"",
                ],
            ),
            (
                "accuracy",
                vec![row("a1", "\"x\"")],
                vec!["2 of 3 items have no prediction"],
            ),
            (
                "ndcg@5",
                vec![row("a1", "\"d1 d2\""), row("b2", "\"d1|d2\"")],
                vec!["\"d1 d2\" is one id"],
            ),
            (
                "exact_match",
                vec![row("a1", "\"new york\""), row("b2", "\" x\"")],
                vec!["1 predictions have white space around an id or a label, such as \" x\""],
            ),
            (
                "accuracy",
                vec![row("a1", "\"x\""), row("b2", "[\"y\"]")],
                vec![],
            ),
        ] {
            let found = fit(
                metric,
                &["a1", "b2", "c3"],
                &format!("[{}]", rows.join(",")),
            );
            assert_eq!(found.errors, []);
            assert_eq!(found.warnings.len(), expected.len(), "{:?}", found.warnings);
            for (warning, start) in found.warnings.iter().zip(expected) {
                assert!(warning.starts_with(start), "{warning}");
            }
        }
    }

    #[test]
    fn metric_that_needs_all_predictions_reports_missing_ones() {
        let one = r#"[{"item_id":"a","prediction":1}]"#;
        let found = fit("spearman", &["a", "b"], one);
        assert_eq!(found.errors[0].field, "predictions");
        assert_eq!(fit("rmse", &["a", "b"], one).errors, []);
    }
}
