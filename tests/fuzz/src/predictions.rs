//! Submitted predictions, inline and uploaded.

use std::collections::HashSet;

use assay_core::{Code, Details};
use assay_eval::json::DEPTH_MAX;
use assay_eval::prediction::{FIELD_ERRORS_MAX, Layout, PredictionRules, check};
use assay_eval::{FieldError, Metric};

use super::json::{Json, nesting};
use super::reader_output::{Collector, Output, Predicted, inline, streamed};
use super::{Seeded, assert_safe_message};

const ALL: usize = usize::MAX;

/// A JSON array has the same result when read at once, as a stream in any pieces, and by a plain
/// parser.
pub fn predictions(data: &[u8]) {
    let mut seeded = Seeded::of(data);
    let (outputs, ended) = inline(data, ALL);
    let stream = streamed(Layout::Array, [data], ALL);
    assert_eq!(stream, streamed(Layout::Array, data.chunks(1), ALL));
    assert_eq!(stream, streamed(Layout::Array, seeded.pieces(data), ALL));
    for output in outputs.iter().chain(&stream) {
        assert_valid(output, "predictions");
    }
    assert_stops(&outputs, |limit| inline(data, limit).0, &mut seeded);
    assert_stops(
        &stream,
        |limit| streamed(Layout::Array, [data], limit),
        &mut seeded,
    );
    match &ended {
        Err(error) => {
            assert_location(error, data);
            assert!(
                stream.last().is_some_and(Output::is_error),
                "the stream accepts what the inline reader rejects"
            );
        }
        // The depth of an inline submission is limited by its body's reader, and an element's
        // by the stream.
        Ok(_) if nesting(data) >= DEPTH_MAX => {}
        Ok(_) => {
            assert_eq!(outputs, stream);
            if let Some(plain) = Json::read(data) {
                assert_matches_json(&plain, &outputs);
            }
        }
    }
    assert_check(data, &outputs, ended.is_ok());
}

/// One prediction per line: each line has the same result as an array's only element.
pub fn lines(data: &[u8]) {
    let mut seeded = Seeded::of(data);
    let stream = streamed(Layout::Lines, [data], ALL);
    assert_eq!(stream, streamed(Layout::Lines, data.chunks(1), ALL));
    assert_eq!(stream, streamed(Layout::Lines, seeded.pieces(data), ALL));
    assert_stops(
        &stream,
        |limit| streamed(Layout::Lines, [data], limit),
        &mut seeded,
    );
    let mut expected = Vec::new();
    for (at, line) in data.split(|byte| *byte == b'\n').enumerate() {
        if !line.iter().all(|byte| b" \t\r".contains(byte)) {
            expected.extend(line_alone(line, &format!("line {}", at + 1)));
        }
    }
    if expected.is_empty() {
        expected.push((String::from("predictions"), "required", None));
    }
    let summary: Vec<_> = stream.iter().map(summary).collect();
    assert_eq!(summary, expected);
    for output in &stream {
        assert_valid(
            output,
            if summary[0].0 == "predictions" {
                "predictions"
            } else {
                "line "
            },
        );
    }
}

type Summary = (String, &'static str, Option<(String, Predicted)>);

fn summary(output: &Output) -> Summary {
    match output {
        Output::Error(error) => (error.field.clone(), error.reason, None),
        Output::Prediction {
            named,
            item_id,
            predicted,
        } => (
            named.clone(),
            "",
            Some((item_id.clone(), predicted.clone())),
        ),
    }
}

/// Returns a line's expected result: an array's with this only element, under the line's
/// name.
fn line_alone(line: &[u8], named: &str) -> Vec<Summary> {
    let broken = vec![(named.to_owned(), "format", None)];
    let one_value = std::str::from_utf8(line)
        .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    if !one_value {
        return broken;
    }
    let (outputs, ended) = inline(&[b"[", line, b"]"].concat(), ALL);
    if ended.is_err() || nesting(line) > DEPTH_MAX - 2 {
        return broken;
    }
    outputs
        .iter()
        .map(|output| {
            let (place, reason, predicted) = summary(output);
            (
                place.replacen("predictions[0]", named, 1),
                reason,
                predicted,
            )
        })
        .collect()
}

/// Asserts that a field error has a location and a safe message, and that a prediction meets the
/// platform's guarantees.
fn assert_valid(output: &Output, place: &str) {
    match output {
        Output::Error(error) => {
            assert!(error.field.starts_with(place), "{error:?}");
            assert!(
                ["required", "type", "format", "duplicate", "range"].contains(&error.reason),
                "{error:?}"
            );
            assert_safe_message(&error.message);
        }
        Output::Prediction {
            item_id, predicted, ..
        } => {
            assert!((1..=512).contains(&item_id.len()) && !item_id.contains('\0'));
            assert!(
                predicted.is_finite() && !predicted.texts().iter().any(|text| text.contains('\0'))
            );
        }
    }
}

/// Asserts that a consumer that stops after some outputs gets exactly these.
fn assert_stops(all: &[Output], read: impl Fn(usize) -> Vec<Output>, seeded: &mut Seeded) {
    if !all.is_empty() {
        let limit = 1 + seeded.below(all.len());
        assert_eq!(read(limit), all[..limit]);
    }
}

/// Asserts that the error of invalid JSON has a position inside the document.
fn assert_location(error: &assay_core::Error, data: &[u8]) {
    assert_eq!(error.code, Code::InvalidRequest);
    assert_safe_message(&error.message);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let number = |before: &str| -> usize {
        let behind = error.message.split_once(before).unwrap().1;
        behind
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let line = number("(line ");
    let column = number("column ");
    let lines: Vec<&str> = text.split('\n').collect();
    assert!((1..=lines.len()).contains(&line), "{error}");
    assert!(column <= lines[line - 1].len() + 1, "{error}");
}

/// Asserts that the reader returns the predictions that a plain parser finds.
fn assert_matches_json(plain: &Json, outputs: &[Output]) {
    let Json::Array(elements) = plain else {
        assert!(
            matches!(outputs, [Output::Error(FieldError { field, reason: "type", .. })] if field == "predictions")
        );
        return;
    };
    if elements.is_empty() {
        assert!(
            matches!(outputs, [Output::Error(FieldError { field, reason: "required", .. })] if field == "predictions")
        );
        return;
    }
    let mut rest = outputs;
    for (at, element) in elements.iter().enumerate() {
        let named = format!("predictions[{at}]");
        match predicted(element) {
            Some((item_id, predicted)) => {
                let (first, behind) = rest.split_first().unwrap();
                assert_eq!(
                    *first,
                    Output::Prediction {
                        named,
                        item_id,
                        predicted
                    }
                );
                rest = behind;
            }
            None => {
                let is_own_error = |output: &&Output| matches!(output, Output::Error(error) if error.field.strip_prefix(named.as_str()).is_some_and(|place| place.is_empty() || place.starts_with('.')));
                let errors = rest.iter().take_while(is_own_error).count();
                assert!(
                    (1..=FIELD_ERRORS_MAX).contains(&errors),
                    "{errors} errors of {element:?}"
                );
                rest = &rest[errors..];
            }
        }
    }
    assert_eq!(rest, []);
}

/// Returns an element's prediction, or `None` if the element is invalid.
fn predicted(element: &Json) -> Option<(String, Predicted)> {
    let ids = element.at("item_id");
    let values = element.at("prediction");
    let ([Json::Text(item_id)], false) = (ids.as_slice(), element.repeats_a_key()) else {
        return None;
    };
    let plain = |text: &str| !text.contains('\0');
    let value = match (values.as_slice(), element) {
        ([value], _) => Some(value),
        // An error is accepted instead of a prediction only if there is nothing else.
        ([], Json::Object(fields))
            if fields.len() == 2 && matches!(element.at("error")[..], [Json::Object(_)]) =>
        {
            None
        }
        _ => return None,
    };
    let Some(value) = value else {
        return ((1..=512).contains(&item_id.len()) && plain(item_id))
            .then(|| (item_id.clone(), Predicted::Failed));
    };
    let predicted = match value {
        Json::Text(label) => plain(label).then(|| Predicted::Label(label.clone()))?,
        Json::Array(ids) => Predicted::Ranking(
            ids.iter()
                .map(|id| match id {
                    Json::Text(id) if plain(id) => Some(id.clone()),
                    _ => None,
                })
                .collect::<Option<_>>()?,
        ),
        Json::Number(number) => Predicted::Number(number.to_bits()),
        Json::Object(weights) => Predicted::Weights(
            weights
                .iter()
                .map(|(label, weight)| match weight {
                    Json::Number(weight) if plain(label) => Some((label.clone(), weight.to_bits())),
                    _ => None,
                })
                .collect::<Option<_>>()?,
        ),
        Json::Other => return None,
    };
    ((1..=512).contains(&item_id.len()) && plain(item_id)).then(|| (item_id.clone(), predicted))
}

/// Asserts that checking a submission agrees with the reader's outputs.
fn assert_check(data: &[u8], outputs: &[Output], is_json: bool) {
    for metric in [
        Metric::Accuracy,
        Metric::ExactMatch,
        Metric::Mae,
        Metric::Ece,
        Metric::Pinball,
    ] {
        assert_check_for(metric, data, outputs, is_json);
    }
}

/// The levels of the suite with quantiles.
const LEVELS: [f64; 2] = [0.25, 0.5];

/// Returns `true` if the metric accepts the value.
fn fits_metric(metric: Metric, predicted: &Predicted) -> bool {
    match (metric, predicted) {
        (Metric::Accuracy, Predicted::Label(_) | Predicted::Ranking(_))
        | (Metric::ExactMatch, Predicted::Label(_))
        | (_, Predicted::Failed) => true,
        (Metric::Mae, Predicted::Number(bits)) => f64::from_bits(*bits).abs() <= 1e50,
        (Metric::Ece, Predicted::Weights(weights)) => {
            let labels: HashSet<_> = weights.iter().map(|(label, _)| label).collect();
            let numbers: Vec<f64> = weights
                .iter()
                .map(|(_, bits)| f64::from_bits(*bits))
                .collect();
            let sum: f64 = numbers.iter().sum();
            labels.len() == weights.len()
                && (sum - 1.0).abs() <= 1.000_001e-6
                && numbers.iter().all(|number| (0.0..=1.0).contains(number))
        }
        (Metric::Pinball, Predicted::Weights(weights)) => {
            let mut sorted: Vec<_> = weights.iter().collect();
            sorted.sort();
            let names = sorted.iter().map(|(level, _)| level.as_str());
            let numbers = sorted.iter().map(|(_, bits)| f64::from_bits(*bits));
            names.eq(["0.25", "0.5"])
                && numbers.clone().is_sorted()
                && numbers.clone().all(|number| number.abs() <= 1e50)
        }
        _ => false,
    }
}

fn assert_check_for(metric: Metric, data: &[u8], outputs: &[Output], is_json: bool) {
    let mut seen = HashSet::new();
    let mut errors = 0;
    for output in outputs {
        errors += match output {
            Output::Error(_) => 1,
            Output::Prediction {
                predicted: Predicted::Failed,
                ..
            } => 0,
            Output::Prediction {
                item_id, predicted, ..
            } => usize::from(!fits_metric(metric, predicted)) + usize::from(!seen.insert(item_id)),
        };
        if errors >= FIELD_ERRORS_MAX {
            errors = FIELD_ERRORS_MAX;
            break;
        }
    }
    let quantiles = if metric == Metric::Pinball {
        &LEVELS[..]
    } else {
        &[]
    };
    let rules = PredictionRules::published(&metric.to_string(), quantiles).unwrap();
    let checked = check(data, &rules).map_err(assay_core::Error::from);
    match checked {
        Err(error) if error.code == Code::InvalidRequest => {
            assert!(!is_json && errors < FIELD_ERRORS_MAX);
        }
        Err(error) => {
            let Some(Details::Fields { fields }) = &error.details else {
                panic!("{error}")
            };
            assert_eq!((error.code, fields.len()), (Code::ValidationFailed, errors));
            assert!(is_json || errors == FIELD_ERRORS_MAX);
        }
        Ok(checked) => {
            assert!(is_json && errors == 0);
            assert_eq!(checked.n_items, outputs.len() as i64);
            let mut collector = Collector::with_limit(ALL);
            assert!(
                assay_eval::prediction::read(data, &mut collector)
                    .unwrap()
                    .is_continue()
            );
            assert_eq!(checked.digest, collector.digest.finish());
        }
    }
}
