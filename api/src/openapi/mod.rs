//! The OpenAPI 3.1 document of the REST API, generated from the code.
//!
//! Generated handlers describe their operations, and resources their fields (`utoipa`). This module adds the parts that operations share, such as errors and
//! headers.

mod common;
pub mod docs;
mod errors;
mod examples;
mod operations;
mod schemas;

use serde_json::{Value, json};
use utoipa::OpenApi as _;

use crate::generated::rest::{Operations, TAGS};

/// Returns the document. `git_sha` is the build that serves it. The committed file names no build,
/// so that it changes only if the API does.
pub fn document(git_sha: Option<&str>) -> Value {
    let mut described = json!(Operations::openapi());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info(git_sha),
        "servers": [{"url": "/", "description": "The API that serves this document."}],
        "tags": tags(),
        "paths": described["paths"].take(),
        "components": described["components"].take(),
    });
    schemas::finish(&mut document);
    common::finish(&mut document);
    examples::finish(&mut document);
    document
}

/// Returns the title, version and introduction of the document.
fn info(git_sha: Option<&str>) -> Value {
    let mut info = json!({
        "title": "Assay",
        "summary": "Metered evaluation of models of human behaviour.",
        "description": include_str!("description.md").trim_end(),
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    });
    if let Some(git_sha) = git_sha {
        info["x-git-sha"] = git_sha.into();
    }
    info
}

/// Returns the tags, in the order of the page `/docs`.
fn tags() -> Value {
    TAGS.map(|(name, description)| json!({"name": name, "description": description}))
        .into()
}
