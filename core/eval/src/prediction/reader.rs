//! The reader: one pass over the document, one fault or prediction at a time.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::mem;
use std::ops::ControlFlow;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::Malformed;
use super::element::{Element, Form, has_nul};
use super::{Prediction, scan};
use crate::error::FieldError;

/// Reads predictions one after the other and hands each on, or what is wrong with it (an element may have several
/// faults, at most 20). Stops when `each` breaks and returns that. Whether an item is repeated is for `each` to see.
///
/// A document that is not JSON in UTF-8 is [`Malformed`]; predictions before the broken place have been handed on.
pub fn read<'a, B>(
    json: &'a [u8],
    mut each: impl FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, Malformed> {
    let text =
        std::str::from_utf8(json).map_err(|_| Malformed::new("The predictions are not UTF-8."))?;
    let mut element = Element::default();
    if let Some(flow) = read_fast_path(text, &mut element, &mut each) {
        return Ok(flow);
    }
    // From the first one that is unusual on; what stands before it was handed on.
    let mut parser = serde_json::Deserializer::from_str(text);
    let handed_on = element.index;
    element = Element::default();
    let mut broke = None;
    let document = Document {
        each,
        element: &mut element,
        broke: &mut broke,
        handed_on,
    };
    let parsed = At(document)
        .deserialize(&mut parser)
        .and_then(|()| parser.end());
    match (broke, parsed) {
        (Some(value), _) => Ok(ControlFlow::Break(value)),
        (None, Ok(())) => Ok(ControlFlow::Continue(())),
        (None, Err(error)) => {
            let (line, column) = (error.line(), error.column());
            let message = format!(
                "The predictions are not valid JSON (line {line}, column {column}, about predictions[{}]).",
                element.index
            );
            Err(Malformed::new(message))
        }
    }
}

/// Reads an array as long as its elements are written in the usual way. `None`: one is not, and `element.index` tells
/// which, or the array ends in an unusual way.
fn read_fast_path<'a, B>(
    text: &'a str,
    element: &mut Element<'a>,
    each: &mut impl FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>,
) -> Option<ControlFlow<B>> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let bytes = text.as_bytes();
    let mut at = bytes
        .iter()
        .position(|byte| !is_space(byte))
        .filter(|at| bytes[*at] == b'[')?;
    while bytes[at] != b']' {
        at = scan::element(text, at + 1, false, element)?;
        if let ControlFlow::Break(value) = element.emit(&mut *each) {
            return Some(ControlFlow::Break(value));
        }
        element.next();
    }
    bytes[at + 1..]
        .iter()
        .all(is_space)
        .then_some(ControlFlow::Continue(()))
}

/// Reads one prediction that stands alone in `json` into an element that is new. The error is that it is not JSON.
pub(super) fn read_one<'a>(json: &'a str, element: &mut Element<'a>) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_str(json);
    At(Whole(element))
        .deserialize(&mut parser)
        .and_then(|()| parser.end())
}

/// What one place of the document is for. Whatever it may not hold is passed over, so that a fault can be told by its
/// path and reading goes on.
trait Place<'a>: Sized {
    type Found;

    fn text(self, text: Cow<'a, str>) -> Self::Found;

    fn number(self, _: f64) -> Self::Found {
        self.other()
    }

    /// Anything that the place may not hold.
    fn other(self) -> Self::Found;

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Found, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.other())
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Found, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.other())
    }
}

struct At<P>(P);

impl<'a, P: Place<'a>> DeserializeSeed<'a> for At<P> {
    type Value = P::Found;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<P::Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, P: Place<'a>> Visitor<'a> for At<P> {
    type Value = P::Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<P::Found, E> {
        Ok(self.0.text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<P::Found, E> {
        Ok(self.0.text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<P::Found, E> {
        Ok(self.0.other())
    }

    fn visit_bool<E>(self, _: bool) -> Result<P::Found, E> {
        Ok(self.0.other())
    }

    fn visit_i64<E>(self, number: i64) -> Result<P::Found, E> {
        Ok(self.0.number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<P::Found, E> {
        Ok(self.0.number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<P::Found, E> {
        Ok(self.0.number(number))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, array: A) -> Result<P::Found, A::Error> {
        self.0.array(array)
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<P::Found, A::Error> {
        self.0.object(object)
    }
}

/// A place for a text; the text, or nothing.
struct Text;

impl<'a> Place<'a> for Text {
    type Found = Option<Cow<'a, str>>;

    fn text(self, text: Cow<'a, str>) -> Self::Found {
        Some(text)
    }

    fn other(self) -> Self::Found {
        None
    }
}

/// A place for a number; the number, or nothing.
struct Weight;

impl Place<'_> for Weight {
    type Found = Option<f64>;

    fn text(self, _: Cow<'_, str>) -> Self::Found {
        None
    }

    fn number(self, number: f64) -> Self::Found {
        Some(number)
    }

    fn other(self) -> Self::Found {
        None
    }
}

/// The place of `prediction`.
struct Predicted<'r, 'a>(&'r mut Element<'a>);

impl<'a> Place<'a> for Predicted<'_, 'a> {
    type Found = ();

    fn text(self, text: Cow<'a, str>) {
        if has_nul(&text) {
            self.0
                .fault(".prediction", "format", "must not have a NUL character");
        }
        self.0.form = Form::Label;
        self.0.ids.push(text);
    }

    fn number(self, number: f64) {
        self.0.form = Form::Number(number);
    }

    fn other(self) {
        self.0.fault(
            ".prediction",
            "type",
            "must be a string, an array of strings, a number, or an object of label → probability",
        );
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.form = Form::Weights;
        while let Some(label) = object.next_key_seed(At(Text))? {
            // A key is always a text.
            let label = label.unwrap_or_default();
            match object.next_value_seed(At(Weight))? {
                None => self.0.fault(
                    ".prediction",
                    "type",
                    &format!("the probability of {label:?} must be a number"),
                ),
                Some(_) if has_nul(&label) => {
                    self.0
                        .fault(".prediction", "format", "must not have a NUL character");
                }
                Some(weight) => self.0.weights.push((label, weight)),
            }
        }
        Ok(())
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<(), A::Error> {
        let mut place = 0_usize;
        while let Some(found) = array.next_element_seed(At(Text))? {
            match found {
                None => self
                    .0
                    .fault(&format!(".prediction[{place}]"), "type", "must be a string"),
                Some(id) if has_nul(&id) => self.0.fault(
                    &format!(".prediction[{place}]"),
                    "format",
                    "must not have a NUL character",
                ),
                Some(id) => self.0.ids.push(id),
            }
            place += 1;
        }
        Ok(())
    }
}

/// An element's place in the array.
struct Whole<'r, 'a>(&'r mut Element<'a>);

impl<'a> Place<'a> for Whole<'_, 'a> {
    type Found = ();

    fn text(self, _: Cow<'a, str>) {
        self.other();
    }

    fn other(self) {
        self.0
            .fault("", "type", "must be an object with item_id and prediction");
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        let Self(element) = self;
        let (mut has_item_id, mut has_prediction) = (false, false);
        let mut ignored = HashSet::new();
        while let Some(key) = object.next_key_seed(At(Text))? {
            // A key is always a text.
            let key = key.unwrap_or_default();
            match key.as_ref() {
                "item_id" if !mem::replace(&mut has_item_id, true) => {
                    element.take_item_id(object.next_value_seed(At(Text))?);
                }
                "prediction" if !mem::replace(&mut has_prediction, true) => {
                    object.next_value_seed(At(Predicted(element)))?;
                }
                known @ ("item_id" | "prediction") => {
                    element.fault(
                        &format!(".{known}"),
                        "duplicate",
                        "this field is given twice",
                    );
                    object.next_value::<IgnoredAny>()?;
                }
                _ => {
                    if !ignored.insert(key) {
                        element.fault("", "duplicate", "one of the further fields is given twice");
                    }
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        for (place, has) in [(".item_id", has_item_id), (".prediction", has_prediction)] {
            if !has {
                element.fault(place, "required", "this field is required");
            }
        }
        Ok(())
    }
}

/// The place of the whole document.
struct Document<'r, 'a, B, F> {
    each: F,
    element: &'r mut Element<'a>,
    broke: &'r mut Option<B>,
    /// How many elements were handed on before.
    handed_on: usize,
}

impl<'a, B, F: FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>> Place<'a>
    for Document<'_, 'a, B, F>
{
    type Found = ();

    fn text(self, _: Cow<'a, str>) {
        self.other();
    }

    fn other(mut self) {
        *self.broke = (self.each)(Err(FieldError::new(
            "predictions",
            "type",
            "must be an array of objects",
        )))
        .break_value();
    }

    fn array<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        while array.next_element_seed(At(Whole(self.element)))?.is_some() {
            if self.element.index >= self.handed_on
                && let ControlFlow::Break(value) = self.element.emit(&mut self.each)
            {
                *self.broke = Some(value);
                return Err(A::Error::custom("stopped"));
            }
            self.element.next();
        }
        if self.element.index == 0 {
            let fault = FieldError::new(
                "predictions",
                "required",
                "there must be at least one prediction",
            );
            *self.broke = (self.each)(Err(fault)).break_value();
        }
        Ok(())
    }
}
