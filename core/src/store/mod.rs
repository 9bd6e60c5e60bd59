//! All the platform's SQL statements, one function each. No other module uses sqlx's queries.
//!
//! Tenancy: a function on an organization's rows takes the organization as its second parameter,
//! and its statement names it. A statement that acts for all organizations starts with a comment
//! `/* all tenants: <reason> */`. A test lists the functions with such statements.
//!
//! Functions return what they found, and the operations decide. Exceptions: [`submission`],
//! [`allowance`] and [`finalization`] check quotas and limits between their statements, because a
//! submission is one transaction, and its checks are exact only while the rows that they count are
//! locked. [`work`] and [`cleanup`] open their own transactions for the same reason.
//!
//! Folders group the modules by subject, without import cycles. Callers name a module without its
//! folder: `store::webhook`.

mod boards;
mod db;
mod drafts;
mod jobs;
mod models;
pub mod operator;
mod people;
mod records;
mod submissions;
mod suites;
mod uploads;
pub mod usage;
mod webhooks;

pub use boards::*;
pub use db::{
    Connection, PgConnection, PgPool, PoolProfile, Postgres, PrimaryPool, RESPONSE_TIMEOUT,
    TaskConnections, Transaction, acquire_within, combined_requests, combined_statements, connect,
    disconnect, doctor, is_deadlock, lock_name, notifications, now, pool, pool_with_task, presence,
    unique_violation, within_response_timeout,
};
pub use drafts::*;
pub use jobs::*;
pub use models::*;
pub use operator::migrations;
pub use people::*;
pub use records::*;
pub use submissions::*;
pub use suites::*;
pub use uploads::*;
pub use usage::plan;
pub use webhooks::*;
