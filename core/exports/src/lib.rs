//! Scores and suites in other programs' formats.
//!
//! Every export is a pure function, whose arguments are resources as the REST API returns them. It has no figure that the API
//! does not disclose: each figure is in the job's receipts, the job's result, or a board's row.

mod badge;
mod board_csv;
mod cff;
mod citation;
mod croissant;
mod every_eval;
mod hugging_face;
mod report;
mod resources;
mod text;

pub use badge::badge;
pub use board_csv::board_csv;
pub use cff::citation_cff;
pub use citation::{bibtex, suite_bibtex};
pub use croissant::{Croissant, FieldType, ItemFields};
pub use every_eval::{DEPLOYMENT_TYPES, EveryEval, MODEL_AVAILABILITIES};
pub use hugging_face::{HuggingFace, hugging_face};
pub use report::{ExportError, ExportedFile, ModelName, Report};
pub use resources::{BoardRow, Entry, Job, Receipt, Statement, Suite};
