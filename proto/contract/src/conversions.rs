//! The conversions of resources to messages: one `From` for each message with the option `resource`.
//! It destructures the resource by name, so that a field on one side only is a compile error.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use quote::quote;

use crate::contract::{Contract, MessageOption};
use crate::grpc::has_presence;
use crate::names::upper_camel;
use crate::problem::{Position, Problem};
use crate::rust_file::{self, identifier};

/// The messages whose Rust types are not generated from the contract. `IntoProto` converts to them.
const LEAVES: [&str; 2] = ["google.protobuf.Timestamp", "google.protobuf.Struct"];

/// Returns the content of `proto/src/generated/conversions.rs`.
///
/// # Errors
/// All errors in messages with the option.
pub fn generate(contract: &Contract) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut modules = BTreeSet::new();
    let mut items = Vec::new();
    for message in contract.messages() {
        if let Some(option) = contract.message_option(&message)
            && !option.resource.is_empty()
            && !option.by_hand
        {
            match conversion(contract, &message, &option) {
                Ok((module, item)) => {
                    modules.insert(module);
                    items.push((Position::message(&message), item));
                }
                Err(found) => problems.extend(found),
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let imports = quote! {
        use assay_core::model::{#(#modules),*};
        use crate::convert::IntoProto;
        use crate::v1;
    };
    rust_file::write(imports, Vec::new(), items)
}

/// Returns the conversion to a message, and the module of its resource.
fn conversion(
    contract: &Contract,
    message: &MessageDescriptor,
    option: &MessageOption,
) -> Result<(Ident, TokenStream), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut declared = None;
    match resource(contract, message, option) {
        Ok(resource) => declared = Some((resource, identifier(message.name()))),
        Err(what) => {
            let position = Position::message(message);
            problems.push(Problem::new(&position, message.name(), what));
        }
    }
    let mut values = Vec::new();
    for field in message.fields() {
        match value(&field) {
            Ok(value) => values.push(value),
            Err(what) => {
                let name = format!("{}.{}", message.name(), field.name());
                problems.push(Problem::new(&Position::field(&field), &name, what));
            }
        }
    }
    let Some((resource, name)) = declared.filter(|_| problems.is_empty()) else {
        return Err(problems);
    };
    let Resource {
        module,
        path,
        pattern,
    } = resource;
    let item = quote! {
        impl From<#path> for v1::#name {
            fn from(resource: #path) -> Self {
                let #pattern = resource;
                Self { #(#values),* }
            }
        }
    };
    Ok((module, item))
}

/// A resource in Rust.
struct Resource {
    /// The module of `assay_core::model`.
    module: Ident,
    /// The path below `assay_core::model`.
    path: syn::Path,
    /// The pattern that binds the fields of the message.
    pattern: TokenStream,
}

/// Returns the resource of a message.
fn resource(
    contract: &Contract,
    message: &MessageDescriptor,
    option: &MessageOption,
) -> Result<Resource, String> {
    let MessageOption {
        resource, flatten, ..
    } = option;
    if message.parent_message().is_some() {
        return Err("a message inside another one cannot have a resource".to_owned());
    }
    let (module, path) = resource_path(resource)
        .ok_or_else(|| format!("resource `{resource}` is not a path such as `webhook::Webhook`"))?;
    let mut bindings = Vec::new();
    let mut flattened = BTreeSet::new();
    if let Some(name) = flatten {
        let (part, resource) = flattened_part(contract, message, name)?;
        flattened.extend(part.fields().map(|field| field.name().to_owned()));
        let (name, pattern) = (identifier(name), resource.pattern);
        bindings.push(quote!(#name: #pattern));
    }
    for field in message.fields() {
        if !flattened.contains(field.name()) {
            let name = identifier(field.name());
            bindings.push(quote!(#name));
        }
    }
    let pattern = quote!(#path { #(#bindings),* });
    Ok(Resource {
        module,
        path,
        pattern,
    })
}

/// Reads a path below `assay_core::model`. Returns its module and the path.
fn resource_path(text: &str) -> Option<(Ident, syn::Path)> {
    let path: syn::Path = syn::parse_str(text).ok()?;
    let is_plain = path
        .segments
        .iter()
        .all(|segment| segment.arguments.is_none());
    let module = path.segments.first()?.ident.clone();
    (is_plain && path.leading_colon.is_none() && path.segments.len() > 1).then_some((module, path))
}

/// Returns the message of the field that the option `flatten` names, and its resource.
fn flattened_part(
    contract: &Contract,
    message: &MessageDescriptor,
    flatten: &str,
) -> Result<(MessageDescriptor, Resource), String> {
    let name = upper_camel(flatten);
    let Some(part) = contract.message(&name) else {
        return Err(format!("flatten `{flatten}`: there is no message {name}"));
    };
    let Some(option) = contract.message_option(&part) else {
        return Err(format!("flatten `{flatten}`: {name} has no resource"));
    };
    if option.flatten.is_some() {
        return Err(format!("flatten `{flatten}`: {name} itself has the option"));
    }
    for field in part.fields() {
        if message.get_field_by_name(field.name()).is_none() {
            let field = field.name();
            return Err(format!("flatten `{flatten}`: {name}.{field} is missing"));
        }
    }
    let resource = resource(contract, &part, &option)?;
    Ok((part, resource))
}

/// Returns the field of the message with its value: the converted field of the resource.
fn value(field: &FieldDescriptor) -> Result<TokenStream, String> {
    let name = identifier(field.name());
    if field
        .containing_oneof()
        .is_some_and(|oneof| !oneof.is_synthetic())
    {
        return Err("a oneof has no conversion".to_owned());
    }
    let is_optional = has_presence(field);
    let kind = match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => entry.map_entry_value_field().kind(),
        kind => kind,
    };
    let value = match kind {
        Kind::String | Kind::Bool | Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Uint64 => {
            quote!(#name.into_proto())
        }
        Kind::Message(_) if field.is_map() => {
            return Err("a map of messages has no conversion".to_owned());
        }
        Kind::Message(message) => {
            let is_leaf = LEAVES.contains(&message.full_name());
            match (is_leaf, field.is_list(), is_optional) {
                (true, true, _) | (true, _, true) => quote!(#name.into_proto()),
                (true, false, false) => quote!(Some(#name.into_proto())),
                (false, true, _) => quote!(#name.into_iter().map(Into::into).collect()),
                (false, _, true) => quote!(#name.map(Into::into)),
                (false, false, false) => quote!(Some(#name.into())),
            }
        }
        kind => return Err(format!("the type {kind:?} has no conversion")),
    };
    Ok(quote!(#name: #value))
}
