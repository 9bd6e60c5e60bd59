//! The description of the REST api, OpenAPI 3.1, made from the code.
//!
//! Handlers describe their operations and resources their fields (`utoipa`); `rest::Operations` lists them. What all
//! operations have in common, such as errors and headers, is added here, once.

mod common;
mod docs;
mod errors;
mod examples;
mod schemas;

use serde_json::{Value, json};
use utoipa::OpenApi as _;

pub use docs::routes;

use crate::rest::Operations;

/// The document. `git_sha` is the build that serves it; the committed file names none, so that it changes only when the
/// api does.
pub fn document(git_sha: Option<&str>) -> Value {
    let mut described = json!(Operations::openapi());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info(git_sha),
        "servers": [{"url": "/", "description": "The api that serves this document."}],
        "tags": tags(),
        "paths": described["paths"].take(),
        "components": described["components"].take(),
    });
    schemas::finish(&mut document);
    common::finish(&mut document);
    examples::finish(&mut document);
    document
}

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

fn tags() -> Value {
    [
        ("evals", "Submitting predictions."),
        (
            "comparisons",
            "How two jobs over the same hidden items differ.",
        ),
        (
            "uploads",
            "Predictions that are sent in parts, before they are submitted.",
        ),
        ("jobs", "What becomes of a submission."),
        (
            "suites",
            "What there is to predict. Suites belong to the platform.",
        ),
        ("usage", "What an organization has used of its plan."),
        ("me", "Who calls."),
        ("auth", "Signing in and out."),
        ("orgs", "Organizations."),
        ("keys", "API keys, managed by people."),
        ("members", "The people of an organization."),
        ("invites", "Invites to an organization."),
        ("domains", "Domains that are known to be an organization's."),
        ("terms", "What an organization must accept first."),
        ("models", "The catalog of models."),
        ("health", "Whether the api answers."),
    ]
    .map(|(name, description)| json!({"name": name, "description": description}))
    .into()
}

/// Every operation of the document, with its path and method.
fn operations(document: &mut Value) -> impl Iterator<Item = (String, String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object_mut().into_iter().flatten();
        operations.map(move |(method, operation)| (path.clone(), method.clone(), operation))
    })
}
