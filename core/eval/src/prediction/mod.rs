//! Predictions as they are submitted: a JSON array, read in one pass, copying only texts that have escapes; or a stream
//! of bytes, an element at a time.
//!
//! What lives here: what the api (to check) and the worker (to score) share. What may not: scoring.

mod element;
mod reader;
mod scan;
mod stream;

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use sha2::{Digest as _, Sha256};

use crate::error::FieldError;
use crate::metric::Family;
use crate::metric::Metric;

pub use reader::read;
pub use scan::{Written, line_of, written};
pub use stream::{ELEMENT_MAX, Layout, Stream};

/// At how many faults a check stops.
pub const MAX_FAULTS: usize = 20;
/// The longest item id, in bytes of UTF-8.
const MAX_ITEM_ID: usize = 512;

/// A document that is not JSON in UTF-8. The message says where, for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Why a submission is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// It is not JSON in UTF-8.
    Malformed(Malformed),
    /// What is wrong with its predictions: 1 to [`MAX_FAULTS`] field errors.
    Fields(Vec<FieldError>),
}

impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// One prediction, whose texts are slices of the document (`'a`) where they have no escapes.
#[derive(Debug)]
pub struct Prediction<'r, 'a> {
    /// Its place among the predictions, from 0.
    pub index: usize,
    /// The line that it stands on, from 1, where each has its own.
    pub line: Option<usize>,
    /// The item that it is for: not empty, at most 512 bytes, no NUL.
    pub item_id: Cow<'a, str>,
    /// What is predicted.
    pub value: Value<'r, 'a>,
}

/// How faults name a prediction: `line 7`, or `predictions[6]` where lines do not matter.
pub fn name(index: usize, line: Option<usize>) -> String {
    line.map_or_else(
        || format!("predictions[{index}]"),
        |line| format!("line {line}"),
    )
}

/// What is predicted. No text in it has a NUL.
#[derive(Debug, Clone, Copy)]
pub enum Value<'r, 'a> {
    /// One id.
    Label(&'r Cow<'a, str>),
    /// Ids, best first; there may be none, and an id may be repeated.
    Ranking(&'r [Cow<'a, str>]),
    /// A finite number.
    Number(f64),
    /// Labels with finite numbers, as they are written. Whether these are probabilities is for [`fits`] to see.
    Probabilities(&'r [(Cow<'a, str>, f64)]),
}

/// The largest number, and with a minus the smallest: beyond what a float of 32 bits can be, and far enough from what one
/// of 64 bits can be that no sum of fourth powers becomes infinite.
pub const NUMBER_MAX: f64 = 1e50;

/// How far from 1 the sum of probabilities may be. A little more, for the sum is rounded.
const SUM_SLACK: f64 = 1e-6 + 1e-12;

/// Why a value is none for this metric: the reason, for machines and for humans.
pub fn check_value(metric: Metric, value: Value<'_, '_>) -> Result<(), (&'static str, String)> {
    let wanted = match (metric.family(), value) {
        (Family::Rankings, Value::Label(_) | Value::Ranking(_))
        | (Family::Labels, Value::Label(_)) => return Ok(()),
        (Family::Numbers, Value::Number(number)) => {
            let fault = || {
                (
                    "range",
                    format!("must be from -{NUMBER_MAX:e} to {NUMBER_MAX:e}"),
                )
            };
            return if number.abs() <= NUMBER_MAX {
                Ok(())
            } else {
                Err(fault())
            };
        }
        (Family::Probabilities, Value::Probabilities(probabilities)) => {
            return are_probabilities(probabilities);
        }
        (Family::Rankings, _) => "a string or an array of strings",
        (Family::Labels, _) => "a string",
        (Family::Numbers, _) => "a number",
        (Family::Probabilities, _) => "an object of label → probability",
    };
    Err((
        "type",
        format!("must be {wanted}: the suite's metric is {metric}"),
    ))
}

fn are_probabilities(probabilities: &[(Cow<'_, str>, f64)]) -> Result<(), (&'static str, String)> {
    if let Some((label, probability)) = probabilities
        .iter()
        .find(|(_, probability)| !(0.0..=1.0).contains(probability))
    {
        return Err((
            "range",
            format!("the probability of {label:?} is {probability}, but must be from 0 to 1"),
        ));
    }
    let sum: f64 = probabilities
        .iter()
        .map(|(_, probability)| probability)
        .sum();
    if (sum - 1.0).abs() > SUM_SLACK {
        return Err((
            "range",
            format!("the probabilities sum to {sum}, but must sum to 1 (within 1e-6)"),
        ));
    }
    let again = first_duplicate(probabilities.iter().map(|(label, _)| label.as_ref()));
    again.map_or(Ok(()), |label| {
        Err(("duplicate", format!("{label:?} is given twice")))
    })
}

/// The first text that was there before.
pub(crate) fn first_duplicate<'t>(
    texts: impl ExactSizeIterator<Item = &'t str> + Clone,
) -> Option<&'t str> {
    // Of few, looking through those before is faster than hashing them.
    const FEW: usize = 16;

    if texts.len() <= FEW {
        return texts
            .clone()
            .enumerate()
            .find(|(at, text)| texts.clone().take(*at).any(|before| before == *text))
            .map(|(_, text)| text);
    }
    let mut seen = HashSet::new();
    texts.clone().find(|text| !seen.insert(*text))
}

/// What a submission without a fault holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// How many predictions.
    pub n_items: i64,
    /// SHA-256 of the sequence of item ids and values: white space, spelling and ignored fields of the JSON do not
    /// matter, the order and the content of the predictions do.
    pub digest: [u8; 32],
}

/// Checks a whole submission for a suite with this metric.
///
/// Faults of the predictions, at most the first 20, are told together with paths such as `predictions[3].item_id`.
pub fn check(json: &[u8], metric: &Metric) -> Result<Checked, Rejected> {
    let mut faults = Vec::new();
    // A prediction with its item id is mostly longer.
    let mut first_index = HashMap::with_capacity(json.len() / 128);
    let mut digest = SubmissionDigest::default();
    // Stopping early is no outcome of its own: the faults tell.
    let _: ControlFlow<()> = read(json, |next| {
        match next {
            Err(fault) => faults.push(fault),
            Ok(prediction) => {
                digest.add(&prediction);
                if let Err((reason, told)) = check_value(*metric, prediction.value) {
                    faults.push(FieldError::new(
                        format!("predictions[{}].prediction", prediction.index),
                        reason,
                        told,
                    ));
                }
                match first_index.entry(prediction.item_id) {
                    Entry::Vacant(entry) => _ = entry.insert(prediction.index),
                    Entry::Occupied(entry) => faults.push(FieldError::new(
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
        if faults.len() < MAX_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    // The last prediction may have had two.
    faults.truncate(MAX_FAULTS);
    if faults.is_empty() {
        Ok(Checked {
            n_items: first_index.len() as i64,
            digest: digest.finish(),
        })
    } else {
        Err(Rejected::Fields(faults))
    }
}

/// The digest of a sequence of predictions. Every text and every ranking is written behind its length, so that no two
/// sequences are written alike.
#[derive(Default)]
pub struct SubmissionDigest {
    hash: Sha256,
    written: Vec<u8>,
}

impl SubmissionDigest {
    /// The digest of what was added.
    pub fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }

    /// Adds the next prediction.
    pub fn add(&mut self, prediction: &Prediction<'_, '_>) {
        self.written.clear();
        self.text(&prediction.item_id);
        match prediction.value {
            Value::Label(label) => {
                self.written.push(0);
                self.text(label);
            }
            Value::Ranking(ids) => {
                self.written.push(1);
                self.written.extend((ids.len() as u64).to_le_bytes());
                ids.iter().for_each(|id| self.text(id));
            }
            Value::Number(number) => {
                self.written.push(2);
                self.written.extend(number.to_le_bytes());
            }
            Value::Probabilities(probabilities) => {
                self.written.push(3);
                self.written
                    .extend((probabilities.len() as u64).to_le_bytes());
                // An object has no order, and over gRPC none is kept.
                let mut sorted: Vec<_> = probabilities.iter().collect();
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (label, probability) in sorted {
                    self.text(label);
                    self.written.extend(probability.to_le_bytes());
                }
            }
        }
        self.hash.update(&self.written);
    }

    fn text(&mut self, text: &str) {
        self.written.extend((text.len() as u64).to_le_bytes());
        self.written.extend(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> Result<Checked, Rejected> {
        check(json.as_bytes(), &Metric::Accuracy)
    }

    /// The faults as `path reason`.
    fn faults(json: &str) -> Vec<String> {
        match checked(json).unwrap_err() {
            Rejected::Fields(fields) => fields
                .into_iter()
                .map(|fault| format!("{} {}", fault.field, fault.reason))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_fault_is_told_by_its_path() {
        let good = r#"{"item_id":"a","prediction":[]}"#;
        for (element, fault) in [
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
                faults(&format!("[{good},{element}]")),
                [format!("predictions[1]{fault}")],
                "{element}"
            );
        }
    }

    #[test]
    fn an_item_id_has_at_most_512_bytes() {
        let submission = |id: String| format!(r#"[{{"item_id":"{id}","prediction":"x"}}]"#);
        assert_eq!(checked(&submission("ä".repeat(256))).unwrap().n_items, 1);
        assert_eq!(
            faults(&submission("a".repeat(513))),
            ["predictions[0].item_id format"]
        );
    }

    #[test]
    fn a_document_that_is_no_list_of_predictions_is_refused() {
        assert_eq!(faults("[]"), ["predictions required"]);
        for json in ["{\"item_id\":\"a\"}", "null", "\"a\"", "3", "false"] {
            assert_eq!(faults(json), ["predictions type"], "{json}");
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
            check(b"[{\"item_id\":\"\xff\"}]", &Metric::Accuracy),
            Err(Rejected::Malformed(_))
        ));
    }

    #[test]
    fn faults_are_collected_up_to_twenty() {
        assert_eq!(faults(r#"[{"item_id":1,"prediction":[1]},2]"#).len(), 3);
        let all = faults(&format!("[{}1]", "1,".repeat(99)));
        assert_eq!((all.len(), all[19].as_str()), (20, "predictions[19] type"));
        assert_eq!(
            faults(&format!(
                r#"[{{"item_id":"a","prediction":[{}1]}}]"#,
                "1,".repeat(99)
            ))
            .len(),
            20
        );
    }

    #[test]
    fn a_repeated_item_names_the_earlier_one() {
        let error = checked(
            r#"[{"item_id":"a","prediction":"x"},{"item_id":"b","prediction":"x"},{"item_id":"a","prediction":"y"}]"#,
        );
        let fault = FieldError::new(
            "predictions[2].item_id",
            "duplicate",
            "this item is already predicted by predictions[0]",
        );
        assert_eq!(error, Err(Rejected::Fields(vec![fault])));
    }

    #[test]
    fn the_digest_is_of_the_content_alone() {
        let digest = |json: &str| checked(json).unwrap().digest;
        let plain =
            digest(r#"[{"item_id":"a","prediction":["x","y"]},{"item_id":"b","prediction":"x"}]"#);
        let spelt = r#" [ {"note": {"k":[1,1,null]}, "prediction":["\u0078", "y"],"item_id":"a"},{"item_id":"b","prediction":"x","p":0.1}]"#;
        assert_eq!(plain, digest(spelt));
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

    /// The faults of one prediction for a metric, as `path reason`.
    fn misfits(metric: &str, prediction: &str) -> Vec<String> {
        let json = format!(r#"[{{"item_id":"a","prediction":{prediction}}}]"#);
        match check(json.as_bytes(), &metric.parse().unwrap()) {
            Ok(_) => Vec::new(),
            Err(Rejected::Fields(fields)) => fields
                .into_iter()
                .map(|fault| format!("{} {}", fault.field, fault.reason))
                .collect(),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_is_what_the_metric_scores() {
        let values = [
            "\"x\"",
            "[\"x\"]",
            "[]",
            "0.5",
            "-3",
            r#"{"x":0.25,"y":0.75}"#,
        ];
        for (metric, taken) in [
            ("accuracy", [true, true, true, false, false, false]),
            ("map@3", [true, true, true, false, false, false]),
            ("exact_match", [true, false, false, false, false, false]),
            ("f1_macro", [true, false, false, false, false, false]),
            ("rmse", [false, false, false, true, true, false]),
            ("brier", [false, false, false, false, false, true]),
        ] {
            for (value, taken) in values.iter().zip(taken) {
                let expected = if taken {
                    vec![]
                } else {
                    vec!["predictions[0].prediction type".to_owned()]
                };
                assert_eq!(misfits(metric, value), expected, "{metric} {value}");
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
            assert_eq!(misfits(metric, value), expected, "{metric} {value}");
        }
        let many = format!(
            "{{{}\"7\":0}}",
            (0..20)
                .map(|at| format!("\"{at}\":0.05,"))
                .collect::<String>()
        );
        assert_eq!(
            misfits("auc", &many),
            ["predictions[0].prediction duplicate"]
        );
    }

    #[test]
    fn probabilities_have_no_order_in_the_digest() {
        let digest = |prediction: &str| {
            let json = format!(r#"[{{"item_id":"a","prediction":{prediction}}}]"#);
            check(json.as_bytes(), &Metric::LogLoss).unwrap().digest
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

    #[test]
    fn texts_without_escapes_are_not_copied() {
        let json = br#"[{"item_id":"a","prediction":["x","\u0079"]}]"#;
        let flow: ControlFlow<()> = read(json, |next| {
            let prediction = next.unwrap();
            assert!(matches!(prediction.item_id, Cow::Borrowed("a")));
            assert!(matches!(
                prediction.value,
                Value::Ranking([Cow::Borrowed("x"), Cow::Owned(_)])
            ));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(flow, ControlFlow::Continue(()));
    }
}
