//! The digest of predictions.

use std::io::BufRead;
use std::ops::ControlFlow;

use assay_eval::FieldError;
use assay_eval::content::{ContentFormat, ReadEnd, read_content};
use assay_eval::prediction::{CellForm, HashedPredictions, Prediction, sink_fn};

/// Opens the predictions again.
pub type OpenPredictions<'a, R> = &'a dyn Fn() -> Result<(R, ContentFormat), String>;

/// Returns the predictions' digest, in hex.
pub(super) fn hash_predictions<R: BufRead>(
    open: OpenPredictions<'_, R>,
    cells: CellForm,
) -> Result<String, String> {
    let (content, format) = open()?;
    let take = sink_fn(
        |prediction: Result<Prediction<'_, '_>, FieldError>| match prediction {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(format!("{}: {}", error.field, error.message)),
        },
    );
    let mut hashed = HashedPredictions::new(take);
    let go_on = || ControlFlow::Continue(());
    match read_content(content, format, cells, go_on, &mut hashed) {
        ReadEnd::Complete => Ok(hex::encode(hashed.finish().1)),
        ReadEnd::Stopped(reason) => Err(reason),
        ReadEnd::Invalid(error) => Err(error.to_string()),
    }
}
