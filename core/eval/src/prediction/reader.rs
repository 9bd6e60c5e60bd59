//! A whole document's reader: one pass, one prediction or error at a time.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::ops::ControlFlow;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::element::{Element, Form, has_nul};
use super::scan;
use super::sink::PredictionSink;
use super::value::{ELEMENT_BYTES_MAX, TOO_LONG};
use crate::error::{FieldError, quoted};
use crate::json::skip_value;

/// A document that is not JSON in UTF-8. The message is for the caller, and names the line and
/// column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Reads a JSON array with predictions, and passes each one to the sink, or its errors: an element
/// can have several, at most [`FIELD_ERRORS_MAX`](super::FIELD_ERRORS_MAX). Stops when the sink
/// breaks, and returns its reason. Repeated items are the sink's to detect.
///
/// Fails with [`Malformed`] if the document is not JSON in UTF-8. The sink has then received the
/// predictions before the syntax error.
pub fn read<'a, B>(
    json: &'a [u8],
    sink: &mut impl PredictionSink<'a, Stop = B>,
) -> Result<ControlFlow<B>, Malformed> {
    let text =
        std::str::from_utf8(json).map_err(|_| Malformed::new("The predictions are not UTF-8."))?;
    let mut element = Element::default();
    if let Some(flow) = read_fast_path(text, &mut element, sink) {
        return Ok(flow);
    }
    // Start over with the slow path, which skips the elements that were emitted.
    let mut parser = serde_json::Deserializer::from_str(text);
    let emitted = element.index;
    element = Element::default();
    let mut stop = None;
    let too_long = too_long_elements(text);
    let document = Document {
        sink,
        too_long: &too_long,
        element: &mut element,
        stop: &mut stop,
        emitted,
    };
    let parsed = Seed(document)
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    match (stop, parsed) {
        (Some(stop), _) => Ok(ControlFlow::Break(stop)),
        (None, Ok(())) => Ok(ControlFlow::Continue(())),
        (None, Err(error)) => {
            let line = error.line();
            let column = error.column();
            let message = format!(
                "The predictions are not valid JSON (line {line}, column {column}, about predictions[{}]).",
                element.index
            );
            Err(Malformed::new(message))
        }
    }
}

/// Reads an array with the fast path. `None` if it cannot read an element, whose index is
/// `element.index`, or the array's end.
fn read_fast_path<'a, B>(
    text: &'a str,
    element: &mut Element<'a>,
    sink: &mut impl PredictionSink<'a, Stop = B>,
) -> Option<ControlFlow<B>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let bytes = text.as_bytes();
    let mut at = bytes
        .iter()
        .position(|byte| !is_space(byte))
        .filter(|at| bytes[*at] == b'[')?;
    while bytes[at] != b']' {
        let start = at + 1;
        at = scan::element(text, start, false, element)?;
        if at - start > ELEMENT_BYTES_MAX {
            element.add_error("", "range", TOO_LONG);
        }
        if let ControlFlow::Break(stop) = element.emit(sink) {
            return Some(ControlFlow::Break(stop));
        }
        element.reset();
    }
    bytes[at + 1..]
        .iter()
        .all(is_space)
        .then_some(ControlFlow::Continue(()))
}

/// Returns the indices of elements in a well-formed array that are longer than [`ELEMENT_BYTES_MAX`].
fn too_long_elements(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    if text.len() <= ELEMENT_BYTES_MAX {
        return found;
    }
    let between = |at: usize| {
        let separators = text.as_bytes()[at..]
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b','));
        at + separators.count()
    };
    let mut at = between(0);
    if text[at..].starts_with('[') {
        at = between(at + 1);
    }
    for index in 0.. {
        let Some(skipped) = skip_value(text, at).filter(|skipped| skipped.end > at) else {
            break;
        };
        if skipped.end - at > ELEMENT_BYTES_MAX {
            found.push(index);
        }
        at = between(skipped.end);
    }
    found
}

/// Reads the one prediction in `json` into a new element. Fails if `json` is not JSON.
pub(super) fn read_one<'a>(json: &'a str, element: &mut Element<'a>) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_str(json);
    Seed(ElementVisitor(element))
        .deserialize(&mut parser)
        .and_then(|()| parser.end())
}

/// Reads a prediction's value in `json` into a new element. Fails if `json` is not JSON.
pub(super) fn read_value<'a>(json: &'a str, element: &mut Element<'a>) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_str(json);
    Seed(PredictionVisitor(element))
        .deserialize(&mut parser)
        .and_then(|()| parser.end())
}

/// A visitor for one value in the document. A value with the wrong type is skipped and reported by
/// its path instead of ending the parse.
trait ValueVisitor<'a>: Sized {
    type Output;

    fn string(self, string: Cow<'a, str>) -> Self::Output;

    fn number(self, _: f64) -> Self::Output {
        self.other()
    }

    /// Visits a value with the wrong type, after it was skipped.
    fn other(self) -> Self::Output;

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Output, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other())
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Output, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.other())
    }
}

/// Deserializes a value with any type with a [`ValueVisitor`].
struct Seed<V>(V);

impl<'a, V: ValueVisitor<'a>> DeserializeSeed<'a> for Seed<V> {
    type Value = V::Output;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<V::Output, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, V: ValueVisitor<'a>> Visitor<'a> for Seed<V> {
    type Value = V::Output;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, string: &'a str) -> Result<V::Output, E> {
        Ok(self.0.string(Cow::Borrowed(string)))
    }

    fn visit_str<E>(self, string: &str) -> Result<V::Output, E> {
        Ok(self.0.string(Cow::Owned(string.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<V::Output, E> {
        Ok(self.0.other())
    }

    fn visit_bool<E>(self, _: bool) -> Result<V::Output, E> {
        Ok(self.0.other())
    }

    fn visit_i64<E>(self, number: i64) -> Result<V::Output, E> {
        Ok(self.0.number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<V::Output, E> {
        Ok(self.0.number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<V::Output, E> {
        Ok(self.0.number(number))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, array: A) -> Result<V::Output, A::Error> {
        self.0.array(array)
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<V::Output, A::Error> {
        self.0.object(object)
    }
}

/// Reads a string; `None` for any other value.
struct StringVisitor;

impl<'a> ValueVisitor<'a> for StringVisitor {
    type Output = Option<Cow<'a, str>>;

    fn string(self, string: Cow<'a, str>) -> Self::Output {
        Some(string)
    }

    fn other(self) -> Self::Output {
        None
    }
}

/// Reads a number; `None` for any other value.
struct NumberVisitor;

impl ValueVisitor<'_> for NumberVisitor {
    type Output = Option<f64>;

    fn string(self, _: Cow<'_, str>) -> Self::Output {
        None
    }

    fn number(self, number: f64) -> Self::Output {
        Some(number)
    }

    fn other(self) -> Self::Output {
        None
    }
}

/// Skips a value; `true` for an object.
struct IsObject;

impl<'a> ValueVisitor<'a> for IsObject {
    type Output = bool;

    fn string(self, _: Cow<'a, str>) -> bool {
        false
    }

    fn other(self) -> bool {
        false
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<bool, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(true)
    }
}

/// Reads `prediction`'s value into the element.
struct PredictionVisitor<'r, 'a>(&'r mut Element<'a>);

impl<'a> ValueVisitor<'a> for PredictionVisitor<'_, 'a> {
    type Output = ();

    fn string(self, string: Cow<'a, str>) {
        if has_nul(&string) {
            self.0
                .add_error(".prediction", "format", "must not have a NUL character");
        }
        self.0.form = Form::Label;
        self.0.ids.push(string);
    }

    fn number(self, number: f64) {
        self.0.form = Form::Number(number);
    }

    fn other(self) {
        self.0.add_error(
            ".prediction",
            "type",
            "must be a string, an array of strings, a number, or an object of label → probability or level → number",
        );
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.form = Form::Weights;
        while let Some(label) = object.next_key_seed(Seed(StringVisitor))? {
            // A key is always a string.
            let label = label.unwrap_or_default();
            match object.next_value_seed(Seed(NumberVisitor))? {
                None => self.0.add_error(
                    ".prediction",
                    "type",
                    &format!("the value of {} must be a number", quoted(&label)),
                ),
                Some(_) if has_nul(&label) => {
                    self.0
                        .add_error(".prediction", "format", "must not have a NUL character");
                }
                Some(weight) => self.0.weights.push((label, weight)),
            }
        }
        Ok(())
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        while let Some(found) = array.next_element_seed(Seed(StringVisitor))? {
            match found {
                None => {
                    self.0
                        .add_error(&format!(".prediction[{index}]"), "type", "must be a string");
                }
                Some(id) if has_nul(&id) => self.0.add_error(
                    &format!(".prediction[{index}]"),
                    "format",
                    "must not have a NUL character",
                ),
                Some(id) => self.0.ids.push(id),
            }
            index += 1;
        }
        Ok(())
    }
}

/// Reads one array element.
struct ElementVisitor<'r, 'a>(&'r mut Element<'a>);

impl<'a> ValueVisitor<'a> for ElementVisitor<'_, 'a> {
    type Output = ();

    fn string(self, _: Cow<'a, str>) {
        self.other();
    }

    fn other(self) {
        self.0
            .add_error("", "type", "must be an object with item_id and prediction");
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        let Self(element) = self;
        let mut has_item_id = false;
        let mut has_prediction = false;
        let mut has_error = false;
        let mut ignored = HashSet::new();
        while let Some(key) = object.next_key_seed(Seed(StringVisitor))? {
            // A key is always a string.
            let key = key.unwrap_or_default();
            match key.as_ref() {
                "item_id" if !mem::replace(&mut has_item_id, true) => {
                    element.set_item_id(object.next_value_seed(Seed(StringVisitor))?);
                }
                "prediction" if !mem::replace(&mut has_prediction, true) => {
                    object.next_value_seed(Seed(PredictionVisitor(element)))?;
                }
                known @ ("item_id" | "prediction") => {
                    element.add_error(
                        &format!(".{known}"),
                        "duplicate",
                        "this field is given twice",
                    );
                    object.next_value::<IgnoredAny>()?;
                }
                _ => {
                    let is_error = key == "error";
                    if !ignored.insert(key) {
                        element.add_error(
                            "",
                            "duplicate",
                            "one of the further fields is given twice",
                        );
                    }
                    has_error |= object.next_value_seed(Seed(IsObject))? && is_error;
                }
            }
        }
        // `error` replaces the prediction only if it is the only other field. Otherwise a
        // misspelled `prediction` could go unnoticed.
        let is_failed = !has_prediction && has_error && ignored.len() == 1;
        if is_failed {
            element.form = Form::Failed;
        }
        for (path, is_present) in [
            (".item_id", has_item_id),
            (".prediction", has_prediction || is_failed),
        ] {
            if !is_present {
                element.add_error(path, "required", "this field is required");
            }
        }
        Ok(())
    }
}

/// Reads the whole document, an array.
struct Document<'r, 'a, B, S> {
    sink: &'r mut S,
    element: &'r mut Element<'a>,
    /// The reason why the sink stopped.
    stop: &'r mut Option<B>,
    /// Elements that the fast path has emitted.
    emitted: usize,
    /// The indices for elements that are longer than [`ELEMENT_BYTES_MAX`].
    too_long: &'r [usize],
}

impl<'a, B, S: PredictionSink<'a, Stop = B>> ValueVisitor<'a> for Document<'_, 'a, B, S> {
    type Output = ();

    fn string(self, _: Cow<'a, str>) {
        self.other();
    }

    fn other(self) {
        let error = FieldError::new("predictions", "type", "must be an array of objects");
        *self.stop = self.sink.take(Err(error)).break_value();
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<(), A::Error> {
        while array
            .next_element_seed(Seed(ElementVisitor(self.element)))?
            .is_some()
        {
            if self.too_long.contains(&self.element.index) {
                self.element.add_error("", "range", TOO_LONG);
            }
            if self.element.index >= self.emitted
                && let ControlFlow::Break(stop) = self.element.emit(self.sink)
            {
                *self.stop = Some(stop);
                return Err(A::Error::custom("stopped"));
            }
            self.element.reset();
        }
        if self.element.index == 0 {
            let error = FieldError::new(
                "predictions",
                "required",
                "there must be at least one prediction",
            );
            *self.stop = self.sink.take(Err(error)).break_value();
        }
        Ok(())
    }
}
