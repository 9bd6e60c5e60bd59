//! The pages, one file per resource: each handler calls operations and renders a template.

pub mod account;
pub mod boards;
pub mod compare;
pub mod device;
pub mod domains;
pub mod home;
pub mod jobs;
pub mod keys;
pub mod members;
pub mod models;
pub mod orgs;
pub mod provider;
pub mod search;
pub mod sign_in;
pub mod submit;
pub mod suites;
pub mod terms;
pub mod usage;
