//! The inputs of operations: a struct for each, and the readers of the fields of a REST request.

use proc_macro2::{Ident, TokenStream};
use prost_reflect::Kind;
use quote::quote;

use crate::declarations::{Body, Field, Operation};
use crate::problem::{Position, Problem};
use crate::rust_file::{self, identifier};

/// The message of timestamps.
pub const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// The value of a field in an input.
pub enum Input {
    Text,
    OptionalText,
    Texts,
    Integer,
    Number,
    Boolean,
}

/// Returns the content of `api/src/generated/inputs.rs`.
///
/// # Errors
/// The fields whose type an input cannot have.
pub fn generate(operations: &[Operation]) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut items = Vec::new();
    for operation in operations {
        if let Some(fields) = operation.input() {
            match values(operation, &fields) {
                Ok(values) => items.push((operation.position(), declaration(operation, &values))),
                Err(found) => problems.extend(found),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    rust_file::write(TokenStream::new(), Vec::new(), items)
}

/// A field of an input.
struct InputValue {
    docs: TokenStream,
    name: Ident,
    r#type: TokenStream,
    /// The call that reads it from a REST request.
    reader: TokenStream,
}

/// Returns the fields of an input.
fn values(operation: &Operation, fields: &[&Field]) -> Result<Vec<InputValue>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut values = Vec::new();
    let is_query = operation.body == Body::None;
    for field in fields {
        let text = field.descriptor.name();
        let read = kind(field).and_then(|kind| match (kind, is_query) {
            (Input::Text, false) => Ok((quote!(String), quote!(fields.string(#text)))),
            (Input::OptionalText, false) => Ok((
                quote!(Option<String>),
                quote!(fields.optional_string(#text)),
            )),
            (Input::Text | Input::OptionalText, true) => {
                Ok((quote!(Option<String>), quote!(query.string(#text))))
            }
            (Input::Texts, false) => Ok((
                quote!(Option<Vec<String>>),
                quote!(fields.optional_strings(#text)),
            )),
            (Input::Integer, false) => {
                Ok((quote!(Option<i64>), quote!(fields.optional_integer(#text))))
            }
            (Input::Integer, true) => Ok((quote!(Option<i64>), quote!(query.integer(#text)))),
            (Input::Number, false) => {
                Ok((quote!(Option<f64>), quote!(fields.optional_number(#text))))
            }
            (Input::Boolean, false) => {
                Ok((quote!(Option<bool>), quote!(fields.optional_boolean(#text))))
            }
            (Input::Texts | Input::Number | Input::Boolean, true) => {
                Err("a query has only strings and integers".to_owned())
            }
        });
        match read {
            Ok((r#type, reader)) => values.push(InputValue {
                docs: doc_lines(&field.description),
                name: identifier(text),
                r#type,
                reader,
            }),
            Err(what) => {
                let name = format!("{}.{text}", operation.rpc.input().name());
                problems.push(Problem::new(
                    &Position::field(&field.descriptor),
                    &name,
                    what,
                ));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(values),
        false => Err(problems),
    }
}

/// Returns the struct of an input.
fn declaration(operation: &Operation, values: &[InputValue]) -> TokenStream {
    let name = identifier(operation.rpc.name());
    let doc = format!(" The input of `{}`.", operation.id);
    let fields = values.iter().map(|value| {
        let InputValue {
            docs, name, r#type, ..
        } = value;
        quote!(#docs pub #name: #r#type)
    });
    quote! {
        #[doc = #doc]
        #[derive(Debug, Default)]
        pub struct #name { #(#fields),* }
    }
}

/// Returns the reader of an input. `None` if the operation has none.
pub fn reader(operation: &Operation) -> Option<TokenStream> {
    // The errors are those of the declaration.
    let values = values(operation, &operation.input()?).ok()?;
    let name = identifier(operation.rpc.name());
    let read = values.iter().map(|value| {
        let InputValue { name, reader, .. } = value;
        quote!(#name: #reader)
    });
    let method = match operation.body == Body::None {
        true => quote! {
            /// Reads the parameters of a query.
            pub fn read(query: &mut Query) -> Self {
                Self { #(#read),* }
            }
        },
        false => quote! {
            /// Reads the fields of a body.
            pub fn read(fields: &mut Fields<'_>) -> Self {
                Self { #(#read),* }
            }
        },
    };
    Some(quote!(impl inputs::#name { #method }))
}

/// Returns the kind of value that an input has.
///
/// # Errors
/// If the type of the field has none.
pub fn kind(field: &Field) -> Result<Input, String> {
    let descriptor = &field.descriptor;
    match (descriptor.kind(), descriptor.is_list()) {
        (Kind::String, true) => Ok(Input::Texts),
        (Kind::String, false) if field.required => Ok(Input::Text),
        (Kind::String, false) => Ok(Input::OptionalText),
        (Kind::Message(message), false) if message.full_name() == TIMESTAMP => {
            Ok(match field.required {
                true => Input::Text,
                false => Input::OptionalText,
            })
        }
        (Kind::Int64, false) => Ok(Input::Integer),
        (Kind::Double, false) => Ok(Input::Number),
        (Kind::Bool, false) => Ok(Input::Boolean),
        (kind, _) => Err(format!("an input cannot have the type {kind:?}")),
    }
}

/// Returns the doc comment with these lines.
pub fn doc_lines(lines: &[String]) -> TokenStream {
    let lines = lines.iter().map(|line| match line.is_empty() {
        true => String::new(),
        false => format!(" {line}"),
    });
    quote!(#(#[doc = #lines])*)
}
