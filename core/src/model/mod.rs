//! The resources of the platform: ids, the error and its codes, permissions, and one file per
//! resource, whose structs are the JSON bodies. Pure rules only: no SQL and no I/O.

pub mod auth;
pub mod catalog;
pub mod comparison;
pub mod cursor;
pub mod email_domain;
pub mod error;
pub mod error_details;
pub mod eval;
pub mod ids;
pub mod invite;
pub mod job;
pub mod key;
pub mod member;
pub mod openapi_schema;
pub mod org;
pub mod package;
pub mod permissions;
pub mod published_model;
pub mod random;
mod refusals;
pub mod secret;
pub mod sequence;
pub mod served_model;
pub mod serving;
pub mod serving_options;
pub mod session;
pub mod span_context;
pub mod suite;
pub mod suite_items;
pub mod terms;
mod text_enum;
pub mod timestamp;
pub mod upload;
pub mod usage;
pub mod validation;
