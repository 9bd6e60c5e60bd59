//! Checks an inline submission.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;

use super::digest::SubmissionDigest;
use super::reader::{Malformed, read};
use super::rules::PredictionRules;
use super::sink::PredictionSink;
use super::value::{FIELD_ERRORS_MAX, Prediction, Value};
use crate::error::FieldError;

/// The reason why a submission is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// The document is not JSON in UTF-8.
    Malformed(Malformed),
    /// The predictions have 1 to [`FIELD_ERRORS_MAX`] errors.
    Fields(Vec<FieldError>),
}

impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The result for a valid submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Element count. Those with a prediction have distinct items.
    pub n_items: i64,
    /// SHA-256 over the item ids and values, in order. White space, escapes and ignored fields in
    /// the JSON do not change it; the predictions' order and content do.
    pub digest: [u8; 32],
}

/// Checks a whole submission for a suite with these rules.
///
/// Returns the predictions' first [`FIELD_ERRORS_MAX`] errors together, with paths such as
/// `predictions[3].item_id`.
pub fn check(json: &[u8], rules: &PredictionRules) -> Result<Checked, Rejected> {
    let (n_items, digest) = check_with(json, rules, Some(SubmissionDigest::default()))?;
    let digest = digest.unwrap_or_default().finish();
    Ok(Checked { n_items, digest })
}

/// Checks a whole submission as [`check`] does, without a digest. Returns the prediction count.
pub fn check_and_count(json: &[u8], rules: &PredictionRules) -> Result<i64, Rejected> {
    let (n_items, _) = check_with(json, rules, None)?;
    Ok(n_items)
}

/// Checks a whole submission, and adds its predictions to the digest if there is one.
fn check_with(
    json: &[u8],
    rules: &PredictionRules,
    digest: Option<SubmissionDigest>,
) -> Result<(i64, Option<SubmissionDigest>), Rejected> {
    let mut checker = Checker {
        rules,
        errors: Vec::new(),
        // Most predictions are longer, so the map rarely grows.
        first_index: HashMap::with_capacity(json.len() / 128),
        n_failed: 0,
        digest,
    };
    // A reader that stopped early has left errors behind.
    let _: ControlFlow<()> = read(json, &mut checker)?;
    let Checker {
        mut errors,
        first_index,
        n_failed,
        digest,
        ..
    } = checker;
    // The last prediction may have had two errors.
    errors.truncate(FIELD_ERRORS_MAX);
    if errors.is_empty() {
        Ok((first_index.len() as i64 + n_failed, digest))
    } else {
        Err(Rejected::Fields(errors))
    }
}

/// Collects errors, each item's first prediction, and the digest.
struct Checker<'a, 'm> {
    rules: &'m PredictionRules,
    errors: Vec<FieldError>,
    first_index: HashMap<Cow<'a, str>, usize>,
    /// Elements with an error instead of a prediction.
    n_failed: i64,
    digest: Option<SubmissionDigest>,
}

impl<'a> PredictionSink<'a> for Checker<'a, '_> {
    type Stop = ();

    #[inline]
    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        match prediction {
            Err(error) => self.errors.push(error),
            Ok(prediction) => {
                if let Some(digest) = &mut self.digest {
                    digest.add(&prediction);
                }
                if matches!(prediction.value, Value::Failed) {
                    self.n_failed += 1;
                    return ControlFlow::Continue(());
                }
                if let Err((reason, message)) = self.rules.check(prediction.value) {
                    self.errors.push(FieldError::new(
                        format!("predictions[{}].prediction", prediction.index),
                        reason,
                        message,
                    ));
                }
                match self.first_index.entry(prediction.item_id) {
                    Entry::Vacant(entry) => _ = entry.insert(prediction.index),
                    Entry::Occupied(entry) => self.errors.push(FieldError::new(
                        format!("predictions[{}].item_id", prediction.index),
                        "duplicate",
                        format!(
                            "this item is already predicted by predictions[{}]",
                            entry.get()
                        ),
                    )),
                }
            }
        }
        if self.errors.len() < FIELD_ERRORS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::sink_fn;
    use super::*;
    use crate::metric::Metric;
    use crate::quantile_levels::QuantileLevels;

    fn rules(metric: Metric) -> PredictionRules {
        PredictionRules::new(metric, None).unwrap()
    }

    fn checked(json: &str) -> Result<Checked, Rejected> {
        check(json.as_bytes(), &rules(Metric::Accuracy))
    }

    /// Returns the errors as `path reason`.
    fn errors(json: &str) -> Vec<String> {
        match checked(json).unwrap_err() {
            Rejected::Fields(fields) => fields
                .into_iter()
                .map(|error| format!("{} {}", error.field, error.reason))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_name_path_and_reason() {
        let good = r#"{"item_id":"a","prediction":[]}"#;
        for (element, error) in [
            (r#"{"prediction":"x"}"#, ".item_id required"),
            (r#"{"item_id":"b"}"#, ".prediction required"),
            (r#"["b","x"]"#, " type"),
            ("null", " type"),
            (r#""b""#, " type"),
            ("1.5", " type"),
            ("true", " type"),
            (r#"{"item_id":null,"prediction":"x"}"#, ".item_id type"),
            (r#"{"item_id":7,"prediction":"x"}"#, ".item_id type"),
            (r#"{"item_id":{"a":[1]},"prediction":"x"}"#, ".item_id type"),
            (r#"{"item_id":"","prediction":"x"}"#, ".item_id format"),
            (
                r#"{"item_id":"b\u0000","prediction":"x"}"#,
                ".item_id format",
            ),
            (r#"{"item_id":"b","prediction":null}"#, ".prediction type"),
            (r#"{"item_id":"b","prediction":-1}"#, ".prediction type"),
            (
                r#"{"item_id":"b","prediction":{"x":1}}"#,
                ".prediction type",
            ),
            (
                r#"{"item_id":"b","prediction":"\u0000"}"#,
                ".prediction format",
            ),
            (
                r#"{"item_id":"b","prediction":["x",["y"]]}"#,
                ".prediction[1] type",
            ),
            (
                r#"{"item_id":"b","prediction":["x","y",3]}"#,
                ".prediction[2] type",
            ),
            (
                r#"{"item_id":"b","prediction":["x\u0000"]}"#,
                ".prediction[0] format",
            ),
            (
                r#"{"item_id":"b","prediction":"x","item_id":"c"}"#,
                ".item_id duplicate",
            ),
            (
                r#"{"item_id":"b","prediction":"x","prediction":"x"}"#,
                ".prediction duplicate",
            ),
            (
                r#"{"item_id":"b","prediction":"x","p":1,"p":1}"#,
                " duplicate",
            ),
            (r#"{"item_id":"a","prediction":"x"}"#, ".item_id duplicate"),
            (
                r#"{"item_id":"\u0061","prediction":"x"}"#,
                ".item_id duplicate",
            ),
        ] {
            assert_eq!(
                errors(&format!("[{good},{element}]")),
                [format!("predictions[1]{error}")],
                "{element}"
            );
        }
    }

    #[test]
    fn item_id_is_limited_to_512_bytes() {
        let submission = |id: String| format!(r#"[{{"item_id":"{id}","prediction":"x"}}]"#);
        assert_eq!(checked(&submission("ä".repeat(256))).unwrap().n_items, 1);
        assert_eq!(
            errors(&submission("a".repeat(513))),
            ["predictions[0].item_id format"]
        );
    }

    #[test]
    fn document_without_predictions_is_rejected() {
        assert_eq!(errors("[]"), ["predictions required"]);
        for json in ["{\"item_id\":\"a\"}", "null", "\"a\"", "3", "false"] {
            assert_eq!(errors(json), ["predictions type"], "{json}");
        }
        for json in [
            "",
            "[",
            "[{]",
            "[] []",
            r#"[{"item_id":"\ud800","prediction":"x"}]"#,
            "[{\"item_id\":\"\0\"}]",
        ] {
            assert!(
                matches!(checked(json), Err(Rejected::Malformed(_))),
                "{json}"
            );
        }
        assert!(matches!(
            check(b"[{\"item_id\":\"\xff\"}]", &rules(Metric::Accuracy)),
            Err(Rejected::Malformed(_))
        ));
    }

    #[test]
    fn errors_are_collected_up_to_twenty() {
        assert_eq!(errors(r#"[{"item_id":1,"prediction":[1]},2]"#).len(), 3);
        let all = errors(&format!("[{}1]", "1,".repeat(99)));
        assert_eq!((all.len(), all[19].as_str()), (20, "predictions[19] type"));
        assert_eq!(
            errors(&format!(
                r#"[{{"item_id":"a","prediction":[{}1]}}]"#,
                "1,".repeat(99)
            ))
            .len(),
            20
        );
    }

    #[test]
    fn repeated_item_names_earlier_prediction() {
        let error = checked(
            r#"[{"item_id":"a","prediction":"x"},{"item_id":"b","prediction":"x"},{"item_id":"a","prediction":"y"}]"#,
        );
        let expected = FieldError::new(
            "predictions[2].item_id",
            "duplicate",
            "this item is already predicted by predictions[0]",
        );
        assert_eq!(error, Err(Rejected::Fields(vec![expected])));
    }

    #[test]
    fn error_alone_replaces_prediction() {
        let failed = |rest: &str| format!(r#"[{{"item_id":"a",{rest}}}]"#);
        for rest in [
            r#""error":{}"#,
            r#""error":{"code":"validation_failed","message":"too long"}"#,
            r#" "\u0065rror" : {"a":[{"b":[1]}]} "#,
        ] {
            assert_eq!(checked(&failed(rest)).unwrap().n_items, 1, "{rest}");
        }
        for (rest, error) in [
            (r#""error":"x""#, ".prediction required"),
            (r#""error":[{}]"#, ".prediction required"),
            (r#""error":null"#, ".prediction required"),
            (r#""error":{},"note":1"#, ".prediction required"),
            (r#""error":{},"error":{}"#, " duplicate"),
            (r#""error":{},"prediction":7"#, ".prediction type"),
        ] {
            assert_eq!(
                errors(&failed(rest))[0],
                format!("predictions[0]{error}"),
                "{rest}"
            );
        }
        let digest = |rest: &str| checked(&failed(rest)).unwrap().digest;
        assert_eq!(digest(r#""error":{}"#), digest(r#""error":{"code":"x"}"#));
        assert_ne!(digest(r#""error":{}"#), digest(r#""prediction":[]"#));
        assert_eq!(
            digest(r#""error":{},"prediction":["x"]"#),
            digest(r#""prediction":["x"]"#)
        );
    }

    #[test]
    fn digest_depends_on_content_only() {
        let digest = |json: &str| checked(json).unwrap().digest;
        let plain =
            digest(r#"[{"item_id":"a","prediction":["x","y"]},{"item_id":"b","prediction":"x"}]"#);
        let reformatted = r#" [ {"note": {"k":[1,1,null]}, "prediction":["\u0078", "y"],"item_id":"a"},{"item_id":"b","prediction":"x","p":0.1}]"#;
        assert_eq!(plain, digest(reformatted));
        for other in [
            r#"[{"item_id":"b","prediction":"x"},{"item_id":"a","prediction":["x","y"]}]"#,
            r#"[{"item_id":"a","prediction":["y","x"]},{"item_id":"b","prediction":"x"}]"#,
            r#"[{"item_id":"a","prediction":["xy"]},{"item_id":"b","prediction":"x"}]"#,
            r#"[{"item_id":"a","prediction":["x","y"]},{"item_id":"b","prediction":["x"]}]"#,
            r#"[{"item_id":"a","prediction":["x","y"]}]"#,
        ] {
            assert_ne!(plain, digest(other), "{other}");
        }
    }

    /// Returns one prediction's errors for a metric, as `path reason`.
    fn value_errors(metric: &str, prediction: &str) -> Vec<String> {
        let json = format!(r#"[{{"item_id":"a","prediction":{prediction}}}]"#);
        match check(json.as_bytes(), &rules(metric.parse().unwrap())) {
            Ok(_) => Vec::new(),
            Err(Rejected::Fields(fields)) => fields
                .into_iter()
                .map(|error| format!("{} {}", error.field, error.reason))
                .collect(),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn value_must_fit_the_metric() {
        let values = [
            "\"x\"",
            "[\"x\"]",
            "[]",
            "0.5",
            "-3",
            r#"{"x":0.25,"y":0.75}"#,
        ];
        for (metric, accepted) in [
            ("accuracy", [true, true, true, false, false, false]),
            ("map@3", [true, true, true, false, false, false]),
            ("jaccard", [true, true, true, false, false, false]),
            ("exact_match", [true, false, false, false, false, false]),
            ("f1_macro", [true, false, false, false, false, false]),
            ("kappa", [true, false, false, false, false, false]),
            ("rmse", [false, false, false, true, true, false]),
            ("brier", [false, false, false, false, false, true]),
            ("auc_ovr", [false, false, false, false, false, true]),
        ] {
            for (value, accepted) in values.iter().zip(accepted) {
                let expected = if accepted {
                    vec![]
                } else {
                    vec!["predictions[0].prediction type".to_owned()]
                };
                assert_eq!(value_errors(metric, value), expected, "{metric} {value}");
            }
        }
        for (metric, value, reason) in [
            ("mae", "1e50", None),
            ("mae", "-1.1e50", Some("range")),
            ("mae", "true", Some("type")),
            ("auc", r#"{"x":1}"#, None),
            ("auc", r#"{"x":0.5000005,"y":0.5000005}"#, None),
            ("auc", r#"{"x":0.500001,"y":0.500001}"#, Some("range")),
            ("auc", r#"{"x":0.499999,"y":0.499999}"#, Some("range")),
            ("auc", "{}", Some("range")),
            ("auc", r#"{"x":1.5,"y":-0.5}"#, Some("range")),
            ("auc", r#"{"x":0.5,"x":0.5}"#, Some("duplicate")),
            ("auc", r#"{"x":"1"}"#, Some("type")),
            ("auc", r#"{"x":null,"y":1}"#, Some("type")),
            ("auc", r#"{"\u0000":1}"#, Some("format")),
        ] {
            let expected: Vec<_> = reason
                .into_iter()
                .map(|reason| format!("predictions[0].prediction {reason}"))
                .collect();
            assert_eq!(value_errors(metric, value), expected, "{metric} {value}");
        }
        let many = format!(
            "{{{}\"7\":0}}",
            (0..20)
                .map(|at| format!("\"{at}\":0.05,"))
                .collect::<String>()
        );
        assert_eq!(
            value_errors("auc", &many),
            ["predictions[0].prediction duplicate"]
        );
    }

    #[test]
    fn digest_ignores_order_of_probabilities() {
        let digest = |prediction: &str| {
            let json = format!(r#"[{{"item_id":"a","prediction":{prediction}}}]"#);
            let checked = check(json.as_bytes(), &rules(Metric::LogLoss));
            checked.unwrap().digest
        };
        assert_eq!(
            digest(r#"{"x":0.25,"y":0.75}"#),
            digest(r#" { "y" : 75e-2 , "\u0078" : 0.25 } "#)
        );
        assert_ne!(
            digest(r#"{"x":0.25,"y":0.75}"#),
            digest(r#"{"y":0.25,"x":0.75}"#)
        );
    }

    /// Returns a suite's rules for quantiles at these levels.
    fn quantile_rules(levels: &[f64]) -> PredictionRules {
        let levels = QuantileLevels::new(levels).unwrap();
        PredictionRules::new(Metric::Pinball, Some(levels)).unwrap()
    }

    #[test]
    fn quantiles_have_exactly_the_levels_of_the_suite() {
        let rules = quantile_rules(&[0.1, 0.5, 0.9]);
        let error = |prediction: &str| {
            let good = r#"{"item_id":"a","prediction":{"0.1":-3,"0.5":1e50,"0.9":1e50}}"#;
            let json = format!(
                r#"[{good},{good2},{good3},{{"item_id":"b","prediction":{prediction}}}]"#,
                good2 = good.replace("\"a\"", "\"c\""),
                good3 = good.replace("\"a\"", "\"d\"")
            );
            match check(json.as_bytes(), &rules) {
                Ok(checked) => {
                    assert_eq!(checked.n_items, 4);
                    None
                }
                Err(Rejected::Fields(fields)) => {
                    assert_eq!(fields.len(), 1, "{fields:?}");
                    assert_eq!(fields[0].field, "predictions[3].prediction");
                    Some(format!("{} {}", fields[0].reason, fields[0].message))
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        for accepted in [
            r#"{"0.1":0,"0.5":0,"0.9":0}"#,
            r#"{"0.9":3,"0.1":-1e50,"0.5":2.5}"#,
            r#"{"0\u002e1":1,"0.5":2,"0.9":3}"#,
        ] {
            assert_eq!(error(accepted), None, "{accepted}");
        }
        let extra = |name: &str| {
            format!(
                "unknown_field {name:?} is not a level of the suite; its levels are 0.1, 0.5, 0.9"
            )
        };
        for (prediction, expected) in [
            (
                r#"{"0.1":3,"0.5":2,"0.9":4}"#,
                "range the value at 0.5 is below that at 0.1",
            ),
            (
                r#"{"0.9":2,"0.5":3,"0.1":1}"#,
                "range the value at 0.9 is below that at 0.5",
            ),
            (r#"{"0.1":3,"0.9":4}"#, "required the level 0.5 is missing"),
            ("{}", "required the level 0.1 is missing"),
            (r#"{"0.1":3,"0.5":3,"0.9":4,"0.95":5}"#, &extra("0.95")),
            (r#"{"0.10":3,"0.5":3,"0.9":4}"#, &extra("0.10")),
            (r#"{"0.1":3,"0.5":3,".9":4}"#, &extra(".9")),
            (r#"{"1e-1":3,"0.5":3,"0.9":4}"#, &extra("1e-1")),
            (
                r#"{"0.1":3,"0.5":3,"0.1":3}"#,
                "duplicate \"0.1\" is given twice",
            ),
            (
                r#"{"0.1":3,"0.5":3,"0.9":4,"0.9":4}"#,
                "duplicate \"0.9\" is given twice",
            ),
            (
                r#"{"0.1":3,"0.5":3,"0.9":1.1e50}"#,
                "range the value at 0.9 must be from -1e50 to 1e50",
            ),
            (
                r#"{"0.1":3,"0.5":"3","0.9":4}"#,
                "type the value of \"0.5\" must be a number",
            ),
            (
                "3",
                "type must be an object of level → number: the suite's metric is pinball",
            ),
            ("[\"x\"]", "type must be an object of level → number"),
            ("\"x\"", "type must be an object of level → number"),
        ] {
            let found = error(prediction).unwrap();
            assert!(found.starts_with(expected), "{prediction}: {found}");
        }
        // A number too large for a double is no JSON number here, as elsewhere.
        let json = r#"[{"item_id":"b","prediction":{"0.1":1,"0.5":2,"0.9":1e999}}]"#;
        assert!(matches!(
            check(json.as_bytes(), &rules),
            Err(Rejected::Malformed(_))
        ));
    }

    #[test]
    fn quantile_prediction_is_at_most_one_mebibyte() {
        let levels: Vec<f64> = (1..100).map(|at| f64::from(at) / 100.0).collect();
        let rules = quantile_rules(&levels);
        let prediction = |spaces: usize| {
            let pairs: Vec<String> = levels
                .iter()
                .map(|level| format!("\"{level}\":{level}"))
                .collect();
            let space = " ".repeat(spaces);
            format!(
                r#"[{{"item_id":"a","prediction":{{{space}{}}}}}]"#,
                pairs.join(",")
            )
        };
        let length = prediction(0).len() - 2;
        let most = super::super::ELEMENT_BYTES_MAX - length;
        assert!(check(prediction(most).as_bytes(), &rules).is_ok());
        let Err(Rejected::Fields(fields)) = check(prediction(most + 1).as_bytes(), &rules) else {
            panic!("accepted")
        };
        assert_eq!(
            (fields[0].field.as_str(), fields[0].reason),
            ("predictions[0]", "range")
        );
        // Each of the levels can be the missing one.
        for missing in [0, 50, 98] {
            let mut rest = levels.clone();
            let level = rest.remove(missing);
            let pairs: Vec<String> = rest.iter().map(|level| format!("\"{level}\":1")).collect();
            let json = format!(
                r#"[{{"item_id":"a","prediction":{{{}}}}}]"#,
                pairs.join(",")
            );
            let Err(Rejected::Fields(fields)) = check(json.as_bytes(), &rules) else {
                panic!("accepted")
            };
            assert_eq!(fields[0].message, format!("the level {level} is missing"));
        }
    }

    #[test]
    fn strings_without_escapes_are_not_copied() {
        let json = br#"[{"item_id":"a","prediction":["x","\u0079"]}]"#;
        let flow: ControlFlow<()> = read(
            json,
            &mut sink_fn(|prediction| {
                let prediction = prediction.unwrap();
                assert!(matches!(prediction.item_id, Cow::Borrowed("a")));
                assert!(matches!(
                    prediction.value,
                    Value::Ranking([Cow::Borrowed("x"), Cow::Owned(_)])
                ));
                ControlFlow::Continue(())
            }),
        )
        .unwrap();
        assert_eq!(flow, ControlFlow::Continue(()));
    }
}
