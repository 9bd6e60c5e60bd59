//! All generated files.

use crate::contract::{Contract, Sources};
use crate::conversions;
use crate::problem::Problem;

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    /// The path in the repository.
    pub path: &'static str,
    /// The whole content.
    pub content: String,
}

/// Generates all files from the contract.
///
/// # Errors
/// All errors in the contract, each with its position.
pub fn generate(sources: &Sources) -> Result<Vec<GeneratedFile>, Vec<Problem>> {
    let contract = Contract::compile(sources)?;
    Ok(vec![GeneratedFile {
        path: "proto/src/generated/conversions.rs",
        content: conversions::generate(&contract)?,
    }])
}
