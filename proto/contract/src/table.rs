//! The table of operations: all that layers, clients and tests need to know about each.

use std::fmt::Write as _;

use crate::declarations::{Access, Operation};
use crate::names::{snake, upper_camel};
use crate::rust_file::HEADER;

/// Returns the content of `proto/src/generated/operations.rs`.
pub fn generate(operations: &[Operation]) -> String {
    let mut text = format!(
        "{HEADER}\nuse crate::operations::{{Access, Operation, Rate, Retry, Traffic}};\n\n\
         /// All operations of the API.\n\
         pub static OPERATIONS: [Operation; {}] = [\n",
        operations.len()
    );
    for operation in operations {
        let rpcs = operation.rpc_paths();
        let rpcs: Vec<_> = rpcs.iter().map(|path| format!("\"/{path}\"")).collect();
        let audit: Vec<_> = operation
            .audit
            .iter()
            .map(|kind| format!("{kind:?}"))
            .collect();
        let lines = [
            operation.position().comment(),
            "Operation {".to_owned(),
            format!("    id: {:?},", operation.id),
            format!("    method: {:?},", operation.method.to_uppercase()),
            format!("    path: {:?},", operation.path),
            format!("    rpcs: &[{}],", rpcs.join(", ")),
            format!("    access: {},", access(&operation.caller.access)),
            format!("    terms: {},", operation.caller.terms),
            format!("    traffic: Traffic::{},", upper_camel(&operation.traffic)),
            format!("    rate: Rate::{},", upper_camel(&operation.rate)),
            format!("    retry: Retry::{},", upper_camel(&operation.retry)),
            format!("    audit: &[{}],", audit.join(", ")),
            format!("    success: {},", operation.success),
            format!("    slow: {},", operation.slow),
            "},".to_owned(),
        ];
        for line in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {line}");
        }
    }
    text + "];\n"
}

/// Returns the variant of `Access`.
fn access(access: &Access) -> String {
    match access {
        Access::Anyone => "Access::Anyone".to_owned(),
        Access::Public(scope) => format!("Access::Public({scope:?})"),
        Access::Any => "Access::Any".to_owned(),
        Access::Reader(scope) => format!("Access::Reader({scope:?})"),
        Access::Submitter(scope) => format!("Access::Submitter({scope:?})"),
        Access::Session => "Access::Session".to_owned(),
        Access::Member => "Access::Member".to_owned(),
        Access::Owner => "Access::Owner".to_owned(),
        Access::User => "Access::User".to_owned(),
    }
}

/// Returns the content of `clients/cli/src/generated/operations.rs`. The command-line program does not
/// depend on the messages of gRPC, so it has a table of its own.
pub fn for_program(operations: &[Operation]) -> String {
    let mut text = format!(
        "{HEADER}
/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {{
    /// The `operationId` of the OpenAPI document; the method for an unknown operation.
    pub id: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The template of the path. Empty for an unknown operation.
    pub path: &'static str,
}}
"
    );
    let mut names = Vec::new();
    for operation in operations {
        let name = snake(&upper_camel(&operation.id)).to_uppercase();
        let (method, line) = (operation.method.to_uppercase(), operation.line());
        let Operation { id, path, .. } = operation;
        let _ = write!(
            text,
            "\n/// `{line}`\npub const {name}: Operation = Operation {{\n    \
             id: {id:?},\n    method: {method:?},\n    path: {path:?},\n}};\n"
        );
        names.push(name);
    }
    let _ = writeln!(
        text,
        "\n/// All operations of the API.\npub const ALL: &[Operation] = &["
    );
    for name in names {
        let _ = writeln!(text, "    {name},");
    }
    text + "];\n"
}
