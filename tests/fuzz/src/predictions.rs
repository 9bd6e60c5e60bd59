//! Predictions as they are submitted, inline and uploaded.

use std::collections::HashSet;

use assay_core::{Code, Details};
use assay_eval::json::DEPTH_MAX;
use assay_eval::prediction::{Layout, MAX_FAULTS, check};
use assay_eval::{FieldError, Metric};

use super::json::{Json, nesting};
use super::told::{Heard, Predicted, Told, inline, streamed};
use super::{Seeded, fit_to_be_told};

const ALL: usize = usize::MAX;

/// A JSON array: read whole, as a stream in any pieces, and by a plain parser, it is the same.
pub fn predictions(data: &[u8]) {
    let mut seeded = Seeded::of(data);
    let (told, ended) = inline(data, ALL);
    let stream = streamed(Layout::Array, [data], ALL);
    assert_eq!(stream, streamed(Layout::Array, data.chunks(1), ALL));
    assert_eq!(stream, streamed(Layout::Array, seeded.pieces(data), ALL));
    for told in told.iter().chain(&stream) {
        sane(told, "predictions");
    }
    stops(&told, |enough| inline(data, enough).0, &mut seeded);
    stops(
        &stream,
        |enough| streamed(Layout::Array, [data], enough),
        &mut seeded,
    );
    match &ended {
        Err(error) => {
            broken(error, data);
            assert!(
                stream.last().is_some_and(Told::is_fault),
                "the stream takes what inline is refused"
            );
        }
        // How deep a submission may be is for the reader of its body to say, and of an element in a stream for the stream.
        Ok(_) if nesting(data) >= DEPTH_MAX => {}
        Ok(_) => {
            assert_eq!(told, stream);
            if let Some(plain) = Json::read(data) {
                as_expected(&plain, &told);
            }
        }
    }
    checked(data, &told, ended.is_ok());
}

/// One prediction a line: each line says what it says as the only element of an array.
pub fn lines(data: &[u8]) {
    let mut seeded = Seeded::of(data);
    let stream = streamed(Layout::Lines, [data], ALL);
    assert_eq!(stream, streamed(Layout::Lines, data.chunks(1), ALL));
    assert_eq!(stream, streamed(Layout::Lines, seeded.pieces(data), ALL));
    stops(
        &stream,
        |enough| streamed(Layout::Lines, [data], enough),
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
    let said: Vec<_> = stream.iter().map(said).collect();
    assert_eq!(said, expected);
    for told in &stream {
        sane(
            told,
            if said[0].0 == "predictions" {
                "predictions"
            } else {
                "line "
            },
        );
    }
}

type Said = (String, &'static str, Option<(String, Predicted)>);

fn said(told: &Told) -> Said {
    match told {
        Told::Fault(fault) => (fault.field.clone(), fault.reason, None),
        Told::Prediction {
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

/// What a line is expected to say: what it says as an array's only element, under its own name.
fn line_alone(line: &[u8], named: &str) -> Vec<Said> {
    let broken = vec![(named.to_owned(), "format", None)];
    let one_value = std::str::from_utf8(line)
        .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    if !one_value {
        return broken;
    }
    let (told, ended) = inline(&[b"[", line, b"]"].concat(), ALL);
    if ended.is_err() || nesting(line) > DEPTH_MAX - 2 {
        return broken;
    }
    told.iter()
        .map(|told| {
            let (place, reason, predicted) = said(told);
            (
                place.replacen("predictions[0]", named, 1),
                reason,
                predicted,
            )
        })
        .collect()
}

/// A fault names its place and says something fit to be told; a prediction is what the platform promises it to be.
fn sane(told: &Told, place: &str) {
    match told {
        Told::Fault(fault) => {
            assert!(fault.field.starts_with(place), "{fault:?}");
            assert!(
                ["required", "type", "format", "duplicate", "range"].contains(&fault.reason),
                "{fault:?}"
            );
            fit_to_be_told(&fault.message);
        }
        Told::Prediction {
            item_id, predicted, ..
        } => {
            assert!((1..=512).contains(&item_id.len()) && !item_id.contains('\0'));
            assert!(
                predicted.is_finite() && !predicted.texts().iter().any(|text| text.contains('\0'))
            );
        }
    }
}

/// Whoever has enough hears no more, and what was heard before is the same.
fn stops(all: &[Told], heard: impl Fn(usize) -> Vec<Told>, seeded: &mut Seeded) {
    if !all.is_empty() {
        let enough = 1 + seeded.below(all.len());
        assert_eq!(heard(enough), all[..enough]);
    }
}

/// A document that is no JSON is told with a place that is in it.
fn broken(error: &assay_core::Error, data: &[u8]) {
    assert_eq!(error.code, Code::InvalidRequest);
    fit_to_be_told(&error.message);
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
    let (line, column) = (number("(line "), number("column "));
    let lines: Vec<&str> = text.split('\n').collect();
    assert!((1..=lines.len()).contains(&line), "{error}");
    assert!(column <= lines[line - 1].len() + 1, "{error}");
}

/// What the reader hands on is what a plain parser finds.
fn as_expected(plain: &Json, told: &[Told]) {
    let Json::Array(elements) = plain else {
        assert!(
            matches!(told, [Told::Fault(FieldError { field, reason: "type", .. })] if field == "predictions")
        );
        return;
    };
    if elements.is_empty() {
        assert!(
            matches!(told, [Told::Fault(FieldError { field, reason: "required", .. })] if field == "predictions")
        );
        return;
    }
    let mut rest = told;
    for (at, element) in elements.iter().enumerate() {
        let named = format!("predictions[{at}]");
        match predicted(element) {
            Some((item_id, predicted)) => {
                let (first, behind) = rest.split_first().unwrap();
                assert_eq!(
                    *first,
                    Told::Prediction {
                        named,
                        item_id,
                        predicted
                    }
                );
                rest = behind;
            }
            None => {
                let of_it = |told: &&Told| matches!(told, Told::Fault(fault) if fault.field.strip_prefix(named.as_str()).is_some_and(|place| place.is_empty() || place.starts_with('.')));
                let faults = rest.iter().take_while(of_it).count();
                assert!(
                    (1..=MAX_FAULTS).contains(&faults),
                    "{faults} faults of {element:?}"
                );
                rest = &rest[faults..];
            }
        }
    }
    assert_eq!(rest, []);
}

/// The prediction that an element is, if nothing is wrong with it.
fn predicted(element: &Json) -> Option<(String, Predicted)> {
    let (ids, values) = (element.at("item_id"), element.at("prediction"));
    let ([Json::Text(item_id)], [value], false) =
        (ids.as_slice(), values.as_slice(), element.repeats_a_key())
    else {
        return None;
    };
    let plain = |text: &str| !text.contains('\0');
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

/// The check of a submission says what follows from what was handed on.
fn checked(data: &[u8], told: &[Told], is_json: bool) {
    for metric in [
        Metric::Accuracy,
        Metric::ExactMatch,
        Metric::Mae,
        Metric::Ece,
    ] {
        checked_for(metric, data, told, is_json);
    }
}

/// Whether a metric's predictions are such values.
fn fitting(metric: Metric, predicted: &Predicted) -> bool {
    match (metric, predicted) {
        (Metric::Accuracy, Predicted::Label(_) | Predicted::Ranking(_))
        | (Metric::ExactMatch, Predicted::Label(_)) => true,
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
        _ => false,
    }
}

fn checked_for(metric: Metric, data: &[u8], told: &[Told], is_json: bool) {
    let (mut seen, mut faults) = (HashSet::new(), 0);
    for told in told {
        faults += match told {
            Told::Fault(_) => 1,
            Told::Prediction {
                item_id, predicted, ..
            } => usize::from(!fitting(metric, predicted)) + usize::from(!seen.insert(item_id)),
        };
        if faults >= MAX_FAULTS {
            faults = MAX_FAULTS;
            break;
        }
    }
    let checked = check(data, &metric).map_err(assay_core::Error::from);
    match checked {
        Err(error) if error.code == Code::InvalidRequest => {
            assert!(!is_json && faults < MAX_FAULTS);
        }
        Err(error) => {
            let Some(Details::Fields { fields }) = &error.details else {
                panic!("{error}")
            };
            assert_eq!((error.code, fields.len()), (Code::ValidationFailed, faults));
            assert!(is_json || faults == MAX_FAULTS);
        }
        Ok(checked) => {
            assert!(is_json && faults == 0);
            assert_eq!(checked.n_items, told.len() as i64);
            let mut heard = Heard::until(ALL);
            assert!(
                assay_eval::prediction::read(data, |next| heard.hear(next))
                    .unwrap()
                    .is_continue()
            );
            assert_eq!(checked.digest, heard.digest.finish());
        }
    }
}
