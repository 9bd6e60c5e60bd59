//! The generator of the code that follows from the contract in `proto/assay/v1`. The options in
//! `options.proto` declare what is generated. `cargo contract` writes the files, which are checked in.

mod contract;
mod conversions;
mod generate;
mod problem;
mod rust_file;
#[cfg(test)]
mod tests;

pub use contract::{Sources, read_sources};
pub use generate::{GeneratedFile, generate};
pub use problem::Problem;
