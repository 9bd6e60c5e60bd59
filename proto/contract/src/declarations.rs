//! The declarations of operations: the options of rpcs and of the fields of their requests.

use std::collections::BTreeSet;

use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ReflectMessage as _, Value,
};

use crate::comments;
use crate::contract::{Contract, flag, number, text};
use crate::names::lower_camel;
use crate::problem::{Position, Problem};

/// An operation as it is declared.
pub struct Operation {
    /// The rpc that mirrors the REST operation.
    pub rpc: MethodDescriptor,
    /// The other rpcs of the operation.
    pub other_forms: Vec<MethodDescriptor>,
    /// The tag in OpenAPI.
    pub tag: String,
    /// The HTTP method in lower case.
    pub method: &'static str,
    /// The template of the path.
    pub path: String,
    /// The operation id in OpenAPI.
    pub id: String,
    /// The path of the function below `ops`. Empty if both adapters are written by hand.
    pub call: String,
    /// The status of a success.
    pub success: u16,
    /// The description of a success.
    pub success_when: String,
    /// The responses of a success, if they are unusual, as attributes.
    pub responses: Vec<String>,
    /// The callers whom the operation admits.
    pub caller: Caller,
    /// The types of the audit entries.
    pub audit: Vec<String>,
    /// The class of retries, such as `repeatable`.
    pub retry: String,
    /// The traffic class, such as `jobs`.
    pub traffic: String,
    /// The count of the rate limit, such as `org`.
    pub rate: String,
    /// The body of the REST request.
    pub body: Body,
    /// The constant with the maximum size of a message, if it is large.
    pub message_max: String,
    /// `true` if the operation waits by design.
    pub slow: bool,
    /// The statuses of errors, and when they occur.
    pub refuses: Vec<(u16, String)>,
    /// `true` if the operation charges the memory of its response.
    pub charges_memory: bool,
    /// `true` if the function gets the origin of the request.
    pub origin: bool,
    /// `true` if the REST handler is written by hand.
    pub is_rest_special: bool,
    /// `true` if the rpc is written by hand.
    pub is_grpc_special: bool,
    /// The fields of the request.
    pub fields: Vec<Field>,
}

/// The callers whom an operation admits.
pub struct Caller {
    /// The access, as the table of operations names it.
    pub access: Access,
    /// The condition of access without a credential, after "unless".
    pub unless: String,
    /// `true` if the organization must have accepted the terms.
    pub terms: bool,
    /// The proof that the operation takes. `None` without a credential.
    pub proof: Option<&'static str>,
}

/// The credential that an operation requires.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    Anyone,
    Public(String),
    Any,
    Reader(String),
    Submitter(String),
    Session,
    Member,
    Owner,
    User,
}

/// The body of a REST request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Body {
    None,
    Required,
    Optional,
    Bytes,
}

/// A field of a request.
pub struct Field {
    pub descriptor: FieldDescriptor,
    /// The place of the field in a REST request.
    pub place: Place,
    pub required: bool,
    /// The type with the schema, below `assay_core::model`. Empty if it follows from the field.
    pub r#type: String,
    /// Further attributes of the schema.
    pub schema: String,
    /// An example.
    pub example: String,
    /// `true` if the REST handler reads the JSON of the value itself.
    pub raw: bool,
    /// The lines of the description.
    pub description: Vec<String>,
}

/// The place of a field in a REST request.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    Path,
    Query,
    Body,
    Header(String),
    /// The field is in gRPC only.
    None,
}

impl Operation {
    /// Returns the REST line, such as `GET /v1/keys`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    /// Returns all rpcs of the operation, its own first.
    pub fn rpcs(&self) -> impl Iterator<Item = &MethodDescriptor> {
        std::iter::once(&self.rpc).chain(&self.other_forms)
    }

    /// Returns the paths of the rpcs, such as `assay.v1.KeyService/ListKeys`.
    pub fn rpc_paths(&self) -> Vec<String> {
        let path =
            |rpc: &MethodDescriptor| format!("{}/{}", rpc.parent_service().full_name(), rpc.name());
        self.rpcs().map(path).collect()
    }

    /// Returns the position of the declaration.
    pub fn position(&self) -> Position {
        Position::method(&self.rpc)
    }

    /// Returns the fields at a place, in the order of the request.
    pub fn fields_at(&self, place: &Place) -> impl Iterator<Item = &Field> {
        self.fields
            .iter()
            .filter(move |field| field.place == *place)
    }

    /// Returns the parameters of the path, in the order of the path.
    pub fn path_parameters(&self) -> Vec<String> {
        parameters(&self.path)
    }

    /// Returns the fields of the input: those that are not in the path. `None` if there are none, or if
    /// the adapters read them by hand.
    pub fn input(&self) -> Option<Vec<&Field>> {
        let place = |field: &&Field| matches!(field.place, Place::Query | Place::Body);
        let fields: Vec<_> = self.fields.iter().filter(place).collect();
        let is_by_hand = self.is_rest_special && self.is_grpc_special;
        (!fields.is_empty() && !is_by_hand && fields.iter().all(|field| !field.raw))
            .then_some(fields)
    }

    /// Returns the summary without its full stop, and the paragraphs of the description.
    pub fn texts(&self) -> (String, Vec<Vec<String>>) {
        let file = self.rpc.parent_file();
        let mut paragraphs = comments::for_rest(comments::paragraphs(&file, self.rpc.path()));
        let summary = match paragraphs.is_empty() {
            true => String::new(),
            false => paragraphs.remove(0).join(" "),
        };
        paragraphs.push(comments::wrap(&self.caller.sentence()));
        (summary.trim_end_matches('.').to_owned(), paragraphs)
    }
}

impl Caller {
    /// Returns the sentence about the callers in the description of an operation.
    fn sentence(&self) -> String {
        let unless = &self.unless;
        let sentence = match &self.access {
            Access::Anyone => "Requires no credential.".to_owned(),
            Access::Public(_) => {
                format!("Requires an API key or a session token, unless {unless}.")
            }
            Access::Any | Access::Reader(_) => "Requires an API key or a session token.".to_owned(),
            Access::Submitter(_) => {
                "Requires an API key, or the session token of a member.".to_owned()
            }
            Access::Session => "Requires a session token.".to_owned(),
            Access::Member => "Requires the session token of a member.".to_owned(),
            Access::Owner => "Requires the session token of an owner.".to_owned(),
            Access::User => {
                "Requires a session token. The user need not belong to an organization.".to_owned()
            }
        };
        match self.terms {
            true => format!("{sentence} The organization must have accepted the terms."),
            false => sentence,
        }
    }
}

/// Reads all declarations, in the order of the tags, then of the files.
///
/// # Errors
/// All errors in the declarations.
pub fn read(contract: &Contract) -> Result<Vec<Operation>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut operations: Vec<Operation> = Vec::new();
    let mut other_forms = Vec::new();
    for service in contract.services() {
        let tag = contract.service_tag(&service);
        if tag.is_empty() {
            let position = Position::service(&service);
            problems.push(Problem::new(&position, service.name(), "has no tag"));
        }
        for rpc in service.methods() {
            let option = contract.method_option(&rpc);
            let read = match &option {
                None => Err(vec![
                    "is not declared: give the option (assay.v1.operation)".into(),
                ]),
                Some(option) if !text(option, "form_of").is_empty() => {
                    other_forms.push((text(option, "form_of"), rpc.clone()));
                    continue;
                }
                Some(option) => operation(contract, &rpc, &tag, option),
            };
            match read {
                Ok(operation) => operations.push(operation),
                Err(found) => problems.extend(
                    found
                        .into_iter()
                        .map(|what| Problem::new(&Position::method(&rpc), rpc.name(), what)),
                ),
            }
        }
    }
    for (name, rpc) in other_forms {
        match operations.iter_mut().find(|one| one.rpc.name() == name) {
            Some(operation) => operation.other_forms.push(rpc),
            None => {
                let what = format!("form_of `{name}`: there is no such rpc");
                problems.push(Problem::new(&Position::method(&rpc), rpc.name(), what));
            }
        }
    }
    problems.extend(repeated(&operations));
    match problems.is_empty() {
        true => Ok(operations),
        false => Err(problems),
    }
}

/// Returns the errors of operations with the same id, or the same method and path.
fn repeated(operations: &[Operation]) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for operation in operations {
        let Operation {
            id, method, path, ..
        } = operation;
        for name in [id.clone(), format!("{method} {path}")] {
            if !seen.insert(name.clone()) {
                let what = format!("another operation has `{name}`");
                problems.push(Problem::new(
                    &operation.position(),
                    operation.rpc.name(),
                    what,
                ));
            }
        }
    }
    problems
}

/// Reads a declaration.
fn operation(
    contract: &Contract,
    rpc: &MethodDescriptor,
    tag: &str,
    option: &DynamicMessage,
) -> Result<Operation, Vec<String>> {
    let mut problems = Vec::new();
    let (method, path) = ["get", "put", "post", "patch", "delete"]
        .into_iter()
        .map(|method| (method, text(option, method)))
        .find(|(_, path)| !path.is_empty())
        .unwrap_or_default();
    if path.is_empty() {
        problems.push("has no method and path".to_owned());
    }
    let caller = caller(option).unwrap_or_else(|what| {
        problems.push(what);
        Caller {
            access: Access::Owner,
            unless: String::new(),
            terms: false,
            proof: None,
        }
    });
    let audit = texts(option, "audit");
    if method != "get" && audit.is_empty() == text(option, "audit_exempt").is_empty() {
        problems.push("needs exactly one of audit and audit_exempt".to_owned());
    }
    let word = |field: &str, prefix: &str, absent: &str| match enum_name(option, field) {
        name if name.ends_with("_UNSPECIFIED") => absent.to_owned(),
        name => name.trim_start_matches(prefix).to_lowercase(),
    };
    let body = match (enum_name(option, "body").as_str(), method) {
        ("BODY_NONE", _) | (_, "get" | "delete") => Body::None,
        ("BODY_OPTIONAL", _) => Body::Optional,
        ("BODY_BYTES", _) => Body::Bytes,
        _ => Body::Required,
    };
    let idempotency_key = flag(option, "idempotency_key");
    let retry = word("retry", "RETRY_", default_retry(method));
    if (retry == "keyed") != idempotency_key {
        problems.push("retry is RETRY_KEYED if idempotency_key is set, and only then".to_owned());
    }
    let is_rest_special = !text(option, "rest_special").is_empty();
    let is_grpc_special = !text(option, "grpc_special").is_empty();
    let call = text(option, "call");
    if call.is_empty() && !(is_rest_special && is_grpc_special) {
        problems.push("has no call".to_owned());
    }
    if text(option, "success_when").is_empty() && texts(option, "responses").is_empty() {
        problems.push("has no success_when".to_owned());
    }
    if comments::paragraphs(&rpc.parent_file(), rpc.path()).is_empty() {
        problems.push("has no comment".to_owned());
    }
    let parameters = parameters(&path);
    let fields = fields(contract, &rpc.input(), &parameters, body, &mut problems);
    for parameter in &parameters {
        if rpc.input().get_field_by_name(parameter).is_none() {
            let message = rpc.input();
            let message = message.name();
            problems.push(format!(
                "path parameter {{{parameter}}} is not a field of {message}"
            ));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let id = Some(text(option, "rest_id")).filter(|id| !id.is_empty());
    Ok(Operation {
        rpc: rpc.clone(),
        other_forms: Vec::new(),
        tag: Some(text(option, "tag"))
            .filter(|own| !own.is_empty())
            .unwrap_or(tag.to_owned()),
        method,
        path,
        id: id.unwrap_or_else(|| lower_camel(rpc.name())),
        call,
        success: status(option, "success", 200),
        success_when: text(option, "success_when"),
        responses: texts(option, "responses"),
        caller,
        audit,
        retry,
        traffic: word("traffic", "TRAFFIC_", "ordinary"),
        rate: word("rate", "RATE_", "org"),
        body,
        message_max: text(option, "message_max"),
        slow: flag(option, "slow"),
        refuses: refusals(option),
        charges_memory: flag(option, "charges_memory"),
        origin: flag(option, "origin"),
        is_rest_special,
        is_grpc_special,
        fields,
    })
}

/// Returns the retry class of an operation that declares none.
pub fn default_retry(method: &str) -> &'static str {
    match method {
        "post" => "other",
        _ => "repeatable",
    }
}

/// Returns the names of the parameters in the template of a path.
fn parameters(path: &str) -> Vec<String> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(str::to_owned)
        .collect()
}

/// Reads the fields of a request.
fn fields(
    contract: &Contract,
    message: &MessageDescriptor,
    parameters: &[String],
    body: Body,
    problems: &mut Vec<String>,
) -> Vec<Field> {
    // The iterator of the message sorts them by number.
    let mut descriptors: Vec<_> = message.fields().collect();
    descriptors.sort_by_key(|descriptor| descriptor.path().to_vec());
    let mut fields = Vec::new();
    for descriptor in descriptors {
        let option = contract.field_option(&descriptor);
        let word = |name: &str| {
            option
                .as_ref()
                .map(|one| text(one, name))
                .unwrap_or_default()
        };
        let is_set = |name: &str| option.as_ref().is_some_and(|one| flag(one, name));
        let header = word("header");
        let place = match descriptor.name() {
            _ if !header.is_empty() => Place::Header(header),
            name if parameters.iter().any(|parameter| parameter == name) => Place::Path,
            _ => match body {
                Body::None => Place::Query,
                Body::Required | Body::Optional => Place::Body,
                Body::Bytes => Place::None,
            },
        };
        let paragraphs = comments::paragraphs(&message.parent_file(), descriptor.path());
        if paragraphs.is_empty() {
            problems.push(format!("the field {} has no comment", descriptor.name()));
        }
        let field = Field {
            place,
            required: is_set("required"),
            r#type: word("type"),
            schema: word("schema"),
            example: word("example"),
            raw: is_set("raw"),
            description: comments::lines(&comments::for_rest(paragraphs)),
            descriptor,
        };
        fields.push(field);
    }
    fields
}

/// Reads the callers.
fn caller(option: &DynamicMessage) -> Result<Caller, String> {
    let value = option.get_field_by_name("caller");
    let value = value.as_deref().and_then(Value::as_message);
    let Some(caller) = value.filter(|_| option.has_field_by_name("caller")) else {
        return Err("has no caller".to_owned());
    };
    let (anyone, unless) = (text(caller, "anyone"), text(caller, "public"));
    let (key, scope) = (flag(caller, "key"), text(caller, "scope"));
    let session = enum_name(caller, "session");
    let access = match (
        !anyone.is_empty(),
        !unless.is_empty(),
        key,
        !scope.is_empty(),
        session.as_str(),
    ) {
        (true, false, false, false, "ROLE_UNSPECIFIED") => Access::Anyone,
        (false, true, false, true, "ROLE_UNSPECIFIED") => Access::Public(scope),
        (false, false, true, false, "ROLE_UNSPECIFIED") => Access::Any,
        (false, false, false, true, "ROLE_UNSPECIFIED") => Access::Reader(scope),
        (false, false, false, true, "ROLE_MEMBER") => Access::Submitter(scope),
        (false, false, false, false, "ROLE_ANY") => Access::Session,
        (false, false, false, false, "ROLE_MEMBER") => Access::Member,
        (false, false, false, false, "ROLE_OWNER") => Access::Owner,
        (false, false, false, false, "ROLE_WITHOUT_ORG") => Access::User,
        _ => return Err(NO_PROOF.to_owned()),
    };
    let terms = flag(caller, "terms");
    let proof = proof(&access)?;
    if terms && matches!(access, Access::Anyone | Access::Public(_) | Access::User) {
        return Err("terms needs the credential of an organization".to_owned());
    }
    Ok(Caller {
        access,
        unless,
        terms,
        proof,
    })
}

/// The error of a caller for whom there is no proof.
const NO_PROOF: &str = "no proof stands for this caller";

/// Returns the proof in `permissions` that stands for an access. `None` if it needs no credential.
///
/// # Errors
/// If there is no proof with this scope and role.
fn proof(access: &Access) -> Result<Option<&'static str>, String> {
    Ok(Some(match access {
        Access::Anyone => return Ok(None),
        Access::Any => "Caller",
        Access::Session => "Session",
        Access::Member => "Member",
        Access::Owner => "Owner",
        Access::User => "User",
        Access::Public(scope) => match scope.as_str() {
            "suites:read" => "SuiteVisitor",
            "jobs:read" => "ReceiptCaller",
            _ => return Err(NO_PROOF.to_owned()),
        },
        Access::Reader(scope) => match scope.as_str() {
            "suites:read" => "SuiteReader",
            "jobs:read" => "JobReader",
            "usage:read" => "UsageReader",
            "models:read" => "ModelReader",
            "uploads:write" => "UploadReader",
            _ => return Err(NO_PROOF.to_owned()),
        },
        Access::Submitter(scope) => match scope.as_str() {
            "jobs:cancel" => "JobCanceller",
            "evals:write" => "EvalSubmitter",
            "models:run" => "ModelRunner",
            "suites:read" => "PublisherReader",
            "suites:write" => "Publisher",
            "uploads:write" => "Uploader",
            _ => return Err(NO_PROOF.to_owned()),
        },
    }))
}

/// Reads the errors that an operation returns.
fn refusals(option: &DynamicMessage) -> Vec<(u16, String)> {
    let value = option.get_field_by_name("refuses");
    let all = value
        .as_deref()
        .and_then(Value::as_list)
        .unwrap_or_default();
    all.iter()
        .filter_map(Value::as_message)
        .map(|one| (status(one, "status", 0), text(one, "when")))
        .collect()
}

/// Returns a status, or another one if it is absent.
fn status(option: &DynamicMessage, field: &str, absent: u16) -> u16 {
    let status = number(option, field);
    match u16::try_from(status) {
        Ok(status) if status > 0 => status,
        _ => absent,
    }
}

fn texts(option: &DynamicMessage, field: &str) -> Vec<String> {
    let value = option.get_field_by_name(field);
    let all = value
        .as_deref()
        .and_then(Value::as_list)
        .unwrap_or_default();
    all.iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Returns the name of the value of an enum.
fn enum_name(option: &DynamicMessage, field: &str) -> String {
    let value = option.get_field_by_name(field);
    let number = value
        .as_deref()
        .and_then(Value::as_enum_number)
        .unwrap_or(0);
    let kind = option
        .descriptor()
        .get_field_by_name(field)
        .map(|field| field.kind());
    match kind {
        Some(Kind::Enum(names)) => names
            .get_value(number)
            .map(|value| value.name().to_owned())
            .unwrap_or_default(),
        _ => String::new(),
    }
}
