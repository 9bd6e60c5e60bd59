//! The tables of operations in documents, and in the settings of clients and alerts. Most are parts of files that are
//! written by hand otherwise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::declarations::{Access, Operation, default_retry};
use crate::problem::Problem;

/// The texts of the files that have a generated part, by their paths in the repository.
pub type Documents = BTreeMap<&'static str, String>;

/// The guide, with a table of all operations.
const GUIDE: &str = "docs/guide.md";

/// The retry rules of the clients, with the class of each operation.
const RETRIES: &str = "clients/retries.json";

/// The alerts, some of which leave out operations that wait by design.
const ALERTS: &str = "helm/files/alerts.yaml";

/// Reads the files of a repository that have a generated part.
///
/// # Errors
/// If a file cannot be read.
pub fn read_documents(root: &Path) -> io::Result<Documents> {
    let mut documents = Documents::new();
    for path in [GUIDE, RETRIES, ALERTS] {
        documents.insert(path, std::fs::read_to_string(root.join(path))?);
    }
    Ok(documents)
}

/// Returns the files with their generated parts.
///
/// # Errors
/// The files in which the place of a generated part is not found.
pub fn generate(
    documents: &Documents,
    operations: &[Operation],
) -> Result<Vec<(&'static str, String)>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut written = vec![("docs/operations.json", json(operations))];
    for (path, text) in documents {
        let text = match *path {
            GUIDE => guide(text, operations),
            RETRIES => retries(text, operations),
            _ => alerts(text, operations),
        };
        match text {
            Ok(text) => written.push((path, text)),
            Err(what) => problems.push(Problem::in_file(path, what)),
        }
    }
    match problems.is_empty() {
        true => Ok(written),
        false => Err(problems),
    }
}

/// Returns the text with another part between the first `begin` and the `end` that follows it.
///
/// # Errors
/// If the text has no such place.
fn replaced(text: &str, begin: &str, end: &str, part: &str) -> Result<String, String> {
    let place = text.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = place.ok_or_else(|| format!("there is no `{}`", begin.trim()))?;
    Ok(format!("{before}{begin}{part}{end}{after}"))
}

/// Returns the guide with a row for each operation.
fn guide(text: &str, operations: &[Operation]) -> Result<String, String> {
    let mut rows = String::new();
    for operation in operations {
        let rpcs: Vec<_> = operation
            .rpcs()
            .map(|rpc| format!("`{}.{}`", rpc.parent_service().name(), rpc.name()))
            .collect();
        let (line, credential) = (operation.line(), credential(operation));
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "| `{line}` | {} | {credential} |", rpcs.join(", "));
    }
    replaced(
        text,
        "| REST | gRPC | credential |\n|---|---|---|\n",
        "\n\n",
        rows.trim_end(),
    )
}

/// Returns the words for the credential of an operation.
fn credential(operation: &Operation) -> String {
    match &operation.caller.access {
        Access::Anyone => "none".to_owned(),
        Access::Public(_) => {
            format!("key or session; none if {}", operation.caller.unless)
        }
        Access::Any | Access::Reader(_) => "key or session".to_owned(),
        Access::Submitter(_) => "key, or session of a member".to_owned(),
        Access::Session => "session".to_owned(),
        Access::Member => "session of a member".to_owned(),
        Access::Owner => "session of an owner".to_owned(),
        Access::User => "session, also without organization".to_owned(),
    }
}

/// Returns the retry rules with the operations whose class does not follow from the method, and those
/// that may take minutes.
fn retries(text: &str, operations: &[Operation]) -> Result<String, String> {
    let classes: Vec<_> = operations
        .iter()
        .filter(|operation| operation.retry != default_retry(operation.method))
        .map(|operation| format!("\n    \"{}\": \"{}\"", operation.id, operation.retry))
        .collect();
    let long: Vec<_> = operations
        .iter()
        .filter(|operation| operation.traffic == "large")
        .map(|operation| format!("\"{}\"", operation.id))
        .collect();
    let text = replaced(text, "  \"operations\": {", "\n  }", &classes.join(","))?;
    replaced(&text, "\"long_operations\": [", "]", &long.join(", "))
}

/// Returns the alerts with the operations that wait by design. The pages among them stay.
fn alerts(text: &str, operations: &[Operation]) -> Result<String, String> {
    const BEGIN: &str = "operation!~\"unknown|";
    let mut parts = text.split(BEGIN);
    let mut written = parts.next().unwrap_or_default().to_owned();
    if written == text {
        return Err(format!("there is no `{BEGIN}`"));
    }
    for part in parts {
        let (names, rest) = part.split_once('"').unwrap_or((part, ""));
        let names = match names.contains("/health") {
            true => names.to_owned(),
            false => slow(names, operations),
        };
        let _ = write!(written, "{BEGIN}{names}\"{rest}");
    }
    Ok(written)
}

/// Returns the names of the operations that wait by design, then the pages that are among these names.
fn slow(names: &str, operations: &[Operation]) -> String {
    let mut slow = Vec::new();
    for operation in operations.iter().filter(|operation| operation.slow) {
        slow.push(operation.line());
        slow.extend(operation.rpc_paths());
    }
    let is_page = |name: &&str| !name.contains("/v1/") && !name.starts_with("assay.v1.");
    slow.extend(names.split('|').filter(is_page).map(str::to_owned));
    slow.join("|")
}

/// Returns the table of operations for programs that are not Rust.
fn json(operations: &[Operation]) -> String {
    let rows: Vec<_> = operations
        .iter()
        .map(|operation| {
            format!(
                "{{\"id\": {:?}, \"method\": {:?}, \"path\": {:?}, \"rpcs\": {:?}, \"credential\": {:?}, \
                 \"traffic\": {:?}, \"retry\": {:?}, \"slow\": {}}}",
                operation.id,
                operation.method.to_uppercase(),
                operation.path,
                operation.rpc_paths(),
                credential(operation),
                operation.traffic,
                operation.retry,
                operation.slow,
            )
        })
        .collect();
    format!("[\n  {}\n]\n", rows.join(",\n  "))
}
