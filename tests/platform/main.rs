//! The tests of the whole platform: real processes on a real PostgreSQL and a real Redis, a database a test.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod answers;
mod clients;
mod crashes;
mod credentials;
mod errors;
mod evals;
mod grpc;
mod guide;
mod harness;
mod jobs;
mod keys;
mod launcher;
mod limits;
mod members;
mod metering;
mod models;
mod openapi;
mod operator;
mod schemathesis;
mod source;
mod suites;
mod traces;
mod usage;
