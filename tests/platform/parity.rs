//! The two wires against each other, from the tables: each operation, each refusal and each mistake, called on both about
//! the same state, has equal fields and equal codes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assay_tests::client::{Answer, Client};
use prost_reflect::{
    DescriptorPool, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use serde_json::{Map, Value, json};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::{World, code, faults, one_prediction, org, text, with_token};
use crate::routes::{Callers, Class, ROUTES, Route, Thing, Who, about, furnished};

/// The rpcs by the lines of REST that they mirror, such as `GET /v1/keys`. A stream of answers is another form of an
/// operation that has an rpc with one.
fn rpcs() -> BTreeMap<String, MethodDescriptor> {
    let pool = DescriptorPool::decode(assay_proto::DESCRIPTORS).unwrap();
    let mut rpcs = BTreeMap::new();
    let protos = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("proto")
        .join("assay/v1");
    for service in pool
        .services()
        .filter(|service| service.package_name() == "assay.v1")
    {
        let proto = std::fs::read_to_string(
            protos.join(Path::new(service.parent_file().name()).file_name().unwrap()),
        )
        .unwrap();
        for method in service
            .methods()
            .filter(|method| !method.is_server_streaming())
        {
            let before = proto
                .split(&format!("rpc {}(", method.name()))
                .next()
                .unwrap();
            let line = before
                .lines()
                .rev()
                .find_map(|line| line.trim().strip_prefix("// "))
                .unwrap();
            assert!(
                rpcs.insert(line.to_owned(), method).is_none(),
                "two rpcs mirror {line}"
            );
        }
    }
    rpcs
}

#[test]
fn every_operation_is_on_both_wires() {
    let rest: BTreeSet<_> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    assert_eq!(rest, rpcs().into_keys().collect());
}

/// Messages as they are, without their types.
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

/// Both wires of one api.
struct Both {
    rpcs: BTreeMap<String, MethodDescriptor>,
    channel: Channel,
}

impl Both {
    async fn of(world: &World) -> Self {
        Self {
            rpcs: rpcs(),
            channel: world.channel().await,
        }
    }

    fn rpc(&self, route: &Route) -> &MethodDescriptor {
        &self.rpcs[&format!("{} {}", route.method, route.path)]
    }

    /// The same call over gRPC: what stands in the path and in the body are fields of one message.
    async fn call(
        &self,
        route: &Route,
        token: Option<&str>,
        id: &str,
        body: &Value,
    ) -> Result<Value, Status> {
        let rpc = self.rpc(route);
        let message = DynamicMessage::deserialize(rpc.input(), message(route, id, body)).unwrap();
        let mut request = tonic::Request::new(prost::Message::encode_to_vec(&message));
        if let Some(token) = token {
            request = with_token(request.into_inner(), token);
        }
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = format!("/{}/{}", rpc.parent_service().full_name(), rpc.name())
            .parse()
            .unwrap();
        let answer = grpc.unary(request, path, Raw).await?.into_inner();
        let answer = DynamicMessage::decode(rpc.output(), answer.as_slice()).unwrap();
        let options = SerializeOptions::new()
            .use_proto_field_name(true)
            .stringify_64_bit_integers(false)
            .skip_default_fields(false);
        Ok(answer
            .serialize_with_options(serde_json::value::Serializer, &options)
            .unwrap())
    }
}

/// The parameters of a path, in order.
fn parameters(path: &str) -> Vec<&str> {
    path.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name)
        .collect()
}

/// What a call over REST carries, as the fields of a message.
fn message(route: &Route, id: &str, body: &Value) -> Value {
    let mut fields = Map::new();
    for name in parameters(route.path) {
        fields.insert(
            name.to_owned(),
            if name == "number" {
                json!(1)
            } else {
                json!(id)
            },
        );
    }
    match body {
        // The body of a part is the part.
        body if route.path.ends_with("/parts/{number}") => {
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

/// Predictions, which say by their type on REST what they are.
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

/// The answer without what the wires write differently: a moment's digits, what is absent, and the message around it.
fn comparable(value: Value) -> Value {
    match value {
        Value::String(text) => match text.parse::<prost_types::Timestamp>() {
            Ok(moment) => json!(format!("{}.{:09}", moment.seconds, moment.nanos)),
            Err(_) => Value::String(text),
        },
        Value::Array(values) => values.into_iter().map(comparable).collect(),
        Value::Object(fields) => {
            // A pair of numbers that is null in JSON is an empty list in a message.
            let is_null_pair =
                |name: &str, value: &Value| ["ci95", "clip"].contains(&name) && value == &json!([]);
            let present = fields
                .into_iter()
                .filter(|(name, value)| !value.is_null() && !is_null_pair(name, value));
            Value::Object(
                present
                    .map(|(name, value)| (name, comparable(value)))
                    .collect(),
            )
        }
        // A whole number is one however it is written.
        Value::Number(number) => json!(number.as_f64()),
        other => other,
    }
}

/// The resource out of the message that holds it, as REST has it, and what stands beside it, which REST has in headers.
fn unwrapped(answer: Value, output: &MessageDescriptor) -> Value {
    match (wrapped(output), answer) {
        (Some(name), Value::Object(mut fields)) => fields.remove(&name).unwrap_or(Value::Null),
        (_, answer) => answer,
    }
}

/// The field that holds the resource, if an answer is a resource in a message: the one that is always there.
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

/// The answer without what differs from call to call: how many requests there were, when a key was used last. Of a call
/// that makes something, also what chance and the clock write of it.
fn masked(value: Value, name: &str, makes: bool) -> Value {
    match value {
        _ if ["requests", "last_used_at"].contains(&name) => Value::Null,
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

/// A refusal as both wires tell it: code, message, fields at fault.
type Refusal = (String, String, Vec<(String, String)>);

fn refusal_of(answer: &Answer) -> Refusal {
    let told = if answer.body["error"]["details"]["fields"].is_array() {
        faults(answer)
    } else {
        Vec::new()
    };
    (code(answer), text(&answer.body["error"]["message"]), told)
}

fn refusal(status: &Status) -> Refusal {
    let reason = status
        .get_details_error_info()
        .unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"))
        .reason
        .to_lowercase();
    let violations = status
        .get_details_bad_request()
        .map(|told| told.field_violations)
        .unwrap_or_default();
    // What is a header there is a field here.
    let field = |field: String| {
        if field == "idempotency_key" {
            "Idempotency-Key".into()
        } else {
            field
        }
    };
    let told = violations
        .into_iter()
        .map(|violation| (field(violation.field), violation.reason.to_lowercase()));
    (reason, status.message().to_owned(), told.collect())
}

/// Canonical code and HTTP status are the same row of the contract's table.
fn same_row(http: u16, grpc: Code) -> bool {
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

/// Calls both about the same, and finds the same refusal or, where there is none, hands both answers on.
async fn alike(
    both: &Both,
    route: &Route,
    client: &Client,
    id: &str,
    body: &Value,
) -> Option<(Answer, Value)> {
    let rest = client
        .send(route.request_with(client, id, body))
        .await
        .unwrap();
    let grpc = both.call(route, client.token(), id, body).await;
    let told = format!(
        "{} {} {body}: {} {}, {grpc:?}",
        route.method,
        route.path_of(id),
        rest.status,
        rest.body
    );
    match grpc {
        Ok(answer) => {
            assert!(rest.status < 300, "{told}");
            Some((rest, answer))
        }
        Err(status) => {
            assert!(
                rest.status >= 400 && same_row(rest.status, status.code()),
                "{told}"
            );
            assert_eq!(refusal_of(&rest), refusal(&status), "{told}");
            assert_eq!(
                status.get_details_error_info().unwrap().domain,
                "assay.v1",
                "{told}"
            );
            assert!(status.get_details_request_info().is_some(), "{told}");
            match code(&rest).as_str() {
                // Whoever asks for a thing is told what kind of thing is not there; and of what state forbids a call, whose.
                "not_found" => assert!(
                    status
                        .get_details_resource_info()
                        .is_some_and(|told| !told.resource_type.is_empty()),
                    "{told}"
                ),
                "invalid_state" => assert_eq!(
                    status
                        .get_details_precondition_failure()
                        .unwrap()
                        .violations[0]
                        .r#type,
                    "STATE",
                    "{told}"
                ),
                "validation_failed" => {
                    assert!(status.get_details_bad_request().is_some(), "{told}");
                }
                "quota_exceeded" => assert!(status.get_details_quota_failure().is_some(), "{told}"),
                _ => {}
            }
            // What is told in a header there is told in the details here, too.
            let wait = status
                .get_details_retry_info()
                .and_then(|told| told.retry_delay)
                .map(|wait| wait.as_secs());
            let metadata = status
                .metadata()
                .get("retry-after")
                .map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(
                (wait.is_some(), wait.map(|wait| wait.to_string())),
                (!rest.header("retry-after").is_empty(), metadata),
                "{told}"
            );
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_is_the_same_on_both_wires() {
    let (world, _name_server) = furnished().await;
    let both = Both::of(&world).await;
    let other = org(&world.stack, "team").await;
    world.accept_terms(&other).await;
    let mut callers = Callers::of(&world).await;
    let mut refused = 0;
    for (i, route) in ROUTES.iter().enumerate() {
        callers.replace(
            Who::Homeless,
            world.homeless(&format!("homeless-{i}")).await,
        );
        let mut nothing: Vec<_> = route
            .thing
            .unknown()
            .into_iter()
            .filter(|id| !id.contains('%'))
            .map(str::to_owned)
            .collect();
        if route.thing.is_owned() {
            nothing.push(world.thing(&other, route.thing).await);
        }
        for (who, client) in &callers.0 {
            let ids = match route.class.verdict(*who) {
                Ok(()) if route.thing == Thing::None => continue,
                Ok(()) => &nothing[..],
                Err(_) => &nothing[..1],
            };
            for id in ids {
                let answers = alike(&both, route, client, id, &route.body_of(id)).await;
                assert!(
                    answers.is_none(),
                    "{} {} by {who:?}: {answers:?}",
                    route.method,
                    route.path_of(id)
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

/// Whoever may call.
async fn caller(world: &World, route: &Route) -> Client {
    match route.class {
        Class::Open => world.anonymous(),
        Class::Any | Class::Submitter => world.key(),
        Class::Session | Class::Member | Class::Owner => world.owner(),
        // They may end their session.
        Class::Person => world.member("member").await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_answer_has_the_same_fields_on_both_wires() {
    let (mut world, _name_server) = furnished().await;
    let both = Both::of(&world).await;
    let mut scored = Vec::new();
    for thing in [
        Thing::Scored,
        Thing::ScoredWithFeedback,
        Thing::ScoredWithSealed,
    ] {
        scored.push((thing, world.thing(&world.org, thing).await));
    }
    // From here on jobs wait.
    world.stack.workers.clear();
    for route in ROUTES {
        let rest_client = caller(&world, route).await;
        // Sessions list themselves, so that only one caller reads the same twice.
        let grpc_client = match route.method {
            "GET" => Client::new(world.stack.url(), rest_client.token()),
            _ => caller(&world, route).await,
        };
        let rest_id = match scored.iter().find(|(thing, _)| *thing == route.thing) {
            Some((_, id)) => id.clone(),
            None => world.thing(&world.org, route.thing).await,
        };
        let is_read = route.method == "GET" || route.thing == Thing::Scored;
        let grpc_id = if is_read {
            rest_id.clone()
        } else {
            world.thing(&world.org, route.thing).await
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
        let told = format!(
            "{} {}: {} {}, {grpc:?}",
            route.method, route.path, rest.status, rest.body
        );
        assert_eq!(rest.status, route.success, "{told}");
        let Ok(grpc) = grpc else {
            assert!(rest.status >= 400, "{told}");
            assert_eq!(refusal_of(&rest), refusal(&grpc.unwrap_err()), "{told}");
            continue;
        };
        let ours = if rest.status == 204 {
            json!({})
        } else {
            comparable(rest.body)
        };
        let theirs = unwrapped(comparable(grpc), &both.rpc(route).output());
        assert_eq!(
            masked(ours, "", !is_read),
            masked(theirs, "", !is_read),
            "{told}"
        );
    }
}

/// What a field may be given by mistake, as both wires can write it.
fn mistakes(rpc: &MethodDescriptor, name: &str) -> Vec<Value> {
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
async fn each_mistake_is_told_alike_on_both_wires() {
    let (world, _name_server) = furnished().await;
    let both = Both::of(&world).await;
    let mut told = 0;
    for route in ROUTES {
        let rpc = both.rpc(route);
        let good = (route.body)();
        let Value::Object(fields) = &good else {
            continue;
        };
        if route.path.ends_with("/parts/{number}") {
            continue;
        }
        let client = caller(&world, route).await;
        for field in rpc.input().fields().filter(|field| {
            !parameters(route.path).contains(&field.name()) && field.name() != "idempotency_key"
        }) {
            for value in mistakes(rpc, field.name()) {
                // Each call has its own, for a value may be none that is a mistake.
                let mut body = fields.clone();
                body.insert(field.name().to_owned(), value);
                let id = world.thing(&world.org, route.thing).await;
                told += usize::from(
                    alike(&both, route, &client, &id, &about(Value::Object(body), &id))
                        .await
                        .is_none(),
                );
            }
            // On this wire a text that is not sent is an empty one.
            if field.kind() == Kind::String && !field.supports_presence() {
                let mut body = fields.clone();
                body.remove(field.name());
                let id = world.thing(&world.org, route.thing).await;
                assert!(
                    alike(&both, route, &client, &id, &about(Value::Object(body), &id))
                        .await
                        .is_none()
                );
            }
        }
    }
    assert!(told > 60, "{told}");
}

/// A route of the table.
fn route(line: &str) -> &'static Route {
    ROUTES
        .iter()
        .find(|route| format!("{} {}", route.method, route.path) == line)
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_state_that_forbids_a_call_is_told_alike_on_both_wires() {
    let (mut world, _name_server) = furnished().await;
    let both = Both::of(&world).await;
    let (owner, key) = (world.owner(), world.key());
    let scored = world.thing(&world.org, Thing::Scored).await;
    let with_feedback = world.thing(&world.org, Thing::ScoredWithFeedback).await;
    world.stack.workers.clear();
    let queued = world.thing(&world.org, Thing::Job).await;
    let me = owner.get("/v1/members").await.unwrap().body["members"][0]["user_id"].clone();
    let ready = world.thing(&world.org, Thing::Upload).await;
    assert_eq!(
        key.send(key.request("POST", &format!("/v1/uploads/{ready}/complete")))
            .await
            .unwrap()
            .status,
        200
    );
    let empty = text(
        &key.post("/v1/uploads", &json!({"kind": "predictions"}))
            .await
            .unwrap()
            .body["id"],
    );
    let invited = json!({"email": "twice@example.org"});
    assert_eq!(
        owner.post("/v1/invites", &invited).await.unwrap().status,
        201
    );
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
        assert_eq!(code(&rest), expected, "{line}: {}", rest.body);
        assert!(alike(&both, route, client, id, &body).await.is_none());
    }
    // A plan's limits, of which the last is the number of requests.
    let free = org(&world.stack, "free").await;
    world.accept_terms(&free).await;
    let client = world.client(&free.key);
    let submit = route("POST /v1/evals");
    for _ in 0..2 {
        assert_eq!(
            client
                .send(submit.request(&client, ""))
                .await
                .unwrap()
                .status,
            202
        );
    }
    assert!(
        alike(&both, submit, &client, "", &(submit.body)())
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
    assert_eq!((code(&rest), rest.status), ("rate_limited".to_owned(), 429));
    assert_eq!(
        (refusal(&grpc).0.as_str(), grpc.code()),
        ("rate_limited", Code::ResourceExhausted)
    );
}

/// The description of the REST api.
fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("docs")
        .join("openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A schema itself, where there is a reference to it, also as one of two of which the other is null.
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

/// Finds that a message has the fields that a schema has, and so have their messages.
fn same_names(document: &Value, schema: &Value, message: &MessageDescriptor, told: &str) {
    let schema = resolved(document, schema);
    let Some(properties) = schema["properties"].as_object() else {
        return assert_eq!(message.fields().count(), 0, "{told}: {schema}");
    };
    let theirs: BTreeSet<_> = message
        .fields()
        .map(|field| field.name().to_owned())
        .collect();
    let ours: BTreeSet<_> = properties.keys().cloned().collect();
    assert_eq!(ours, theirs, "{told}");
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    for field in message.fields() {
        let told = format!("{told}.{}", field.name());
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
                    && inner.name() != "PredictionValue" =>
            {
                same_names(document, property, &inner, &told);
            }
            _ => {}
        }
        // What may be null or absent there can be told from what is empty here.
        let nullable = is_nullable(document, &properties[field.name()])
            || !required.contains(&&Value::from(field.name()));
        assert!(
            !nullable || field.supports_presence() || field.is_list(),
            "{told} may be absent on REST, and needs `optional`"
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
fn the_fields_of_messages_have_the_names_that_json_has() {
    let document = document();
    for (line, rpc) in rpcs() {
        let (method, path) = line.split_once(' ').unwrap();
        let operation = &document["paths"][path][method.to_lowercase()];
        let (_, answer) = operation["responses"]
            .as_object()
            .unwrap()
            .iter()
            .find(|(status, _)| status.starts_with('2'))
            .unwrap();
        let schema = &answer["content"]["application/json"]["schema"];
        let output = match wrapped(&rpc.output()) {
            Some(name) => match rpc.output().get_field_by_name(&name).unwrap().kind() {
                Kind::Message(inner) => inner,
                other => panic!("{line}: {other:?}"),
            },
            None => rpc.output(),
        };
        if output.package_name() == "assay.v1" {
            same_names(&document, schema, &output, &line);
        }
        // What a call carries, wherever it stands.
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
            .map(|parameter| text(&parameter["name"]))
            .filter(|name| name != "X-Org-Id")
            .collect();
        if ours.remove("Idempotency-Key") {
            ours.insert("idempotency_key".into());
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
