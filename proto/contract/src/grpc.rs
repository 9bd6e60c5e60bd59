//! The gRPC adapter: one `impl` for each service, and the list of the services.

use std::collections::BTreeSet;

use proc_macro2::TokenStream;
use prost_reflect::{
    FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};
use quote::{format_ident, quote};

use crate::contract::Contract;
use crate::declarations::{Access, Operation};
use crate::inputs::{Input, TIMESTAMP, kind};
use crate::names::snake;
use crate::problem::{Position, Problem};
use crate::rest::{call, permission, proof};
use crate::rust_file::{self, identifier};

/// Returns the content of `api/src/generated/grpc.rs`.
///
/// # Errors
/// All errors in the declarations.
pub fn generate(contract: &Contract, operations: &[Operation]) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut items = Vec::new();
    let mut services = Vec::new();
    for service in contract.services() {
        match registration(&service, operations) {
            Ok(registration) => services.push(registration),
            Err(problem) => problems.push(problem),
        }
        match implementation(contract, &service, operations) {
            Ok(item) => items.push((Position::service(&service), item)),
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let imports = quote! {
        use assay_core::model::permissions;
        use assay_proto::v1;
        use futures_util::stream::BoxStream;
        use tonic::service::Routes;
        use tonic::{Request, Response, Status, Streaming};
        use super::inputs;
        use crate::grpc::service::{SMALL_MESSAGE_MAX, Service};
        use crate::grpc::special;
        use crate::ops;
    };
    let common = vec![quote! {
        /// Returns the routes of all services.
        pub fn routes(service: &Service) -> Routes {
            Routes::from(axum::Router::new()) #(#services)*
        }
    }];
    rust_file::write(imports, common, items)
}

fn server_module(service: &ServiceDescriptor) -> TokenStream {
    let module = format_ident!("{}_server", snake(service.name()));
    quote!(v1::#module)
}

/// Returns the registration of a service, with the largest message that one of its rpcs accepts.
///
/// # Errors
/// If a limit is not a path.
fn registration(
    service: &ServiceDescriptor,
    operations: &[Operation],
) -> Result<TokenStream, Problem> {
    let (module, server) = (
        server_module(service),
        format_ident!("{}Server", service.name()),
    );
    let mut max = quote!(SMALL_MESSAGE_MAX);
    let mut included = BTreeSet::new();
    for operation in operations {
        let limit = operation.message_max.as_str();
        let is_own = operation.rpc.parent_service().full_name() == service.full_name();
        if is_own && !limit.is_empty() && included.insert(limit) {
            let what = |_| format!("message_max `{limit}` is not a path");
            let path: syn::Path = syn::parse_str(limit).map_err(|error| {
                Problem::new(&operation.position(), operation.rpc.name(), what(error))
            })?;
            max = quote!(usize::max(#max, #path));
        }
    }
    Ok(quote! {
        .add_service(#module::#server::new(service.clone()).max_decoding_message_size(#max))
    })
}

/// Returns the implementation of a service.
fn implementation(
    contract: &Contract,
    service: &ServiceDescriptor,
    operations: &[Operation],
) -> Result<TokenStream, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut methods = Vec::new();
    for rpc in service.methods() {
        let operation = operations
            .iter()
            .find(|operation| operation.rpcs().any(|other| *other == rpc));
        let Some(operation) = operation else { continue };
        match method(contract, &rpc, operation) {
            Ok(method) => methods.push(method),
            Err(what) => problems.push(Problem::new(&Position::method(&rpc), rpc.name(), what)),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let (module, name) = (server_module(service), identifier(service.name()));
    Ok(quote! {
        #[tonic::async_trait]
        impl #module::#name for Service { #(#methods)* }
    })
}

/// Returns the method of an rpc.
fn method(
    contract: &Contract,
    rpc: &MethodDescriptor,
    operation: &Operation,
) -> Result<TokenStream, String> {
    let name = identifier(&snake(rpc.name()));
    let (request, response) = (
        identifier(rpc.input().name()),
        identifier(rpc.output().name()),
    );
    let mut request = quote!(v1::#request);
    if rpc.is_client_streaming() {
        request = quote!(Streaming<#request>);
    }
    let (stream, returned) = if rpc.is_server_streaming() {
        let stream = format_ident!("{}Stream", rpc.name());
        (
            Some(quote! {
                type #stream = BoxStream<'static, Result<v1::#response, Status>>;
            }),
            quote!(Self::#stream),
        )
    } else {
        (None, quote!(v1::#response))
    };
    let body = match operation.is_grpc_special || operation.rpc != *rpc {
        true => quote!(special::#name(self, request).await),
        false => plain(contract, operation)?,
    };
    Ok(quote! {
        #stream
        async fn #name(&self, request: Request<#request>) -> Result<Response<#returned>, Status> {
            #body
        }
    })
}

/// Returns `true` if a message distinguishes the absent field from the empty one.
pub fn has_presence(field: &FieldDescriptor) -> bool {
    field.field_descriptor_proto().proto3_optional()
}

/// Returns the body of the method of a plain operation.
fn plain(contract: &Contract, operation: &Operation) -> Result<TokenStream, String> {
    let proof = proof(operation);
    let ids = operation.path_parameters();
    let ids: Vec<_> = ids.iter().map(|id| identifier(id)).collect();
    let mut arguments = vec![quote!(&app)];
    if proof.is_some() {
        arguments.push(quote!(&proof));
    }
    arguments.extend(ids.iter().map(|id| quote!(&#id)));
    if operation.origin {
        arguments.push(quote!(input.context.origin()));
    }
    let mut names = ids.clone();
    let mut values = Vec::new();
    for field in operation.input().unwrap_or_default() {
        let name = identifier(field.descriptor.name());
        names.push(name.clone());
        let is_timestamp = matches!(
            field.descriptor.kind(),
            Kind::Message(message) if message.full_name() == TIMESTAMP
        );
        values.push(match (kind(field)?, is_timestamp) {
            (Input::Text, true) => {
                quote!(#name: #name.map(|time| time.to_string()).unwrap_or_default())
            }
            (Input::OptionalText, true) => quote!(#name: #name.map(|time| time.to_string())),
            // A field that was required once stays without `optional`; an empty text is then absent.
            (Input::OptionalText, false) if !has_presence(&field.descriptor) => {
                quote!(#name: Some(#name).filter(|text| !text.is_empty()))
            }
            // A message cannot distinguish an empty list from an absent one.
            (Input::Texts, _) if !field.required => {
                quote!(#name: Some(#name).filter(|list| !list.is_empty()))
            }
            (Input::Texts, _) => quote!(#name: Some(#name)),
            _ => quote!(#name),
        });
    }
    let message = identifier(operation.rpc.input().name());
    let (mut read, mut input) = (TokenStream::new(), quote!(_));
    if !names.is_empty() {
        read = quote!(let v1::#message { #(#names),* } = input.message;);
        input = quote!(input);
    }
    if !values.is_empty() {
        let name = identifier(operation.rpc.name());
        read = quote!(#read let fields = inputs::#name { #(#values),* };);
        arguments.push(quote!(fields));
    }
    if operation.charges_memory {
        arguments.push(quote!(&input.room));
        input = quote!(input);
    }
    let call = call(operation)?;
    let call = quote!(ops::#call(#(#arguments),*).await?);
    let respond = response(contract, operation, &call)?;
    Ok(match (&operation.caller.access, proof) {
        (_, None) => quote! {
            self.respond_to_anyone(request, |app, #input| async move {
                #read
                #respond
            })
            .await
        },
        (Access::Public(_), Some(proof)) => quote! {
            let proof = permissions::#proof::of(request.extensions().get());
            self.respond_to_anyone(request, |app, #input| async move {
                let proof = proof?;
                #read
                #respond
            })
            .await
        },
        (_, Some(proof)) => {
            let permission = permission(operation, &proof);
            quote! {
                self.respond(request, |app, proof: #permission, #input| async move {
                    #read
                    #respond
                })
                .await
            }
        }
    })
}

/// Returns the response with the result of a call: the resource itself, or a message with it.
fn response(
    contract: &Contract,
    operation: &Operation,
    call: &TokenStream,
) -> Result<TokenStream, String> {
    let message = operation.rpc.output();
    let name = identifier(message.name());
    let is_resource = |message: &MessageDescriptor| contract.resource(message).is_some();
    if is_resource(&message) {
        return Ok(quote!(Ok(#call.into())));
    }
    let fields: Vec<_> = message.fields().collect();
    match fields.as_slice() {
        [] => Ok(quote!(#call; Ok(v1::#name {}))),
        [field] => match field.kind() {
            Kind::Message(inner) if is_resource(&inner) && !field.is_list() => {
                let field = identifier(field.name());
                Ok(quote!(Ok(v1::#name { #field: Some(#call.into()) })))
            }
            _ => Err("the response has no resource".to_owned()),
        },
        _ => Err("the response has no resource".to_owned()),
    }
}
