//! The schemas of request bodies in OpenAPI: structs from which `utoipa` derives them.

use proc_macro2::TokenStream;
use prost_reflect::Kind;
use quote::quote;

use crate::comments;
use crate::contract::Contract;
use crate::declarations::{Body, Field, Operation, Place};
use crate::inputs::{TIMESTAMP, doc_lines};
use crate::problem::{Position, Problem};
use crate::rust_file::{self, identifier};

/// Returns the content of `api/src/generated/schemas.rs`.
///
/// # Errors
/// The fields and messages whose schema is unknown.
pub fn generate(contract: &Contract, operations: &[Operation]) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut items = Vec::new();
    for operation in operations {
        if matches!(operation.body, Body::Required | Body::Optional) {
            match schema(contract, operation) {
                Ok(item) => items.push((operation.position(), item)),
                Err(found) => problems.push(found),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let imports = quote! {
        use assay_core::model;
        use utoipa::ToSchema;
    };
    rust_file::write(imports, Vec::new(), items)
}

/// Returns the name of the schema of an operation's body.
///
/// # Errors
/// If the request message does not name it.
pub fn name(contract: &Contract, operation: &Operation) -> Result<syn::Ident, Problem> {
    let message = operation.rpc.input();
    let option = contract.message_option(&message);
    match option.filter(|option| !option.schema.is_empty()) {
        Some(option) => Ok(identifier(&option.schema)),
        None => {
            let position = Position::message(&message);
            let what = "is a body: name its schema with the option (assay.v1.message).schema";
            Err(Problem::new(&position, message.name(), what))
        }
    }
}

/// Returns the struct of a body.
fn schema(contract: &Contract, operation: &Operation) -> Result<TokenStream, Problem> {
    let message = operation.rpc.input();
    let name = name(contract, operation)?;
    // The first paragraph names the rpc.
    let mut paragraphs = comments::paragraphs(&message.parent_file(), message.path());
    paragraphs.drain(..paragraphs.len().min(1));
    let docs = match paragraphs.is_empty() {
        true => vec![format!("The request body of `{}`.", operation.line())],
        false => comments::lines(&paragraphs),
    };
    let docs = doc_lines(&docs);
    let fields: Result<Vec<_>, _> = operation.fields_at(&Place::Body).map(field).collect();
    let fields = fields?;
    Ok(quote! {
        #docs
        #[derive(ToSchema)]
        pub struct #name { #(#fields),* }
    })
}

/// Returns a field of a body.
fn field(field: &Field) -> Result<TokenStream, Problem> {
    let problem = |what: String| {
        Problem::new(
            &Position::field(&field.descriptor),
            field.descriptor.name(),
            what,
        )
    };
    let docs = doc_lines(&field.description);
    let name = identifier(field.descriptor.name());
    let mut r#type = field_type(field).map_err(problem)?;
    if !field.required {
        r#type = quote!(Option<#r#type>);
    }
    let attributes = attributes(field).map_err(problem)?;
    let attributes = (!attributes.is_empty()).then(|| quote!(#[schema(#attributes)]));
    Ok(quote!(#docs #attributes pub #name: #r#type))
}

/// Returns the type that has the schema of a field.
///
/// # Errors
/// If it is not a type, or none is named and none follows from the field.
pub fn field_type(field: &Field) -> Result<TokenStream, String> {
    let descriptor = &field.descriptor;
    if field.r#type.is_empty() {
        let plain = match (descriptor.kind(), descriptor.is_list()) {
            (Kind::String, false) => quote!(String),
            (Kind::Int64, false) => quote!(i64),
            (Kind::Double, false) => quote!(f64),
            (Kind::Bool, false) => quote!(bool),
            (Kind::Message(message), false) if message.full_name() == TIMESTAMP => {
                quote!(model::timestamp::Timestamp)
            }
            _ => return Err("needs a type".to_owned()),
        };
        return Ok(plain);
    }
    let what = || format!("type `{}` is not a type", field.r#type);
    let parsed: syn::Type = syn::parse_str(&field.r#type).map_err(|_| what())?;
    qualified(&parsed).ok_or_else(what)
}

/// Returns a type below `assay_core::model` with its whole path. A constant of a page size stands for its
/// default and maximum.
fn qualified(r#type: &syn::Type) -> Option<TokenStream> {
    let syn::Type::Path(path) = r#type else {
        return None;
    };
    let path = &path.path;
    let last = path.segments.last()?;
    let arguments = match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => Some(arguments.args.first()?),
        _ => None,
    };
    let name = &last.ident;
    let modules: Vec<_> = path.segments.iter().map(|segment| &segment.ident).collect();
    match (modules.len(), arguments) {
        (1, None) => Some(quote!(#name)),
        (1, Some(syn::GenericArgument::Type(element))) => {
            let element = qualified(element)?;
            Some(quote!(#name<#element>))
        }
        (_, None) => Some(quote!(model::#(#modules)::*)),
        (_, Some(syn::GenericArgument::Type(page))) => {
            Some(quote!(model::#(#modules)::*<{ model::#page.0 }, { model::#page.1 }>))
        }
        _ => None,
    }
}

/// Returns the attributes of a field's schema.
///
/// # Errors
/// If they are not Rust.
pub fn attributes(field: &Field) -> Result<TokenStream, String> {
    let mut parts = Vec::new();
    if !field.schema.is_empty() {
        let parsed: TokenStream = field
            .schema
            .parse()
            .map_err(|_| format!("schema `{}` is not Rust", field.schema))?;
        parts.push(parsed);
    }
    if !field.example.is_empty() {
        let example = &field.example;
        parts.push(quote!(example = #example));
    }
    Ok(quote!(#(#parts),*))
}
