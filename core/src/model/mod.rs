//! The platform's resources: ids, the error and its codes, permissions, and one file per
//! resource, whose structs are the JSON bodies. Pure rules only: no SQL and no I/O.
//!
//! Folders group the modules by subject, without import cycles. Callers name a module without its
//! folder: `model::webhook`.

mod base;
mod boards;
mod events;
mod jobs;
mod models;
mod people;
mod suites;
mod uploads;

use base::text_enum;
pub use base::{
    cursor, date, error, error_details, health, ids, metadata, openapi_schema, public_name, random,
    scope, secret, span_context, timestamp, validation,
};
pub use boards::*;
pub use events::*;
pub use jobs::*;
pub use models::*;
pub use people::*;
pub use suites::*;
pub use uploads::*;
