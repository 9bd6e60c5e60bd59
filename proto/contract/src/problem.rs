//! Errors in the contract, and the places where they are.

use std::fmt;

use prost_reflect::{
    FieldDescriptor, FileDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};

/// The line and the column at which a declaration begins, both counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    file: String,
    line: i32,
    column: i32,
}

impl Position {
    /// Returns the position of a message.
    pub fn message(message: &MessageDescriptor) -> Self {
        Self::find(&message.parent_file(), message.path())
    }

    /// Returns the position of a field.
    pub fn field(field: &FieldDescriptor) -> Self {
        Self::find(&field.parent_file(), field.path())
    }

    /// Returns the position of an rpc.
    pub fn method(rpc: &MethodDescriptor) -> Self {
        Self::find(&rpc.parent_file(), rpc.path())
    }

    /// Returns the position of a service.
    pub fn service(service: &ServiceDescriptor) -> Self {
        Self::find(&service.parent_file(), service.path())
    }

    fn find(file: &FileDescriptor, path: &[i32]) -> Self {
        let info = file.file_descriptor_proto().source_code_info.as_ref();
        let locations = info.map_or(&[][..], |info| &info.location);
        let span = locations.iter().find(|location| location.path == path);
        let (line, column) = match span.map(|location| location.span.as_slice()) {
            Some([line, column, ..]) => (*line, *column),
            _ => (0, 0),
        };
        Self {
            file: format!("proto/{}", file.name()),
            line: line + 1,
            column: column + 1,
        }
    }

    /// Returns the comment above generated code, such as `// proto/assay/v1/webhooks.proto:21`.
    pub fn comment(&self) -> String {
        format!("// {}:{}", self.file, self.line)
    }
}

/// An error in the contract: its position, the name of the declaration, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(String);

impl Problem {
    /// Returns an error in a declaration.
    pub fn new(position: &Position, name: &str, what: impl fmt::Display) -> Self {
        let Position { file, line, column } = position;
        Self(format!("{file}:{line}:{column}: {name}: {what}"))
    }

    /// Returns an error in another file than those of the contract.
    pub fn in_file(path: &str, what: impl fmt::Display) -> Self {
        Self(format!("{path}: {what}"))
    }
}

impl From<protox::Error> for Problem {
    /// The debug format of the compiler's errors begins with the position.
    fn from(error: protox::Error) -> Self {
        Self(format!("proto/{error:?}"))
    }
}

impl From<syn::Error> for Problem {
    fn from(error: syn::Error) -> Self {
        Self(format!("The generated code is not Rust: {error}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
