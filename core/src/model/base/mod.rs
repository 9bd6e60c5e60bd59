//! The types that all resources share: ids, timestamps, the error, scopes, cursors and validation. They
//! import from no other folder.

pub mod cursor;
pub mod date;
pub mod error;
pub mod error_details;
pub mod health;
pub mod ids;
pub mod metadata;
pub mod openapi_schema;
pub mod public_name;
pub mod random;
pub mod scope;
pub mod secret;
pub mod span_context;
pub(super) mod text_enum;
pub mod timestamp;
pub mod validation;
