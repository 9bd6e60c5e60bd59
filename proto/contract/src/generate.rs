//! All generated files.

use crate::contract::{Contract, Sources};
use crate::documents::Documents;
use crate::problem::Problem;
use crate::{conversions, declarations, documents, grpc, inputs, rest, schemas, table};

/// A generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    /// The path in the repository.
    pub path: &'static str,
    /// The whole content.
    pub content: String,
}

/// Generates all files from the contract. `documents` are the files that have a generated part.
///
/// # Errors
/// All errors in the contract, each with its position.
pub fn generate(
    sources: &Sources,
    documents: &Documents,
) -> Result<Vec<GeneratedFile>, Vec<Problem>> {
    let contract = Contract::compile(sources)?;
    let operations = declarations::read(&contract)?;
    let file = |path, content| GeneratedFile { path, content };
    let mut files = vec![
        file(
            "proto/src/generated/conversions.rs",
            conversions::generate(&contract)?,
        ),
        file(
            "proto/src/generated/operations.rs",
            table::generate(&operations),
        ),
        file(
            "clients/cli/src/generated/operations.rs",
            table::for_program(&operations),
        ),
        file(
            "api/src/generated/inputs.rs",
            inputs::generate(&operations)?,
        ),
        file(
            "api/src/generated/schemas.rs",
            schemas::generate(&contract, &operations)?,
        ),
        file(
            "api/src/generated/rest.rs",
            rest::generate(&contract, &operations)?,
        ),
        file(
            "api/src/generated/grpc.rs",
            grpc::generate(&contract, &operations)?,
        ),
    ];
    let written = documents::generate(documents, &operations)?;
    files.extend(
        written
            .into_iter()
            .map(|(path, content)| file(path, content)),
    );
    Ok(files)
}
