//! One element in a submission while it is read. The fast path and the slow path both fill it.

use std::borrow::Cow;
use std::mem;
use std::ops::ControlFlow;

use super::sink::PredictionSink;
use super::value::{FIELD_ERRORS_MAX, ITEM_ID_BYTES_MAX, Prediction, Value, location};
use crate::error::FieldError;

/// The predicted value's form.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Form {
    #[default]
    Ranking,
    Label,
    Number(f64),
    Weights,
    /// There is an error instead of a value.
    Failed,
}

/// The current element. One `Element` serves a whole document, so that its buffers are allocated
/// once.
#[derive(Default)]
pub(super) struct Element<'a> {
    pub(super) index: usize,
    /// The line number, from 1, in a line document.
    pub(super) line: Option<usize>,
    pub(super) item_id: Cow<'a, str>,
    pub(super) form: Form,
    pub(super) ids: Vec<Cow<'a, str>>,
    pub(super) weights: Vec<(Cow<'a, str>, f64)>,
    errors: Vec<FieldError>,
}

impl<'a> Element<'a> {
    pub(super) fn new(index: usize, line: Option<usize>, buffers: ElementBuffers) -> Self {
        let ElementBuffers { ids, weights } = buffers;
        Self {
            index,
            line,
            ids,
            weights,
            ..Self::default()
        }
    }

    /// Clears the element, and moves on to the next index and line.
    pub(super) fn reset(&mut self) {
        self.index += 1;
        self.line = self.line.map(|line| line + 1);
        self.form = Form::Ranking;
        self.ids.clear();
        self.weights.clear();
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds an error for the field at `path`, relative to the element.
    pub(super) fn add_error(&mut self, path: &str, reason: &'static str, message: &str) {
        if self.errors.len() < FIELD_ERRORS_MAX {
            self.errors.push(FieldError::new(
                format!("{}{path}", location(self.index, self.line)),
                reason,
                message,
            ));
        }
    }

    /// Sets the item id. `None` stands for a value that is not a string.
    pub(super) fn set_item_id(&mut self, id: Option<Cow<'a, str>>) {
        match id {
            None => self.add_error(".item_id", "type", "must be a string"),
            Some(id) if id.is_empty() => self.add_error(".item_id", "format", "must not be empty"),
            Some(id) if id.len() > ITEM_ID_BYTES_MAX => {
                self.add_error(".item_id", "format", "must be at most 512 bytes long");
            }
            Some(id) if has_nul(&id) => {
                self.add_error(".item_id", "format", "must not have a NUL character");
            }
            Some(id) => self.item_id = id,
        }
    }

    /// Passes the prediction to the sink, or all errors in the element.
    pub(super) fn emit<B>(
        &mut self,
        sink: &mut impl PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        if self.has_errors() {
            return self
                .errors
                .drain(..)
                .try_for_each(|error| sink.take(Err(error)));
        }
        let value = match (self.form, self.ids.as_slice()) {
            (Form::Failed, _) => Value::Failed,
            (Form::Number(number), _) => Value::Number(number),
            (Form::Weights, _) => Value::Probabilities(&self.weights),
            (Form::Label, [label]) => Value::Label(label),
            (Form::Label | Form::Ranking, ids) => Value::Ranking(ids),
        };
        sink.take(Ok(Prediction {
            index: self.index,
            line: self.line,
            item_id: mem::take(&mut self.item_id),
            value,
        }))
    }
}

/// An element's empty buffers, for reuse with strings in another lifetime.
#[derive(Default)]
pub(super) struct ElementBuffers {
    ids: Vec<Cow<'static, str>>,
    weights: Vec<(Cow<'static, str>, f64)>,
}

impl ElementBuffers {
    /// The largest capacity that is kept for reuse. A stream keeps several buffers.
    const CAPACITY_MAX: usize = 4096;

    /// Takes an emitted element's buffers. Collecting in place keeps the allocation.
    pub(super) fn of(element: Element<'_>) -> Self {
        let Element {
            mut ids,
            mut weights,
            ..
        } = element;
        ids.clear();
        ids.shrink_to(Self::CAPACITY_MAX);
        weights.clear();
        weights.shrink_to(Self::CAPACITY_MAX);
        Self {
            ids: ids.into_iter().map(|_| Cow::Borrowed("")).collect(),
            weights: weights
                .into_iter()
                .map(|_| (Cow::Borrowed(""), 0.0))
                .collect(),
        }
    }
}

/// Returns `true` if a string has a NUL. JSON can express a NUL as an escape only, and a string
/// with an escape is never borrowed.
#[expect(
    clippy::ptr_arg,
    reason = "the check depends on whether the string is borrowed"
)]
pub(super) fn has_nul(text: &Cow<'_, str>) -> bool {
    matches!(text, Cow::Owned(text) if text.contains('\0'))
}
