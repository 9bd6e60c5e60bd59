//! Predictions as they are submitted: a JSON array that is read in one pass and copies only strings
//! with escapes, or a byte stream, where one element at a time is in memory: JSON or CSV.
//!
//! The API reads predictions to check them, the worker to score them. Both implement
//! [`PredictionSink`].

mod check;
mod digest;
mod document;
mod element;
mod fit;
mod normal_form;
mod quantiles;
mod reader;
mod rules;
mod scan;
mod sink;
mod stream;
mod table;
mod unmatched;
mod value;

pub use check::{Checked, Rejected, check, check_and_count};
pub use digest::SubmissionDigest;
pub use document::{Document, TextForm};
pub use fit::{Fit, FitCheck};
pub use normal_form::HashedPredictions;
pub use reader::{Malformed, read};
pub use rules::PredictionRules;
pub use scan::{Written, line_of, written};
pub use sink::{PredictionSink, SinkFn, sink_fn};
pub(crate) use stream::not_json;
pub use stream::{Layout, Stream};
pub use table::CellForm;
pub use value::{ELEMENT_BYTES_MAX, FIELD_ERRORS_MAX, NUMBER_MAX, Prediction, Value, location};

pub(crate) use quantiles::Quantiles;
pub(crate) use unmatched::Unmatched;
pub(crate) use value::{SUM_TOLERANCE, first_duplicate};
