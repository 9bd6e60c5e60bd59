//! The operations of the platform, which both protocols share. Each is one function
//! `(&App, proof, input) -> Result<T>`. This module uses neither axum nor tonic.

pub mod account;
pub mod audit;
pub mod auth;
pub mod boards;
pub mod comparisons;
pub mod complete_upload;
pub mod device;
pub mod domains;
pub mod evals;
pub mod events;
pub mod generation_stream;
pub mod health;
pub mod invites;
pub mod job_output;
pub mod jobs;
pub mod keys;
pub mod me;
pub mod members;
pub mod models;
pub mod orgs;
pub mod predictions;
pub mod queue;
pub mod receipts;
pub mod serving;
mod serving_charge;
pub mod sessions;
mod stored_item_scores;
pub mod submissions;
pub mod suites;
pub mod terms;
pub mod trace_document;
pub mod upload_fit;
pub mod uploads;
pub mod usage;
pub mod webhooks;
