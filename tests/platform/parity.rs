//! Compares REST and gRPC, driven by the route and rpc tables: each operation, rejection and
//! validation error, called over both protocols with the same state, has equal fields and codes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assay_core::model::event::EventCursor;
use assay_proto::OPERATIONS;
use assay_tests::client::{Client, Response};
use prost_reflect::{
    DescriptorPool, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use serde_json::{Map, Value, json};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::{
    Expect, World, error_code, field_errors, one_prediction, org, string, with_token,
};
use crate::routes::{
    Callers, Class, ROUTES, Resource, Route, Who, with_resource_id, world_for_routes,
};

/// Returns the rpcs by the REST line that they mirror, such as `GET /v1/keys`, without those that
/// stream their responses.
fn rpcs() -> BTreeMap<String, MethodDescriptor> {
    mirrored(|method| !method.is_server_streaming())
}

/// Returns the rpcs that fit by the REST line that they mirror.
pub fn mirrored(fits: fn(&MethodDescriptor) -> bool) -> BTreeMap<String, MethodDescriptor> {
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    let mut rpcs = BTreeMap::new();
    for operation in &OPERATIONS {
        let line = format!("{} {}", operation.method, operation.path);
        for path in operation.rpcs {
            let (service, name) = path[1..].split_once('/').unwrap();
            let service = pool.get_service_by_name(service).unwrap();
            let rpc = service.methods().find(|rpc| rpc.name() == name).unwrap();
            if fits(&rpc) {
                let earlier = rpcs.insert(line.clone(), rpc);
                assert!(earlier.is_none(), "two rpcs mirror {line}");
            }
        }
    }
    rpcs
}

#[test]
fn every_operation_exists_on_both_protocols() {
    let rest: BTreeSet<_> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    // Some operations only have an rpc that streams its responses. Other such rpcs are another form
    // for an operation with a unary rpc.
    let streamed = mirrored(MethodDescriptor::is_server_streaming);
    let streamed = streamed.into_keys().filter(|line| rest.contains(line));
    assert_eq!(
        rest,
        rpcs().into_keys().chain(streamed).collect(),
        "ROUTES (left) and the declarations in proto/assay/v1 (right) differ"
    );
}

/// A codec for encoded messages, without their types.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(into, &message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = bytes::Buf::remaining(from);
        Ok(Some(bytes::Buf::copy_to_bytes(from, length).to_vec()))
    }
}

/// REST and gRPC clients for one API process.
pub struct Protocols {
    rpcs: BTreeMap<String, MethodDescriptor>,
    channel: Channel,
}

impl Protocols {
    pub async fn of(world: &World) -> Self {
        Self {
            rpcs: rpcs(),
            channel: world.channel().await,
        }
    }

    /// Returns the routes whose rpc does not stream its responses.
    pub fn routes(&self) -> impl Iterator<Item = &'static Route> {
        ROUTES.iter().filter(|route| {
            let line = format!("{} {}", route.method, route.path);
            self.rpcs.contains_key(&line)
        })
    }

    fn rpc(&self, route: &Route) -> &MethodDescriptor {
        &self.rpcs[&format!("{} {}", route.method, route.path)]
    }

    /// Makes the same call over gRPC: path parameters and body become one message's fields.
    pub async fn call(
        &self,
        route: &Route,
        token: Option<&str>,
        id: &str,
        body: &Value,
    ) -> Result<Value, Status> {
        self.call_rpc(self.rpc(route), route, token, id, body).await
    }

    /// Makes a route's call by this rpc.
    pub async fn call_rpc(
        &self,
        rpc: &MethodDescriptor,
        route: &Route,
        token: Option<&str>,
        id: &str,
        body: &Value,
    ) -> Result<Value, Status> {
        let mut request = tonic::Request::new(encoded(rpc, route, id, body));
        if let Some(token) = token {
            request = with_token(request.into_inner(), token);
        }
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = format!("/{}/{}", rpc.parent_service().full_name(), rpc.name())
            .parse()
            .unwrap();
        let response = grpc.unary(request, path, Raw).await?.into_inner();
        let response = DynamicMessage::decode(rpc.output(), response.as_slice()).unwrap();
        let options = SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(false)
            .skip_default_fields(false);
        Ok(response
            .serialize_with_options(serde_json::value::Serializer, &options)
            .unwrap())
    }
}

/// Returns the encoded message with which this rpc calls a route.
pub fn encoded(rpc: &MethodDescriptor, route: &Route, id: &str, body: &Value) -> Vec<u8> {
    let message = DynamicMessage::deserialize(rpc.input(), message(route, id, body)).unwrap();
    prost::Message::encode_to_vec(&message)
}

/// Returns a path's parameter names, in order.
fn parameters(path: &str) -> Vec<&str> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name)
        .collect()
}

/// Converts the path parameters and a REST call's body into a message's fields.
fn message(route: &Route, id: &str, body: &Value) -> Value {
    let mut fields = Map::new();
    // A delivery's id begins with its webhook's.
    let mut ids = id.split("/deliveries/");
    for name in parameters(route.path) {
        let value = match name {
            "number" => json!(1),
            "name" => json!("a.csv"),
            _ => json!(ids.next()),
        };
        fields.insert(name.to_owned(), value);
    }
    match body {
        // An upload part's body is its raw content.
        body if route.path.ends_with("/{number}") => {
            use base64::Engine as _;
            fields.insert(
                "data".into(),
                base64::prelude::BASE64_STANDARD
                    .encode(body.to_string())
                    .into(),
            );
        }
        Value::Object(body) => {
            fields.extend(body.clone().into_iter().map(|(name, value)| {
                if name == "predictions" {
                    (name, typed(value))
                } else {
                    (name, value)
                }
            }));
        }
        _ => {}
    }
    Value::Object(fields)
}

/// Converts predictions, whose form follows from the JSON type on REST, into gRPC's typed
/// form.
fn typed(predictions: Value) -> Value {
    let Value::Array(predictions) = predictions else {
        return predictions;
    };
    let one = |mut prediction: Value| {
        prediction["prediction"] = match prediction["prediction"].take() {
            Value::Array(ids) => json!({"ranking": {"ids": ids}}),
            Value::Number(number) => json!({"number": number}),
            Value::Object(by_label) => json!({"probabilities": {"by_label": by_label}}),
            label => json!({"label": label}),
        };
        prediction
    };
    predictions.into_iter().map(one).collect()
}

/// Normalizes what the protocols encode differently: timestamp digits, absent fields, and
/// the wrapping message.
fn comparable(value: Value) -> Value {
    match value {
        Value::String(text) => match text.parse::<prost_types::Timestamp>() {
            Ok(timestamp) => json!(format!("{}.{:09}", timestamp.seconds, timestamp.nanos)),
            Err(_) => Value::String(text),
        },
        Value::Array(values) => values.into_iter().map(comparable).collect(),
        Value::Object(mut fields) => {
            split_scored(&mut fields);
            if let Some(result) = fields.remove("predict_result") {
                fields.insert("result".into(), result);
            }
            if fields.get("suite_id") == Some(&json!("")) {
                fields.remove("suite_id");
            }
            // A nullable number pair is null in JSON and an empty list in a message.
            let is_null_pair =
                |name: &str, value: &Value| ["ci95", "clip"].contains(&name) && value == &json!([]);
            let present = fields
                .into_iter()
                .filter(|(name, value)| !value.is_null() && !is_null_pair(name, value));
            Value::Object(
                present
                    .map(|(name, value)| match name.as_str() {
                        "embedding" => (name, narrowed(value)),
                        _ => (name, comparable(value)),
                    })
                    .collect(),
            )
        }
        // 1 and 1.0 are the same integer.
        Value::Number(number) => json!(number.as_f64()),
        other => other,
    }
}

/// Rounds numbers to 32 bits. JSON has their shortest decimals, messages have the exact ones.
fn narrowed(value: Value) -> Value {
    match value {
        Value::Array(numbers) => numbers.into_iter().map(narrowed).collect(),
        number => json!(number.as_f64().map(|number| number as f32)),
    }
}

/// Splits a message's scored items into the two arrays that JSON has.
fn split_scored(fields: &mut Map<String, Value>) {
    let Some(Value::Array(scored)) = fields.get("prediction") else {
        return;
    };
    if scored.iter().all(|one| one["item_id"].is_string()) && !scored.is_empty() {
        let column = |name: &str| {
            scored
                .iter()
                .map(|one| one[name].clone())
                .collect::<Value>()
        };
        let (item_ids, scores) = (column("item_id"), column("score"));
        fields.insert("prediction".into(), item_ids);
        fields.insert("scores".into(), scores);
    }
}

/// Returns the resource without its wrapping message, as in REST. REST returns the message's other
/// fields as headers.
fn unwrapped(response: Value, output: &MessageDescriptor) -> Value {
    match (wrapped(output), response) {
        (Some(name), Value::Object(mut fields)) => fields.remove(&name).unwrap_or(Value::Null),
        (_, response) => response,
    }
}

/// Returns the field that holds the resource if the response wraps a resource: the only required
/// field.
fn wrapped(output: &MessageDescriptor) -> Option<String> {
    let resources: Vec<_> = output
        .fields()
        .filter(|field| {
            !field.is_list() && field.containing_oneof().is_none() && is_resource(&field.kind())
        })
        .collect();
    match resources.as_slice() {
        [only] => Some(only.name().to_owned()),
        _ => None,
    }
}

fn is_resource(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(message) if message.full_name() != "google.protobuf.Timestamp")
}

/// Fields with random values that are too short to be recognized.
const RANDOM: [&str; 4] = [
    "secret",
    "secret_hint",
    "user_code",
    "verification_url_complete",
];

/// The fields whose values may differ between calls.
const CHANGING: [&str; 6] = [
    "requests",
    "last_used_at",
    "ahead",
    "estimated_start_at",
    "estimated_end_at",
    "estimated_end_by",
];

/// Masks values that differ between calls.
/// After a call that creates a resource, also masks random values and times.
fn masked(value: Value, name: &str, makes: bool) -> Value {
    match value {
        _ if CHANGING.contains(&name) => Value::Null,
        _ if makes && RANDOM.contains(&name) => "…".into(),
        Value::String(text) if makes => {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-.=".contains(letter);
            let is_chance = |word: &str| {
                word.len() >= 12
                    && word
                        .bytes()
                        .any(|byte| byte.is_ascii_digit() || byte == b'_')
            };
            let words = text.split_inclusive(|letter| !is_word(letter));
            let mark = |word: &'_ str| {
                if is_chance(word.trim_end_matches(|letter| !is_word(letter))) {
                    "…".to_owned()
                } else {
                    word.to_owned()
                }
            };
            words.map(mark).collect::<String>().into()
        }
        Value::Array(values) => values
            .into_iter()
            .map(|value| masked(value, "", makes))
            .collect(),
        Value::Object(fields) => {
            let masked = |(name, value): (String, Value)| {
                let value = masked(value, &name, makes);
                (name, value)
            };
            Value::Object(
                fields
                    .into_iter()
                    .map(masked)
                    .filter(|(_, value)| !value.is_null())
                    .collect(),
            )
        }
        other => other,
    }
}

/// An error as both protocols return it: code, message, and the field errors with field and reason.
type ErrorParts = (String, String, Vec<(String, String)>);

fn rest_error(response: &Response) -> ErrorParts {
    let field_errors = if response.body["error"]["details"]["fields"].is_array() {
        field_errors(response)
    } else {
        Vec::new()
    };
    (
        error_code(response),
        string(&response.body["error"]["message"]),
        field_errors,
    )
}

fn grpc_error(status: &Status) -> ErrorParts {
    let reason = status
        .get_details_error_info()
        .unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"))
        .reason
        .to_lowercase();
    let violations = status
        .get_details_bad_request()
        .map(|details| details.field_violations)
        .unwrap_or_default();
    // A header in REST is a field in gRPC.
    let field = |field: String| {
        let header = HEADERS.iter().find(|(_, name)| *name == field);
        header.map_or(field, |(header, _)| (*header).to_owned())
    };
    let field_errors = violations
        .into_iter()
        .map(|violation| (field(violation.field), violation.reason.to_lowercase()));
    (reason, status.message().to_owned(), field_errors.collect())
}

/// Returns `true` if the gRPC code and the HTTP status are in the same row in the contract's table.
fn codes_correspond(http: u16, grpc: Code) -> bool {
    let expected: &[Code] = match http {
        400 | 422 => &[Code::InvalidArgument],
        401 => &[Code::Unauthenticated],
        403 => &[Code::PermissionDenied],
        404 => &[Code::NotFound],
        409 => &[Code::AlreadyExists, Code::FailedPrecondition],
        413 | 429 => &[Code::ResourceExhausted],
        503 => &[Code::Unavailable],
        _ => &[],
    };
    expected.contains(&grpc)
}

/// The headers in REST that are fields in gRPC.
const HEADERS: [(&str, &str); 2] = [
    ("Idempotency-Key", "idempotency_key"),
    ("If-Match", "if_match"),
];

/// Makes the same call over both protocols. Asserts equal errors, or returns both responses if the
/// calls succeed.
async fn call_both(
    both: &Protocols,
    route: &Route,
    client: &Client,
    id: &str,
    body: &Value,
) -> Option<(Response, Value)> {
    let rest = client
        .send(route.request_with(client, id, body))
        .await
        .unwrap();
    let grpc = both.call(route, client.token(), id, body).await;
    let context = format!(
        "{} {} {body}: {} {}, {grpc:?}",
        route.method,
        route.path_of(id),
        rest.status,
        rest.body
    );
    match grpc {
        Ok(response) => {
            assert!(rest.status < 300, "{context}");
            Some((rest, response))
        }
        Err(status) => {
            assert!(
                rest.status >= 400 && codes_correspond(rest.status, status.code()),
                "{context}"
            );
            assert_eq!(rest_error(&rest), grpc_error(&status), "{context}");
            assert_eq!(
                status.get_details_error_info().unwrap().domain,
                "assay.v1",
                "{context}"
            );
            assert!(status.get_details_request_info().is_some(), "{context}");
            match error_code(&rest).as_str() {
                // ResourceInfo names a missing resource's kind, and the resource whose state
                // conflicts.
                "not_found" => assert!(
                    status
                        .get_details_resource_info()
                        .is_some_and(|details| !details.resource_type.is_empty()),
                    "{context}"
                ),
                "invalid_state" => assert_eq!(
                    status
                        .get_details_precondition_failure()
                        .unwrap()
                        .violations[0]
                        .r#type,
                    "STATE",
                    "{context}"
                ),
                "validation_failed" => {
                    assert!(status.get_details_bad_request().is_some(), "{context}");
                }
                "quota_exceeded" => {
                    assert!(status.get_details_quota_failure().is_some(), "{context}");
                }
                _ => {}
            }
            // REST header values are also in the gRPC details.
            let wait = status
                .get_details_retry_info()
                .and_then(|details| details.retry_delay)
                .map(|wait| wait.as_secs());
            let metadata = status
                .metadata()
                .get("retry-after")
                .map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(
                (wait.is_some(), wait.map(|wait| wait.to_string())),
                (!rest.header("retry-after").is_empty(), metadata),
                "{context}"
            );
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_match_on_both_protocols() {
    let (world, _name_server) = world_for_routes().await;
    let both = Protocols::of(&world).await;
    let other = org(&world.stack, "team").await;
    world.accept_terms(&other).await;
    let mut callers = Callers::of(&world).await;
    let mut refused = 0;
    for (i, route) in both.routes().enumerate() {
        callers.replace(
            Who::UserWithoutOrg,
            world.user_without_org(&format!("homeless-{i}")).await,
        );
        let mut nothing: Vec<_> = route
            .resource
            .unknown()
            .into_iter()
            .filter(|id| !id.contains('%'))
            .map(str::to_owned)
            .collect();
        if route.resource.is_owned() {
            nothing.push(world.create_resource(&other, route.resource).await);
        }
        for (who, client) in &callers.0 {
            let ids = match route.class().verdict(*who) {
                Ok(()) if route.resource == Resource::None => continue,
                Ok(()) => &nothing[..],
                Err(_) => &nothing[..1],
            };
            for id in ids {
                let responses = call_both(&both, route, client, id, &route.body_of(id)).await;
                assert!(
                    responses.is_none(),
                    "{} {} by {who:?}: {responses:?}",
                    route.method,
                    route.path_of(id)
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

/// Returns a client that may call the route.
async fn caller(world: &World, route: &Route) -> Client {
    match route.class() {
        Class::Open => world.anonymous(),
        Class::Any | Class::Public(_) | Class::Reader(_) | Class::Submitter(_) => world.key(),
        Class::Session | Class::Member | Class::Owner => world.owner(),
        // The call may end the caller's session.
        Class::Person => world.member("member").await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_fields_match_on_both_protocols() {
    let (mut world, _name_server) = world_for_routes().await;
    let both = Protocols::of(&world).await;
    let mut scored = Vec::new();
    for resource in [
        Resource::Scored,
        Resource::ScoredWithFeedback,
        Resource::ScoredWithSealed,
        Resource::Entry,
        Resource::Receipt,
        Resource::Predicted,
    ] {
        scored.push((resource, world.create_resource(&world.org, resource).await));
    }
    // Without workers, later jobs remain queued.
    world.stack.workers.clear();
    for route in both.routes() {
        let rest_client = caller(&world, route).await;
        // The list of sessions contains the caller's own, so only the same caller reads the same
        // list twice.
        let grpc_client = match route.method {
            "GET" => Client::new(world.stack.url(), rest_client.token()),
            _ => caller(&world, route).await,
        };
        let rest_id = match scored
            .iter()
            .find(|(resource, _)| *resource == route.resource)
        {
            Some((_, id)) => id.clone(),
            None => world.create_resource(&world.org, route.resource).await,
        };
        // A repeated check returns its draft unchanged. A second draft would have to wait for the first.
        let is_read = route.method == "GET"
            || route.resource == Resource::Scored
            || route.path.ends_with("/check");
        let grpc_id = if is_read {
            rest_id.clone()
        } else {
            world.create_resource(&world.org, route.resource).await
        };
        let rest = rest_client
            .send(route.request(&rest_client, &rest_id))
            .await
            .unwrap();
        let grpc = both
            .call(
                route,
                grpc_client.token(),
                &grpc_id,
                &route.body_of(&grpc_id),
            )
            .await;
        let context = format!(
            "{} {}: {} {}, {grpc:?}",
            route.method, route.path, rest.status, rest.body
        );
        assert!(route.has_status(rest.status), "{context}");
        let Ok(grpc) = grpc else {
            assert!(rest.status >= 400, "{context}");
            assert_eq!(
                rest_error(&rest),
                grpc_error(&grpc.unwrap_err()),
                "{context}"
            );
            continue;
        };
        let mut ours = if rest.status == 204 {
            json!({})
        } else {
            comparable(rest.body)
        };
        let mut theirs = unwrapped(comparable(grpc), &both.rpc(route).output());
        // Another queue snapshot, or another log checkpoint, can be stored between the
        // calls.
        let moved = |ours: &Value, theirs: &Value| match route.path {
            "/v1/queue" => ours["as_of"] != theirs["as_of"],
            _ => is_read && ours.pointer("/log/proof") != theirs.pointer("/log/proof"),
        };
        while moved(&ours, &theirs) {
            let request = route.request(&rest_client, &rest_id);
            ours = comparable(rest_client.send(request).await.unwrap().body);
            let (token, body) = (grpc_client.token(), route.body_of(&grpc_id));
            let again = both.call(route, token, &grpc_id, &body);
            theirs = unwrapped(comparable(again.await.unwrap()), &both.rpc(route).output());
        }
        if route.path == "/v1/events" {
            // An event may have been recorded between the calls. It follows those that both have.
            let [our_count, their_count] =
                [&ours, &theirs].map(|page| page["events"].as_array().unwrap().len());
            for page in [&mut ours, &mut theirs] {
                let events = page["events"].as_array_mut().unwrap();
                events.truncate(our_count.min(their_count));
            }
            // The position after all ended transactions, and one may have ended between the calls.
            for page in [&mut ours, &mut theirs] {
                let next = string(&page["next_cursor"]);
                assert!(EventCursor::parse(&next).is_some(), "{context}");
                page["next_cursor"] = json!("position");
            }
        }
        assert_eq!(
            masked(ours, "", !is_read),
            masked(theirs, "", !is_read),
            "{context}"
        );
    }
}

/// Returns invalid field values that both protocols can encode.
fn invalid_values(rpc: &MethodDescriptor, name: &str) -> Vec<Value> {
    let Some(field) = rpc.input().get_field_by_name(name) else {
        panic!("{}: no field {name}", rpc.full_name())
    };
    match field.kind() {
        Kind::String if !field.is_list() => {
            ["", " ", "no-such-thing", "a\u{0}b", "ä@b", "\u{202e}"]
                .into_iter()
                .map(Value::from)
                .chain([json!("x".repeat(300))])
                .collect()
        }
        Kind::Int64 => [i64::MIN, -1, 0, i64::MAX].map(Value::from).into(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_match_on_both_protocols() {
    let (world, _name_server) = world_for_routes().await;
    let both = Protocols::of(&world).await;
    let mut compared = 0;
    for route in both.routes() {
        let rpc = both.rpc(route);
        let good = (route.body)();
        let Value::Object(fields) = &good else {
            continue;
        };
        if route.path.ends_with("/{number}") {
            continue;
        }
        let client = caller(&world, route).await;
        for field in rpc.input().fields().filter(|field| {
            !parameters(route.path).contains(&field.name())
                && HEADERS.iter().all(|(_, name)| *name != field.name())
        }) {
            for value in invalid_values(rpc, field.name()) {
                // 0 hours are a valid overlap, and the second call would find the key rotated.
                if route.path.ends_with("/rotate") && value == 0 {
                    continue;
                }
                // Each call has its own resource, because a value may turn out to be valid.
                let mut body = fields.clone();
                body.insert(field.name().to_owned(), value);
                let id = world.create_resource(&world.org, route.resource).await;
                compared += usize::from(
                    call_both(
                        &both,
                        route,
                        &client,
                        &id,
                        &with_resource_id(Value::Object(body), &id),
                    )
                    .await
                    .is_none(),
                );
            }
            // In gRPC, an absent string equals an empty one.
            if field.kind() == Kind::String && !field.is_list() && !field.supports_presence() {
                let mut body = fields.clone();
                body.remove(field.name());
                let id = world.create_resource(&world.org, route.resource).await;
                assert!(
                    call_both(
                        &both,
                        route,
                        &client,
                        &id,
                        &with_resource_id(Value::Object(body), &id)
                    )
                    .await
                    .is_none()
                );
            }
        }
    }
    assert!(compared > 60, "{compared}");
}

/// Returns the table's route with this method and path.
fn route(line: &str) -> &'static Route {
    ROUTES
        .iter()
        .find(|route| format!("{} {}", route.method, route.path) == line)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn state_conflicts_match_on_both_protocols() {
    let (mut world, _name_server) = world_for_routes().await;
    let both = Protocols::of(&world).await;
    let owner = world.owner();
    let key = world.key();
    let scored = world.create_resource(&world.org, Resource::Scored).await;
    let with_feedback = world
        .create_resource(&world.org, Resource::ScoredWithFeedback)
        .await;
    world.stack.workers.clear();
    let queued = world.create_resource(&world.org, Resource::Job).await;
    let me = owner.get("/v1/members").await.unwrap().body["members"][0]["user_id"].clone();
    let ready = world.create_resource(&world.org, Resource::Upload).await;
    key.send(key.request("POST", &format!("/v1/uploads/{ready}/complete")))
        .await
        .expect_status(200);
    let empty = string(
        &key.post("/v1/uploads", &json!({"kind": "predictions"}))
            .await
            .unwrap()
            .body["id"],
    );
    let invited = json!({"email": "twice@example.org"});
    owner.post("/v1/invites", &invited).await.expect_status(201);
    let huge = json!({"kind": "predictions", "bytes": 600_000_000_000_i64});
    let nobody = json!({"suite_id": "suite:none", "predictions": one_prediction()});
    let twice = json!({"suite_id": "suite:lunch", "predictions": [one_prediction()[0], one_prediction()[0]]});
    let both_inputs =
        json!({"suite_id": "suite:lunch", "predictions": one_prediction(), "input_ref": ready});
    for (line, client, id, body, expected) in [
        (
            "POST /v1/jobs/{job_id}/cancel",
            &key,
            scored.as_str(),
            Value::Null,
            "invalid_state",
        ),
        (
            "GET /v1/jobs/{job_id}/items",
            &key,
            scored.as_str(),
            Value::Null,
            "forbidden",
        ),
        (
            "GET /v1/jobs/{job_id}/items",
            &key,
            queued.as_str(),
            Value::Null,
            "forbidden",
        ),
        (
            "POST /v1/comparisons",
            &key,
            "",
            json!({"job_a": queued, "job_b": scored}),
            "invalid_state",
        ),
        (
            "POST /v1/comparisons",
            &key,
            "",
            json!({"job_a": scored, "job_b": with_feedback}),
            "invalid_state",
        ),
        (
            "GET /v1/jobs/{job_id}/trace",
            &key,
            queued.as_str(),
            Value::Null,
            "not_found",
        ),
        (
            "PATCH /v1/members/{user_id}",
            &owner,
            me.as_str().unwrap(),
            json!({"role": "member"}),
            "invalid_state",
        ),
        (
            "DELETE /v1/members/{user_id}",
            &owner,
            me.as_str().unwrap(),
            Value::Null,
            "invalid_state",
        ),
        ("POST /v1/invites", &owner, "", invited, "conflict"),
        (
            "POST /v1/terms/accept",
            &owner,
            "",
            json!({"version": "1999-01"}),
            "conflict",
        ),
        (
            "PUT /v1/uploads/{upload_id}/parts/{number}",
            &key,
            ready.as_str(),
            one_prediction()[0].clone(),
            "invalid_state",
        ),
        (
            "POST /v1/uploads/{upload_id}/complete",
            &key,
            empty.as_str(),
            Value::Null,
            "validation_failed",
        ),
        ("POST /v1/uploads", &key, "", huge, "payload_too_large"),
        ("POST /v1/evals", &key, "", nobody, "validation_failed"),
        ("POST /v1/evals", &key, "", twice, "validation_failed"),
        ("POST /v1/evals", &key, "", both_inputs, "validation_failed"),
        (
            "POST /v1/evals",
            &key,
            "",
            json!({"suite_id": "suite:lunch", "input_ref": empty}),
            "validation_failed",
        ),
    ] {
        let route = route(line);
        let rest = client
            .send(route.request_with(client, id, &body))
            .await
            .unwrap();
        assert_eq!(error_code(&rest), expected, "{line}: {}", rest.body);
        assert!(call_both(&both, route, client, id, &body).await.is_none());
    }
    // The plan's limits; the request limit must be last, because it rejects all later calls.
    let free = org(&world.stack, "free").await;
    world.accept_terms(&free).await;
    let client = world.client(&free.key);
    let submit = route("POST /v1/evals");
    for _ in 0..2 {
        client
            .send(submit.request(&client, ""))
            .await
            .expect_status(202);
    }
    assert!(
        call_both(&both, submit, &client, "", &(submit.body)())
            .await
            .is_none()
    );
    let me = route("GET /v1/me");
    while client.send(me.request(&client, "")).await.unwrap().status == 200 {}
    let (rest, grpc) = tokio::join!(
        async { client.send(me.request(&client, "")).await.unwrap() },
        both.call(me, client.token(), "", &Value::Null)
    );
    let grpc = grpc.unwrap_err();
    assert_eq!(
        (error_code(&rest), rest.status),
        ("rate_limited".to_owned(), 429)
    );
    assert_eq!(
        (grpc_error(&grpc).0.as_str(), grpc.code()),
        ("rate_limited", Code::ResourceExhausted)
    );
}

/// Returns the OpenAPI document.
fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("docs")
        .join("openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Follows a schema's reference, also as the non-null alternative of a nullable one.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    let one_of = schema["oneOf"]
        .as_array()
        .or_else(|| schema["anyOf"].as_array());
    if let Some(schema) = one_of
        .and_then(|all| all.iter().find(|one| one["type"] != "null"))
        .filter(|_| schema["properties"].is_null())
    {
        return resolved(document, schema);
    }
    match schema["$ref"].as_str() {
        Some(reference) => resolved(document, document.pointer(&reference[1..]).unwrap()),
        None => schema,
    }
}

/// Asserts that a message has the same field names as a schema, recursively.
fn assert_same_names(document: &Value, schema: &Value, message: &MessageDescriptor, path: &str) {
    let schema = resolved(document, schema);
    let Some(properties) = schema["properties"].as_object() else {
        return assert_eq!(message.fields().count(), 0, "{path}: {schema}");
    };
    let theirs: BTreeSet<_> = message
        .fields()
        .map(|field| field.name().to_owned())
        .collect();
    let mut ours: BTreeSet<_> = properties.keys().cloned().collect();
    match message.name() {
        // A message has a list of items with their scores.
        "PredictData" => assert!(ours.remove("scores"), "{path}"),
        // The numbers of a message are doubles.
        "SuiteItem" => assert!(ours.insert("input_json".into()), "{path}"),
        // A message has a field for each type of result.
        "Job" => assert!(ours.insert("predict_result".into()), "{path}"),
        _ => {}
    }
    assert_eq!(ours, theirs, "{path}");
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for field in message.fields().filter(|field| {
        // The result is one of two schemas; without a suite, the id is empty in a message.
        ![
            ("Job", "result"),
            ("Job", "predict_result"),
            ("SuiteItem", "input_json"),
            ("Versions", "suite_id"),
        ]
        .contains(&(message.name(), field.name()))
    }) {
        let path = format!("{path}.{}", field.name());
        let property = resolved(document, &properties[field.name()]);
        let property = if field.is_list() {
            resolved(document, &property["items"])
        } else {
            property
        };
        match field.kind() {
            Kind::Message(inner)
                if !field.is_map()
                    && inner.package_name() == "assay.v1"
                    && !["PredictionValue", "Scored"].contains(&inner.name()) =>
            {
                assert_same_names(document, property, &inner, &path);
            }
            _ => {}
        }
        // A value that is nullable or absent in REST must differ from an empty one in gRPC.
        let nullable = is_nullable(document, &properties[field.name()])
            || !required.contains(&&Value::from(field.name()));
        assert!(
            !nullable || field.supports_presence() || field.is_list(),
            "{path} may be absent on REST, and needs `optional`"
        );
    }
}

fn is_nullable(document: &Value, schema: &Value) -> bool {
    let is_null = |schema: &Value| {
        schema["type"] == "null"
            || schema["type"]
                .as_array()
                .is_some_and(|types| types.contains(&"null".into()))
    };
    let alternatives = ["oneOf", "anyOf"]
        .into_iter()
        .filter_map(|name| schema[name].as_array())
        .flatten();
    is_null(schema) || is_null(resolved(document, schema)) || alternatives.into_iter().any(is_null)
}

#[test]
fn message_fields_match_json_names() {
    let document = document();
    for (line, rpc) in rpcs() {
        let (method, path) = line.split_once(' ').unwrap();
        let operation = &document["paths"][path][method.to_lowercase()];
        let (_, response) = operation["responses"]
            .as_object()
            .unwrap_or_else(|| {
                panic!("docs/openapi.json has no {line}: regenerate it, see CONTRIBUTING.md")
            })
            .iter()
            .find(|(status, _)| status.starts_with('2'))
            .unwrap();
        let schema = &response["content"]["application/json"]["schema"];
        let output = match wrapped(&rpc.output()) {
            Some(name) => match rpc.output().get_field_by_name(&name).unwrap().kind() {
                Kind::Message(inner) => inner,
                other => panic!("{line}: {other:?}"),
            },
            None => rpc.output(),
        };
        if output.package_name() == "assay.v1" {
            assert_same_names(&document, schema, &output, &line);
        }
        // A call's inputs: parameters and body.
        let theirs: BTreeSet<_> = rpc
            .input()
            .fields()
            .map(|field| field.name().to_owned())
            .collect();
        let parameters = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|parameter| resolved(&document, parameter));
        let mut ours: BTreeSet<_> = parameters
            .map(|parameter| string(&parameter["name"]))
            .filter(|name| name != "X-Org-Id")
            .collect();
        for (header, field) in HEADERS {
            if ours.remove(header) {
                ours.insert(field.into());
            }
        }
        match operation["requestBody"]["content"].as_object() {
            Some(content) if content.contains_key("application/json") => {
                let schema = resolved(&document, &content["application/json"]["schema"]);
                ours.extend(schema["properties"].as_object().unwrap().keys().cloned());
            }
            Some(_) => {
                ours.insert("data".into());
            }
            None => {}
        }
        assert_eq!(ours, theirs, "{line}");
    }
}
