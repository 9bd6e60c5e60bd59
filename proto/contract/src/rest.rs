//! The REST adapter: a handler for each operation with its description in OpenAPI, and the router.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Literal, TokenStream};
use prost_reflect::Kind;
use quote::quote;

use crate::contract::Contract;
use crate::declarations::{Access, Body, Field, Operation, Place};
use crate::inputs::{self, doc_lines};
use crate::names::snake;
use crate::problem::{Position, Problem};
use crate::rust_file::{self, identifier};
use crate::schemas;

/// Returns the content of `api/src/generated/rest.rs`.
///
/// # Errors
/// All errors in the declarations.
pub fn generate(contract: &Contract, operations: &[Operation]) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut items = Vec::new();
    for operation in operations {
        match handler(contract, operation) {
            Ok(item) => {
                let reader = inputs::reader(operation);
                items.push((operation.position(), quote!(#reader #item)));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let imports = quote! {
        use assay_core::model;
        use assay_core::model::permissions;
        use axum::extract::{Extension, Request, State};
        use axum::response::{IntoResponse as _, Response};
        use axum::routing::{delete, get, patch, post, put};
        use axum::{Json, Router};
        use http::{StatusCode, Uri};
        use super::inputs;
        use super::schemas::*;
        use crate::app::App;
        use crate::http::error_response::Failure;
        use crate::http::request_context::RequestContext;
        use crate::limits::request_memory::SharedReservation;
        use crate::ops;
        use crate::rest::extract::{
            Ids, Permitted, SMALL_BODY_MAX, read_json_body, read_optional_json_body,
        };
        use crate::rest::input::{Fields, Query};
        use crate::rest::special;
    };
    let common = vec![
        router(operations),
        description(operations, &contract.tags()),
    ];
    rust_file::write(imports, common, items)
}

/// Returns the function of the router: one route for each path.
fn router(operations: &[Operation]) -> TokenStream {
    let mut paths: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        paths.entry(&operation.path).or_default().push(operation);
    }
    let routes = paths.into_iter().map(|(path, operations)| {
        let mut methods = operations.iter().map(|operation| {
            let (method, handler) = (identifier(operation.method), handler_name(operation));
            quote!(#method(#handler))
        });
        let first = methods.next();
        quote!(.route(#path, #first #(.#methods)*))
    });
    quote! {
        /// Returns the routes of all operations.
        pub fn routes() -> Router<App> {
            Router::new() #(#routes)*
        }
    }
}

/// Returns the list of the handlers for OpenAPI, and that of the tags.
fn description(operations: &[Operation], tags: &[(String, String)]) -> TokenStream {
    let handlers = operations.iter().map(handler_name);
    let count = Literal::usize_unsuffixed(tags.len());
    let tags = tags.iter().map(|(tag, text)| quote!((#tag, #text)));
    quote! {
        /// The OpenAPI description of every operation, as its handler defines it.
        #[derive(utoipa::OpenApi)]
        #[openapi(paths(#(#handlers),*))]
        pub struct Operations;

        /// The tags in the order of the API reference, with their descriptions.
        pub const TAGS: [(&str, &str); #count] = [#(#tags),*];
    }
}

fn handler_name(operation: &Operation) -> Ident {
    identifier(&snake(operation.rpc.name()))
}

/// Returns the handler of an operation.
fn handler(contract: &Contract, operation: &Operation) -> Result<TokenStream, Problem> {
    let attribute = attribute(contract, operation)?;
    let (summary, description) = operation.texts();
    let mut docs = vec![vec![summary]];
    docs.extend(description);
    let docs = doc_lines(&crate::comments::lines(&docs));
    let name = handler_name(operation);
    let proof = proof(operation);
    let ids: Vec<Ident> = operation
        .path_parameters()
        .iter()
        .map(|id| identifier(id))
        .collect();
    let count = Literal::usize_unsuffixed(ids.len());
    let mut parameters = vec![quote!(State(app): State<App>)];
    let mut before = TokenStream::new();
    let mut arguments = vec![quote!(&app)];
    match (&operation.caller.access, &proof) {
        (_, None) => {}
        (Access::Public(_), Some(proof)) => {
            parameters.push(quote!(credential: Option<Extension<permissions::Credential>>));
            before = quote!(let proof = permissions::#proof::of(credential.as_deref())?;);
            arguments.push(quote!(&proof));
        }
        (_, Some(proof)) => {
            let proof = permission(operation, proof);
            parameters.push(quote!(Permitted(proof): Permitted<#proof>));
            arguments.push(quote!(&proof));
        }
    }
    if !ids.is_empty() {
        parameters.push(quote!(Ids([#(#ids),*]): Ids<#count>));
        arguments.extend(ids.iter().map(|id| quote!(&#id)));
    }
    if operation.is_rest_special {
        let proof = proof.map(|_| quote!(proof,));
        let ids = (!ids.is_empty()).then(|| quote!([#(#ids),*],));
        parameters.push(quote!(request: Request));
        return Ok(quote! {
            #docs
            #attribute
            async fn #name(#(#parameters),*) -> Result<Response, Failure> {
                #before
                special::#name(app, #proof #ids request).await
            }
        });
    }
    if operation.origin {
        parameters.push(quote!(context: RequestContext));
        arguments.push(quote!(context.origin()));
    }
    if operation.charges_memory {
        parameters.push(quote!(Extension(room): Extension<SharedReservation>));
    }
    let input = identifier(operation.rpc.name());
    let read = match (operation.input(), operation.body) {
        (None, _) => TokenStream::new(),
        (Some(_), Body::None) => {
            parameters.push(quote!(uri: Uri));
            arguments.push(quote!(input));
            quote! {
                let mut query = Query::read(&uri);
                let input = inputs::#input::read(&mut query);
                query.finish()?;
            }
        }
        (Some(_), body) => {
            parameters.push(quote!(request: Request));
            arguments.push(quote!(input));
            let reader = match body {
                Body::Optional => quote!(read_optional_json_body),
                _ => quote!(read_json_body),
            };
            quote! {
                let body = #reader(&app, request, SMALL_BODY_MAX).await?;
                let mut fields = Fields::read(&body)?;
                let input = inputs::#input::read(&mut fields);
                fields.finish()?;
            }
        }
    };
    if operation.charges_memory {
        arguments.push(quote!(&room));
    }
    let call = call(operation)
        .map_err(|what| Problem::new(&operation.position(), operation.rpc.name(), what))?;
    let status = status_code(operation.success);
    let call = quote!(ops::#call(#(#arguments),*).await?);
    let respond = match operation.success {
        200 => quote!(Ok(Json(#call).into_response())),
        204 => quote!(#call; Ok(#status.into_response())),
        _ => quote!(Ok((#status, Json(#call)).into_response())),
    };
    Ok(quote! {
        #docs
        #attribute
        async fn #name(#(#parameters),*) -> Result<Response, Failure> {
            #before
            #read
            #respond
        }
    })
}

/// Returns the path of the function below `ops`.
///
/// # Errors
/// If it is not a path.
pub fn call(operation: &Operation) -> Result<syn::Path, String> {
    let what = |_| format!("call `{}` is not a path", operation.call);
    syn::parse_str(&operation.call).map_err(what)
}

fn status_code(status: u16) -> TokenStream {
    match status {
        201 => quote!(StatusCode::CREATED),
        202 => quote!(StatusCode::ACCEPTED),
        204 => quote!(StatusCode::NO_CONTENT),
        _ => quote!(StatusCode::OK),
    }
}

/// Returns the proof that an operation takes. `None` if it takes none.
pub fn proof(operation: &Operation) -> Option<Ident> {
    operation.caller.proof.map(identifier)
}

/// Returns the type of a proof, with the acceptance of the terms if it is required.
pub fn permission(operation: &Operation, proof: &Ident) -> TokenStream {
    match operation.caller.terms {
        true => quote!(permissions::TermsAccepted<permissions::#proof>),
        false => quote!(permissions::#proof),
    }
}

/// Returns the attribute that describes an operation in OpenAPI.
fn attribute(contract: &Contract, operation: &Operation) -> Result<TokenStream, Problem> {
    let method = identifier(operation.method);
    let Operation { path, id, tag, .. } = operation;
    let security = security(operation);
    let mut parts = vec![
        quote!(#method),
        quote!(path = #path),
        quote!(operation_id = #id),
        quote!(tag = #tag),
        quote!(security(#security)),
    ];
    let mut parameters = Vec::new();
    for field in &operation.fields {
        if let Some(parameter) = parameter(field)? {
            parameters.push(parameter);
        }
    }
    if !parameters.is_empty() {
        parts.push(quote!(params(#(#parameters),*)));
    }
    match operation.body {
        Body::None => {}
        Body::Bytes => parts.push(quote!(request_body(
            content_type = "application/octet-stream",
            description = "The bytes of the part, unchanged.",
        ))),
        Body::Required => {
            let name = schemas::name(contract, operation)?;
            parts.push(quote!(request_body = #name));
        }
        Body::Optional => {
            let name = schemas::name(contract, operation)?;
            parts.push(quote!(request_body = Option<#name>));
        }
    }
    let mut responses = success(contract, operation)?;
    for (status, when) in &operation.refuses {
        let status = Literal::u16_unsuffixed(*status);
        responses.push(quote!((status = #status, description = #when)));
    }
    parts.push(quote!(responses(#(#responses),*)));
    Ok(quote!(#[utoipa::path(#(#parts),*)]))
}

fn security(operation: &Operation) -> TokenStream {
    match &operation.caller.access {
        Access::Anyone => quote!(()),
        Access::Public(scope) => quote!((), ("api_key" = [#scope]), ("session" = [])),
        Access::Any => quote!(("api_key" = []), ("session" = [])),
        Access::Reader(scope) => quote!(("api_key" = [#scope]), ("session" = [])),
        Access::Submitter(scope) => quote!(("api_key" = [#scope]), ("session" = ["member"])),
        Access::Session => quote!(("session" = [])),
        Access::Member => quote!(("session" = ["member"])),
        Access::Owner => quote!(("session" = ["owner"])),
        Access::User => quote!(("session" = ["person"])),
    }
}

/// Returns the description of a parameter. `None` for a field of the body.
fn parameter(field: &Field) -> Result<Option<TokenStream>, Problem> {
    let problem = |what: String| {
        Problem::new(
            &Position::field(&field.descriptor),
            field.descriptor.name(),
            what,
        )
    };
    let (name, place) = match &field.place {
        Place::Path => (field.descriptor.name(), quote!(Path)),
        Place::Query => (field.descriptor.name(), quote!(Query)),
        Place::Header(name) => (name.as_str(), quote!(Header)),
        Place::Body | Place::None => return Ok(None),
    };
    let mut r#type = match &field.place {
        Place::Header(name) if name == "Idempotency-Key" => {
            quote!(crate::rest::extract::IdempotencyKeySchema)
        }
        Place::Header(_) if field.r#type.is_empty() => quote!(String),
        _ => match field.descriptor.kind() {
            Kind::Int32 => quote!(i32),
            _ => schemas::field_type(field).map_err(problem)?,
        },
    };
    if field.place != Place::Path && !field.required {
        r#type = quote!(inline(Option<#r#type>));
    }
    let description = field.description.join(" ");
    let attributes = schemas::attributes(field).map_err(problem)?;
    let attributes = (!attributes.is_empty()).then(|| quote!(, #attributes));
    Ok(Some(
        quote!((#name = #r#type, #place, description = #description #attributes)),
    ))
}

/// Returns the descriptions of a success.
fn success(contract: &Contract, operation: &Operation) -> Result<Vec<TokenStream>, Problem> {
    if !operation.responses.is_empty() {
        let responses = operation.responses.iter().map(|attributes| {
            let parsed = attributes.parse::<TokenStream>();
            let what = |_| format!("responses `{attributes}` is not Rust");
            parsed
                .map(|attributes| quote!((#attributes)))
                .map_err(|error| Problem::new(&operation.position(), &operation.id, what(error)))
        });
        return responses.collect();
    }
    let status = Literal::u16_unsuffixed(operation.success);
    let description = &operation.success_when;
    if operation.success == 204 {
        return Ok(vec![quote!((status = #status, description = #description))]);
    }
    let body = resource(contract, operation)?;
    Ok(vec![
        quote!((status = #status, description = #description, body = #body)),
    ])
}

/// Returns the resource that an operation returns.
fn resource(contract: &Contract, operation: &Operation) -> Result<TokenStream, Problem> {
    let response = operation.rpc.output();
    let inner = response.fields().find_map(|field| match field.kind() {
        Kind::Message(message) if !field.is_list() => contract.resource(&message),
        _ => None,
    });
    match contract
        .resource(&response)
        .or(inner)
        .map(|path| path.parse::<TokenStream>())
    {
        Some(Ok(path)) => Ok(quote!(model::#path)),
        _ => {
            let position = Position::message(&response);
            Err(Problem::new(
                &position,
                response.name(),
                "names no resource",
            ))
        }
    }
}
