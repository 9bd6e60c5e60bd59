//! The tests of the whole platform: real processes on a real PostgreSQL and a real Redis, a database a test.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod answers;
mod clients;
mod crashes;
mod credentials;
mod errors;
mod evals;
mod feedback;
mod grpc;
mod harness;
mod hostile;
mod jobs;
mod keys;
mod launcher;
mod limits;
mod members;
mod models;
mod operator;
mod races;
mod routes;
mod source;
mod suites;
mod traces;
mod usage;
