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
pub use boards::{board, receipt};
pub use events::{audit, event, webhook, webhook_secret, webhook_target};
pub use jobs::{comparison, eval, job, prediction, queue, usage};
pub use models::{
    catalog, engine_address, package, published_model, sequence, sequence_list, served_model,
    serving, serving_options,
};
pub use people::{
    auth, device, email_domain, identity, invite, key, mail_preferences, member, org, permissions,
    session, terms,
};
pub use suites::{item_sequence, suite, suite_items};
pub use uploads::upload;
