//! The receipt log, in `assay-api log` or in the API process: it signs the statements of receipts
//! and suites, and publishes the transparency log of their hashes.
//!
//! [`leader`] decides which process writes; [`signing`] signs statements and gives them indexes in
//! PostgreSQL; [`publication`] writes tiles and checkpoints to the artifact store; [`recovery`]
//! restores entries that the database has lost.

pub mod leader;
pub mod process;
pub mod publication;
pub mod recovery;
pub mod signing;
