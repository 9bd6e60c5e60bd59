//! A prediction, and its value.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::quoted;

/// The most field errors that are collected before reading stops.
pub const FIELD_ERRORS_MAX: usize = 20;

/// A document's longest element, in bytes.
pub const ELEMENT_BYTES_MAX: usize = 1024 * 1024;

/// The message for a longer element.
pub(super) const TOO_LONG: &str = "is longer than 1 MiB";

/// The longest item id, in UTF-8 bytes.
pub(super) const ITEM_ID_BYTES_MAX: usize = 512;

/// A number's largest absolute value. It lies beyond a 32-bit float's range, and so far below a
/// 64-bit float's that no sum of fourth powers becomes infinite.
pub const NUMBER_MAX: f64 = 1e50;

/// The largest distance from 1 of a sum of probabilities: 1e-6, and a margin for the rounding of
/// the sum.
pub(crate) const SUM_TOLERANCE: f64 = 1e-6 + 1e-12;

/// One prediction. Its strings are document slices (`'a`) if they have no escapes.
#[derive(Debug)]
pub struct Prediction<'r, 'a> {
    /// The index among the predictions, from 0.
    pub index: usize,
    /// The line number, from 1, if each prediction has its own line.
    pub line: Option<usize>,
    /// The predicted item's id: not empty, at most 512 bytes, without NUL.
    pub item_id: Cow<'a, str>,
    /// The value that is predicted for the item.
    pub value: Value<'r, 'a>,
}

/// A predicted value. Its strings have no NUL.
#[derive(Debug, Clone, Copy)]
pub enum Value<'r, 'a> {
    /// A single id or label.
    Label(&'r Cow<'a, str>),
    /// Ids, best first. The list may be empty, and an id may be repeated.
    Ranking(&'r [Cow<'a, str>]),
    /// A finite number; [`PredictionRules`](super::PredictionRules) checks its range.
    Number(f64),
    /// An object of finite numbers, in document order: probabilities by label or quantiles by level.
    /// [`PredictionRules`](super::PredictionRules) checks them.
    Probabilities(&'r [(Cow<'a, str>, f64)]),
    /// No value, because the prediction failed: the object has `error` instead of `prediction`. The
    /// item counts as one without a prediction.
    Failed,
}

/// Returns a prediction's location for error messages: `line 7`, or `predictions[6]` without a
/// line.
pub fn location(index: usize, line: Option<usize>) -> String {
    line.map_or_else(
        || format!("predictions[{index}]"),
        |line| format!("line {line}"),
    )
}

/// Checks that numbers by label are probabilities. The error is a field error's `reason` and message.
pub(super) fn check_probabilities(
    probabilities: &[(Cow<'_, str>, f64)],
) -> Result<(), (&'static str, String)> {
    if probabilities.is_empty() {
        return Err(("range", "must have at least one label".into()));
    }
    if let Some((label, probability)) = probabilities
        .iter()
        .find(|(_, probability)| !(0.0..=1.0).contains(probability))
    {
        return Err((
            "range",
            format!(
                "the probability of {} is {probability}, but must be from 0 to 1",
                quoted(label)
            ),
        ));
    }
    let sum: f64 = probabilities
        .iter()
        .map(|(_, probability)| probability)
        .sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err((
            "range",
            format!("the probabilities sum to {sum}, but must sum to 1 (within 1e-6)"),
        ));
    }
    let repeated = first_duplicate(probabilities.iter().map(|(label, _)| label.as_ref()));
    repeated.map_or(Ok(()), |label| {
        Err(("duplicate", format!("{} is given twice", quoted(label))))
    })
}

/// Returns the first string that equals an earlier one.
pub(crate) fn first_duplicate<'t>(
    strings: impl ExactSizeIterator<Item = &'t str> + Clone,
) -> Option<&'t str> {
    // With few strings, comparing each with those before is faster than hashing.
    const FEW: usize = 16;

    if strings.len() <= FEW {
        return strings
            .clone()
            .enumerate()
            .find(|(at, string)| strings.clone().take(*at).any(|before| before == *string))
            .map(|(_, string)| string);
    }
    let mut seen = HashSet::new();
    strings.clone().find(|string| !seen.insert(*string))
}
