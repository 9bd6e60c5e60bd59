//! The receiver of predictions while they are read.

use std::ops::ControlFlow;

use super::value::Prediction;
use crate::error::FieldError;

/// Receives predictions one by one while they are read.
///
/// `'a` is the document's lifetime: a sink for one lifetime may keep slices of the document.
/// A stream reader requires a sink for every lifetime, as the bytes are gone after the call.
pub trait PredictionSink<'a> {
    /// The reason to stop reading before the end.
    type Stop;

    /// Announces the next predictions' item ids, in this order, so that their memory can be
    /// prefetched together. Readers may call this or not; the predictions that follow are the same.
    fn prefetch(&mut self, item_ids: &[&str]) {
        let _ = item_ids;
    }

    /// Receives the next prediction, or its error; an element can have several errors. On
    /// [`ControlFlow::Break`] the reader stops and returns the reason.
    fn take(
        &mut self,
        prediction: Result<Prediction<'_, 'a>, FieldError>,
    ) -> ControlFlow<Self::Stop>;
}

/// A [`PredictionSink`] that calls a closure. [`sink_fn`] creates it.
#[derive(Debug, Clone, Copy)]
pub struct SinkFn<F>(F);

/// Creates a [`PredictionSink`] from a closure.
pub fn sink_fn<B, F>(take: F) -> SinkFn<F>
where
    F: FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
{
    SinkFn(take)
}

impl<'a, B, F> PredictionSink<'a> for SinkFn<F>
where
    F: FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
{
    type Stop = B;

    #[inline]
    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<B> {
        (self.0)(prediction)
    }
}
