//! The generator of the code that follows from the contract in `proto/assay/v1`. The options in
//! `options.proto` declare what is generated. `cargo contract` writes the files, which are checked in.

mod comments;
mod contract;
mod conversions;
mod declarations;
mod documents;
mod generate;
mod grpc;
mod inputs;
mod names;
mod problem;
mod rest;
mod rust_file;
mod schemas;
mod table;
#[cfg(test)]
mod tests;

pub use contract::{Sources, read_sources};
pub use documents::{Documents, read_documents};
pub use generate::{GeneratedFile, generate};
pub use problem::Problem;
