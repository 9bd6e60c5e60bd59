//! Suites whose items and answers are one table, or JSON arrays: converts them to the lines of
//! `items.ndjson` and `answers.ndjson`. All programs compute the same bytes, and so the same commitment.
//!
//! A table is read twice at most, row by row. Messages quote no value of an answer.

mod arrays;
mod cell;
mod convert;
mod converter;
mod csv_table;
mod errors;
mod json_rows;
mod json_table;
mod parquet_table;
mod read_suite;

pub use convert::{columns, convert};
pub use errors::TableErrors;
pub use read_suite::read_suite;
