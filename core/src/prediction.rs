//! Predictions as they are submitted: a JSON array, read in one pass, copying only texts that have escapes.
//!
//! What lives here: the reader that the api (to check) and the worker (to score) share. What may not: scoring.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::mem;
use std::ops::ControlFlow;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sha2::{Digest as _, Sha256};

use crate::{Code, Error, FieldError, Metric, Result};

/// At how many faults a check stops.
const MAX_FAULTS: usize = 20;
/// The longest item id, in bytes of UTF-8.
const MAX_ITEM_ID: usize = 512;

/// One prediction, whose texts are slices of the document (`'a`) where they have no escapes.
#[derive(Debug)]
pub struct Prediction<'r, 'a> {
    /// Its place in the array, from 0.
    pub index: usize,
    /// The item that it is for: not empty, at most 512 bytes, no NUL.
    pub item_id: Cow<'a, str>,
    /// What is predicted.
    pub value: Value<'r, 'a>,
}

/// What is predicted. No text in it has a NUL.
#[derive(Debug, Clone, Copy)]
pub enum Value<'r, 'a> {
    /// One id.
    Label(&'r Cow<'a, str>),
    /// Ids, best first; there may be none, and an id may be repeated.
    Ranking(&'r [Cow<'a, str>]),
}

impl<'r, 'a> Value<'r, 'a> {
    /// The ids, best first: a label is a ranking of one.
    pub fn ranking(self) -> &'r [Cow<'a, str>] {
        match self {
            Self::Label(label) => std::slice::from_ref(label),
            Self::Ranking(ids) => ids,
        }
    }
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
/// Faults of the predictions, at most the first 20, are one `validation_failed` with paths such as
/// `predictions[3].item_id`; a document that is not JSON is `invalid_request`.
pub fn check(json: &[u8], metric: &Metric) -> Result<Checked> {
    // All of today's metrics take labels and rankings; one that does not will not compile here.
    let (Metric::Accuracy | Metric::HitRate(_) | Metric::Recall(_) | Metric::Ndcg(_) | Metric::Mrr(_)) = metric;
    let mut faults = Vec::new();
    let mut first_index = HashMap::new();
    let mut digest = SubmissionDigest::default();
    // Stopping early is no outcome of its own: the faults tell.
    let _: ControlFlow<()> = read(json, |next| {
        match next {
            Err(fault) => faults.push(fault),
            Ok(prediction) => {
                digest.add(&prediction);
                match first_index.entry(prediction.item_id) {
                    Entry::Vacant(entry) => _ = entry.insert(prediction.index),
                    Entry::Occupied(entry) => faults.push(FieldError::new(
                        format!("predictions[{}].item_id", prediction.index),
                        "duplicate",
                        format!("this item is already predicted by predictions[{}]", entry.get()),
                    )),
                }
            }
        }
        if faults.len() < MAX_FAULTS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if faults.is_empty() {
        Ok(Checked { n_items: first_index.len() as i64, digest: digest.hash.finalize().into() })
    } else {
        Err(Error::fields(faults))
    }
}

/// Every text and every ranking is written behind its length, so that no two sequences are written alike.
#[derive(Default)]
struct SubmissionDigest {
    hash: Sha256,
    written: Vec<u8>,
}

impl SubmissionDigest {
    fn add(&mut self, prediction: &Prediction<'_, '_>) {
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
        }
        self.hash.update(&self.written);
    }

    fn text(&mut self, text: &str) {
        self.written.extend((text.len() as u64).to_le_bytes());
        self.written.extend(text.as_bytes());
    }
}

/// Reads predictions one after the other and hands each on, or what is wrong with it (an element may have several
/// faults, at most 20). Stops when `each` breaks and returns that. Whether an item is repeated is for `each` to see.
///
/// A document that is not JSON in UTF-8 is `invalid_request`; predictions before the broken place have been handed on.
pub fn read<'a, B>(json: &'a [u8], each: impl FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
    let text =
        std::str::from_utf8(json).map_err(|error| Error::new(Code::InvalidRequest, "The predictions are not UTF-8.").because(error))?;
    let mut parser = serde_json::Deserializer::from_str(text);
    let mut element = Element::default();
    let mut broke = None;
    let document = Document { each, element: &mut element, broke: &mut broke };
    let parsed = At(document).deserialize(&mut parser).and_then(|()| parser.end());
    match (broke, parsed) {
        (Some(value), _) => Ok(ControlFlow::Break(value)),
        (None, Ok(())) => Ok(ControlFlow::Continue(())),
        (None, Err(error)) => {
            let (line, column) = (error.line(), error.column());
            let message =
                format!("The predictions are not valid JSON (line {line}, column {column}, about predictions[{}]).", element.index);
            Err(Error::new(Code::InvalidRequest, message).because(error))
        }
    }
}

/// What one place of the document is for. Whatever it may not hold is passed over, so that a fault can be told by its
/// path and reading goes on.
trait Place<'a>: Sized {
    type Found;

    fn text(self, text: Cow<'a, str>) -> Self::Found;

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

    fn visit_i64<E>(self, _: i64) -> Result<P::Found, E> {
        Ok(self.0.other())
    }

    fn visit_u64<E>(self, _: u64) -> Result<P::Found, E> {
        Ok(self.0.other())
    }

    fn visit_f64<E>(self, _: f64) -> Result<P::Found, E> {
        Ok(self.0.other())
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

/// The element of the array that is being read. There is one, used again and again.
#[derive(Default)]
struct Element<'a> {
    index: usize,
    item_id: Cow<'a, str>,
    ids: Vec<Cow<'a, str>>,
    is_label: bool,
    faults: Vec<FieldError>,
}

impl<'a> Element<'a> {
    fn fault(&mut self, place: &str, reason: &'static str, message: &str) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(FieldError::new(format!("predictions[{}]{place}", self.index), reason, message));
        }
    }

    fn take_item_id(&mut self, found: Option<Cow<'a, str>>) {
        match found {
            None => self.fault(".item_id", "type", "must be a string"),
            Some(id) if id.is_empty() => self.fault(".item_id", "format", "must not be empty"),
            Some(id) if id.len() > MAX_ITEM_ID => self.fault(".item_id", "format", "must be at most 512 bytes long"),
            Some(id) if has_nul(&id) => self.fault(".item_id", "format", "must not have a NUL character"),
            Some(id) => self.item_id = id,
        }
    }

    fn hand_on<B>(&mut self, mut each: impl FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>) -> ControlFlow<B> {
        if !self.faults.is_empty() {
            return self.faults.drain(..).try_for_each(|fault| each(Err(fault)));
        }
        let value = match self.ids.as_slice() {
            [label] if self.is_label => Value::Label(label),
            ids => Value::Ranking(ids),
        };
        each(Ok(Prediction { index: self.index, item_id: mem::take(&mut self.item_id), value }))
    }
}

/// A NUL can only be written as an escape, and a text with an escape is never borrowed.
#[expect(clippy::ptr_arg, reason = "whether it is borrowed is what matters")]
fn has_nul(text: &Cow<'_, str>) -> bool {
    matches!(text, Cow::Owned(text) if text.contains('\0'))
}

/// The place of `prediction`.
struct Predicted<'r, 'a>(&'r mut Element<'a>);

impl<'a> Place<'a> for Predicted<'_, 'a> {
    type Found = ();

    fn text(self, text: Cow<'a, str>) {
        if has_nul(&text) {
            self.0.fault(".prediction", "format", "must not have a NUL character");
        }
        self.0.is_label = true;
        self.0.ids.push(text);
    }

    fn other(self) {
        self.0.fault(".prediction", "type", "must be a string or an array of strings");
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<(), A::Error> {
        let mut place = 0_usize;
        while let Some(found) = array.next_element_seed(At(Text))? {
            match found {
                None => self.0.fault(&format!(".prediction[{place}]"), "type", "must be a string"),
                Some(id) if has_nul(&id) => self.0.fault(&format!(".prediction[{place}]"), "format", "must not have a NUL character"),
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
        self.0.fault("", "type", "must be an object with item_id and prediction");
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        let Self(element) = self;
        let (mut has_item_id, mut has_prediction) = (false, false);
        let mut ignored = HashSet::new();
        while let Some(key) = object.next_key_seed(At(Text))? {
            // A key is always a text.
            let key = key.unwrap_or_default();
            match key.as_ref() {
                "item_id" if !mem::replace(&mut has_item_id, true) => element.take_item_id(object.next_value_seed(At(Text))?),
                "prediction" if !mem::replace(&mut has_prediction, true) => object.next_value_seed(At(Predicted(element)))?,
                known @ ("item_id" | "prediction") => {
                    element.fault(&format!(".{known}"), "duplicate", "this field is given twice");
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
}

impl<'a, B, F: FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>> Place<'a> for Document<'_, 'a, B, F> {
    type Found = ();

    fn text(self, _: Cow<'a, str>) {
        self.other();
    }

    fn other(mut self) {
        *self.broke = (self.each)(Err(FieldError::new("predictions", "type", "must be an array of objects"))).break_value();
    }

    fn array<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        while array.next_element_seed(At(Whole(self.element)))?.is_some() {
            if let ControlFlow::Break(value) = self.element.hand_on(&mut self.each) {
                *self.broke = Some(value);
                return Err(A::Error::custom("stopped"));
            }
            self.element.index += 1;
            self.element.is_label = false;
            self.element.ids.clear();
        }
        if self.element.index == 0 {
            let fault = FieldError::new("predictions", "required", "there must be at least one prediction");
            *self.broke = (self.each)(Err(fault)).break_value();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Details;

    fn checked(json: &str) -> Result<Checked> {
        check(json.as_bytes(), &Metric::Accuracy)
    }

    /// The faults as `path reason`.
    fn faults(json: &str) -> Vec<String> {
        match checked(json).unwrap_err() {
            Error { code: Code::ValidationFailed, details: Some(Details::Fields { fields }), .. } => {
                fields.into_iter().map(|fault| format!("{} {}", fault.field, fault.reason)).collect()
            }
            other => panic!("{other}"),
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
            (r#"{"item_id":"b\u0000","prediction":"x"}"#, ".item_id format"),
            (r#"{"item_id":"b","prediction":null}"#, ".prediction type"),
            (r#"{"item_id":"b","prediction":-1}"#, ".prediction type"),
            (r#"{"item_id":"b","prediction":{"x":1}}"#, ".prediction type"),
            (r#"{"item_id":"b","prediction":"\u0000"}"#, ".prediction format"),
            (r#"{"item_id":"b","prediction":["x",["y"]]}"#, ".prediction[1] type"),
            (r#"{"item_id":"b","prediction":["x","y",3]}"#, ".prediction[2] type"),
            (r#"{"item_id":"b","prediction":["x\u0000"]}"#, ".prediction[0] format"),
            (r#"{"item_id":"b","prediction":"x","item_id":"c"}"#, ".item_id duplicate"),
            (r#"{"item_id":"b","prediction":"x","prediction":"x"}"#, ".prediction duplicate"),
            (r#"{"item_id":"b","prediction":"x","p":1,"p":1}"#, " duplicate"),
            (r#"{"item_id":"a","prediction":"x"}"#, ".item_id duplicate"),
            (r#"{"item_id":"\u0061","prediction":"x"}"#, ".item_id duplicate"),
        ] {
            assert_eq!(faults(&format!("[{good},{element}]")), [format!("predictions[1]{fault}")], "{element}");
        }
    }

    #[test]
    fn an_item_id_has_at_most_512_bytes() {
        let submission = |id: String| format!(r#"[{{"item_id":"{id}","prediction":"x"}}]"#);
        assert_eq!(checked(&submission("ä".repeat(256))).unwrap().n_items, 1);
        assert_eq!(faults(&submission("a".repeat(513))), ["predictions[0].item_id format"]);
    }

    #[test]
    fn a_document_that_is_no_list_of_predictions_is_refused() {
        assert_eq!(faults("[]"), ["predictions required"]);
        for json in ["{\"item_id\":\"a\"}", "null", "\"a\"", "3", "false"] {
            assert_eq!(faults(json), ["predictions type"], "{json}");
        }
        for json in ["", "[", "[{]", "[] []", r#"[{"item_id":"\ud800","prediction":"x"}]"#, "[{\"item_id\":\"\0\"}]"] {
            assert_eq!(checked(json).unwrap_err().code, Code::InvalidRequest, "{json}");
        }
        assert_eq!(check(b"[{\"item_id\":\"\xff\"}]", &Metric::Accuracy).unwrap_err().code, Code::InvalidRequest);
    }

    #[test]
    fn faults_are_collected_up_to_twenty() {
        assert_eq!(faults(r#"[{"item_id":1,"prediction":[1]},2]"#).len(), 3);
        let all = faults(&format!("[{}1]", "1,".repeat(99)));
        assert_eq!((all.len(), all[19].as_str()), (20, "predictions[19] type"));
        assert_eq!(faults(&format!(r#"[{{"item_id":"a","prediction":[{}1]}}]"#, "1,".repeat(99))).len(), 20);
    }

    #[test]
    fn a_repeated_item_names_the_earlier_one() {
        let error = checked(r#"[{"item_id":"a","prediction":"x"},{"item_id":"b","prediction":"x"},{"item_id":"a","prediction":"y"}]"#);
        assert_eq!(error.unwrap_err().message, "predictions[2].item_id: this item is already predicted by predictions[0]");
    }

    #[test]
    fn the_digest_is_of_the_content_alone() {
        let digest = |json: &str| checked(json).unwrap().digest;
        let plain = digest(r#"[{"item_id":"a","prediction":["x","y"]},{"item_id":"b","prediction":"x"}]"#);
        let spelt =
            r#" [ {"note": {"k":[1,1,null]}, "prediction":["\u0078", "y"],"item_id":"a"},{"item_id":"b","prediction":"x","p":0.1}]"#;
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

    #[test]
    fn texts_without_escapes_are_not_copied() {
        let json = br#"[{"item_id":"a","prediction":["x","\u0079"]}]"#;
        let flow: ControlFlow<()> = read(json, |next| {
            let prediction = next.unwrap();
            assert!(matches!(prediction.item_id, Cow::Borrowed("a")));
            assert!(matches!(prediction.value, Value::Ranking([Cow::Borrowed("x"), Cow::Owned(_)])));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(flow, ControlFlow::Continue(()));
    }
}
