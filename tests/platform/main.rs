//! The tests of the whole platform: real processes on a real PostgreSQL and a real Redis, a database a test.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod answers;
mod artifacts;
mod auth;
mod clients;
mod crashes;
mod credentials;
mod domains;
mod errors;
mod evals;
mod feedback;
mod grpc;
mod harness;
mod hostile;
mod invites;
mod jobs;
mod keys;
mod launcher;
mod limits;
mod mail;
mod members;
mod models;
mod name_server;
mod operator;
mod orgs;
mod page;
mod races;
mod routes;
mod smtp;
mod source;
mod suites;
mod terms;
mod traces;
mod uploads;
mod usage;
