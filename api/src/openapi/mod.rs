//! The OpenAPI 3.1 document of the REST API, generated from the code.
//!
//! Handlers describe their operations, and resources their fields (`utoipa`). `rest::Operations`
//! lists the operations. This module adds the parts that operations share, such as errors and
//! headers.

mod common;
pub mod docs;
mod errors;
mod examples;
mod operations;
mod schemas;

use serde_json::{Value, json};
use utoipa::OpenApi as _;

use crate::rest::Operations;

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
    [
        ("evals", "Submission of predictions."),
        ("comparisons", "Comparisons of two jobs, item by item."),
        (
            "serving",
            "Predictions, continuations and embeddings by a published model.",
        ),
        (
            "uploads",
            "Predictions that are sent in parts before they are submitted. Create an upload, send \
             its parts, complete it, and submit its `input_ref`.",
        ),
        (
            "jobs",
            "The jobs of the organization: submissions, their states and results.",
        ),
        (
            "suites",
            "Suites and their items. Every organization sees all suites. No response contains an \
             answer.",
        ),
        (
            "boards",
            "The leaderboards of suites, and the entries of the organization.",
        ),
        (
            "receipts",
            "Signed statements about the figures of jobs, and the commitments of suites, which \
             anyone can verify. The receipt keys are at `/.well-known/jwks.json`, the transparency \
             log is below `/log/`.",
        ),
        ("queue", "The queue of jobs."),
        (
            "usage",
            "The usage of the organization, and the limits of its plan.",
        ),
        ("me", "The caller and its organizations."),
        (
            "auth",
            "Sign-in by email, device logins, and the sessions of the caller.",
        ),
        ("orgs", "The creation and settings of organizations."),
        (
            "keys",
            "The API keys of the organization. Users manage them with a session token.",
        ),
        ("events", "What happened in the organization."),
        ("webhooks", "URLs to which events are sent."),
        (
            "audit",
            "The audit log: who changed what in the organization.",
        ),
        (
            "members",
            "The members of the organization, and their roles.",
        ),
        (
            "invites",
            "Invites to the organization. Every operation requires the session token of an owner.",
        ),
        ("domains", "The email domains of the organization."),
        (
            "terms",
            "The terms of the installation. If it has any, an organization must accept them before \
             it creates keys or submits.",
        ),
        (
            "models",
            "The catalog of models. Every organization sees all models.",
        ),
        ("health", "The build and name of the installation."),
    ]
    .map(|(name, description)| json!({"name": name, "description": description}))
    .into()
}
