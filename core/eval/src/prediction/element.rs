//! One prediction while it is read: what both ways of reading fill.

use std::borrow::Cow;
use std::mem;
use std::ops::ControlFlow;

use super::{MAX_FAULTS, MAX_ITEM_ID, Prediction, Value, name};
use crate::error::FieldError;

/// The form of what was predicted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Form {
    #[default]
    Ranking,
    Label,
    Number(f64),
    Weights,
}

/// The element that is being read, used again for the next one.
#[derive(Default)]
pub(super) struct Element<'a> {
    pub(super) index: usize,
    /// Of a document of lines: which, from 1.
    pub(super) line: Option<usize>,
    pub(super) item_id: Cow<'a, str>,
    pub(super) form: Form,
    pub(super) ids: Vec<Cow<'a, str>>,
    pub(super) weights: Vec<(Cow<'a, str>, f64)>,
    faults: Vec<FieldError>,
}

impl<'a> Element<'a> {
    pub(super) fn new(index: usize, line: Option<usize>, memory: ElementBuffers) -> Self {
        let ElementBuffers { ids, weights } = memory;
        Self {
            index,
            line,
            ids,
            weights,
            ..Self::default()
        }
    }

    /// The next one begins.
    pub(super) fn next(&mut self) {
        self.index += 1;
        self.line = self.line.map(|line| line + 1);
        self.form = Form::Ranking;
        self.ids.clear();
        self.weights.clear();
    }

    pub(super) fn fault(&mut self, place: &str, reason: &'static str, message: &str) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(FieldError::new(
                format!("{}{place}", name(self.index, self.line)),
                reason,
                message,
            ));
        }
    }

    pub(super) fn take_item_id(&mut self, found: Option<Cow<'a, str>>) {
        match found {
            None => self.fault(".item_id", "type", "must be a string"),
            Some(id) if id.is_empty() => self.fault(".item_id", "format", "must not be empty"),
            Some(id) if id.len() > MAX_ITEM_ID => {
                self.fault(".item_id", "format", "must be at most 512 bytes long");
            }
            Some(id) if has_nul(&id) => {
                self.fault(".item_id", "format", "must not have a NUL character");
            }
            Some(id) => self.item_id = id,
        }
    }

    pub(super) fn emit<B>(
        &mut self,
        mut each: impl FnMut(Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if !self.faults.is_empty() {
            return self.faults.drain(..).try_for_each(|fault| each(Err(fault)));
        }
        let value = match (self.form, self.ids.as_slice()) {
            (Form::Number(number), _) => Value::Number(number),
            (Form::Weights, _) => Value::Probabilities(&self.weights),
            (Form::Label, [label]) => Value::Label(label),
            (Form::Label | Form::Ranking, ids) => Value::Ranking(ids),
        };
        each(Ok(Prediction {
            index: self.index,
            line: self.line,
            item_id: mem::take(&mut self.item_id),
            value,
        }))
    }
}

/// ElementBuffers of an element's, used again for texts that live elsewhere.
#[derive(Default)]
pub(super) struct ElementBuffers {
    ids: Vec<Cow<'static, str>>,
    weights: Vec<(Cow<'static, str>, f64)>,
}

impl ElementBuffers {
    /// More than so many texts are not kept room for: there are several of these.
    const MOST: usize = 4096;

    /// Of an element that is done with. Collecting in place keeps the allocation.
    pub(super) fn of(element: Element<'_>) -> Self {
        let Element {
            mut ids,
            mut weights,
            ..
        } = element;
        ids.clear();
        ids.shrink_to(Self::MOST);
        weights.clear();
        weights.shrink_to(Self::MOST);
        Self {
            ids: ids.into_iter().map(|_| Cow::Borrowed("")).collect(),
            weights: weights
                .into_iter()
                .map(|_| (Cow::Borrowed(""), 0.0))
                .collect(),
        }
    }
}

/// A NUL can only be written as an escape, and a text with an escape is never borrowed.
#[expect(clippy::ptr_arg, reason = "whether it is borrowed is what matters")]
pub(super) fn has_nul(text: &Cow<'_, str>) -> bool {
    matches!(text, Cow::Owned(text) if text.contains('\0'))
}
