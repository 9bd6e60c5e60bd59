//! The description of the REST api is true: it is the one that is served, it lists every route, and answers conform to
//! it. Whether the api refuses and accepts what the description says is schemathesis' part (`schemathesis.rs`).

mod answers;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use assay_tests::client::{Answer, Client};
use serde_json::{Value, json};

use assay_tests::stack::Plan;

use crate::harness::{World, code, routed_operations, text, world};
use crate::name_server::NameServer;
use crate::routes::TERMS;

const FILE: &str = "docs/openapi.json";

fn committed() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(FILE)).unwrap()
}

fn document() -> Value {
    serde_json::from_str(&committed()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_committed_document_is_the_one_that_is_served() {
    let world = world().await;
    let printed = Command::new(&world.stack.ground.binaries.api)
        .arg("openapi")
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed == committed(),
        "{FILE} is not of this build: cargo run -p assay-api -- openapi > {FILE}"
    );
    let served = world.anonymous().get("/openapi.json").await.unwrap();
    assert_eq!(
        (served.status, served.header("content-type")),
        (200, "application/json")
    );
    assert!(
        served.header("x-request-id").starts_with("req_")
            && !served.header("x-ratelimit-limit").is_empty()
    );
    let mut served = served.body;
    let build = served["info"].as_object_mut().unwrap().remove("x-git-sha");
    assert_eq!(
        build.as_ref(),
        Some(&world.anonymous().get("/health").await.unwrap().body["git_sha"])
    );
    assert_eq!(served, document());
    let named = world
        .stack
        .operate(&["openapi", "--git-sha"])
        .await
        .unwrap();
    assert_eq!(named["info"].get("x-git-sha"), build.as_ref());
}

/// The operations of the document: `GET /v1/me`.
fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            item.as_object()
                .unwrap()
                .keys()
                .map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect()
}

#[test]
fn every_route_is_an_operation_of_the_document_and_the_other_way_round() {
    assert_eq!(
        routed_operations(),
        operations(&document()),
        "a handler without #[utoipa::path], or one that rest::Operations does not list"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_nothing_from_elsewhere() {
    let world = world().await;
    let client = world.anonymous();
    let moved = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let moved = moved
        .get(format!("{}/docs", world.stack.url()))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            moved.status().as_u16(),
            moved.headers()["location"].to_str().unwrap()
        ),
        (308, "/docs/")
    );
    let page = client.get("/docs/").await.unwrap();
    assert_eq!(page.status, 200);
    let html = text(&page.body);
    let named = |attribute: &str| -> Vec<String> {
        html.split(&format!("{attribute}=\""))
            .skip(1)
            .filter_map(|rest| rest.split_once('"'))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let parts: Vec<_> = named("src").into_iter().chain(named("href")).collect();
    assert!(parts.len() > 4, "{html}");
    for part in parts {
        assert!(!part.contains("//"), "{part} is elsewhere");
        let found = client
            .get(&format!("/docs/{}", part.trim_start_matches("./")))
            .await
            .unwrap();
        assert_eq!(found.status, 200, "{part}");
        let policy = found.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';")
                && !policy.contains("http"),
            "{policy}"
        );
        assert!(
            found.header("x-request-id").starts_with("req_")
                && !found.header("x-ratelimit-limit").is_empty()
        );
    }
    let configured = text(
        &client
            .get("/docs/swagger-initializer.js")
            .await
            .unwrap()
            .body,
    );
    assert!(
        configured.contains("\"/openapi.json\"") && !configured.contains("://"),
        "{configured}"
    );
    let nothing = client.get("/docs/nothing.js").await.unwrap();
    assert_eq!(
        (nothing.status, code(&nothing)),
        (404, "not_found".to_owned())
    );
}

/// Holds answers against the document, and notes which operations and statuses were seen.
struct Conformance {
    document: Value,
    seen: BTreeSet<(String, u16)>,
}

impl Conformance {
    /// By the document as it is today: clients must expect new fields, but what is answered today is described.
    fn new() -> Self {
        let mut document = document();
        close(&mut document);
        Self {
            document,
            seen: BTreeSet::new(),
        }
    }

    /// What is wrong with a value that should be of this schema.
    fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let whole = json!({"allOf": [schema], "components": self.document["components"]});
        let options = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true);
        let validator = options.build(&whole).unwrap();
        validator
            .iter_errors(value)
            .map(|fault| format!("{fault} at {}", fault.instance_path()))
            .collect()
    }

    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self
                .document
                .pointer(reference.trim_start_matches('#'))
                .unwrap(),
            None => value,
        }
    }

    /// Sends a request and checks its answer: a listed status, all headers, a body of the schema.
    async fn call(
        &mut self,
        client: &Client,
        method: &str,
        template: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let request = client.request(method, path);
        let request = if let Some(body) = body {
            request.json(body)
        } else {
            request
        };
        let answer = client.send(request).await.unwrap();
        self.check(method, template, &answer);
        answer
    }

    fn check(&mut self, method: &str, template: &str, answer: &Answer) {
        let told = format!("{method} {template}: {} {}", answer.status, answer.body);
        let operation = &self.document["paths"][template][method.to_lowercase()];
        let responses = operation["responses"]
            .as_object()
            .unwrap_or_else(|| panic!("no operation: {told}"));
        let response = responses
            .get(&answer.status.to_string())
            .unwrap_or_else(|| panic!("no such status: {told}"));
        let response = self.resolved(response);
        for (name, header) in response["headers"].as_object().unwrap() {
            let header = self.resolved(header);
            let text = answer.header(name);
            assert!(
                !text.is_empty() || header["required"] != true,
                "no {name}: {told}"
            );
            let value = if header["schema"]["type"] == "integer" {
                json!(text.parse::<i64>().unwrap())
            } else {
                json!(text)
            };
            let faults = self.faults(&header["schema"], &value);
            assert!(
                text.is_empty() || faults.is_empty(),
                "{name}: {faults:?}: {told}"
            );
        }
        match response["content"]["application/json"].get("schema") {
            None => assert_eq!(answer.body, Value::Null, "{told}"),
            Some(schema) => {
                assert_eq!(answer.header("content-type"), "application/json", "{told}");
                let faults = self.faults(schema, &answer.body);
                assert!(faults.is_empty(), "{faults:?}: {told}");
            }
        }
        self.seen.insert((
            operation["operationId"].as_str().unwrap().to_owned(),
            answer.status,
        ));
    }
}

/// Lets no object have other fields than those that are described.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("type").is_some_and(|kind| kind == "object")
                && object.contains_key("properties")
            {
                object.insert("additionalProperties".to_owned(), false.into());
            }
            object.values_mut().for_each(close);
        }
        Value::Array(array) => array.iter_mut().for_each(close),
        _ => {}
    }
}

/// An installation that has all that the api can tell of: terms, and a name server.
pub fn installation(name_server: &NameServer) -> Plan {
    let settings = [
        ("ASSAY_TERMS_VERSION", TERMS.0.to_owned()),
        ("ASSAY_TERMS_URL", TERMS.1.to_owned()),
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000000".to_owned()),
        // Schemathesis tries wrong credentials on purpose.
        ("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000".to_owned()),
    ];
    Plan {
        env: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        ..Plan::default()
    }
}

/// Puts `next-1` into the catalog.
pub async fn publish_a_model(world: &World) {
    let card = json!({
        "id": "next-1", "task": "next-event", "status": "beta", "version": "1", "context_length": 512, "requires_tokenizer": true,
        "endpoints": ["generate"], "embedding_dim": 256, "codebook": {"levels": 3, "resolution": "multi", "base_size": 256},
    });
    let path = world
        .stack
        .ground
        .servers
        .folder()
        .join(format!("{}-card.json", world.stack.database.name));
    std::fs::write(&path, card.to_string()).unwrap();
    world
        .stack
        .operate(&["model", "publish", path.to_str().unwrap()])
        .await
        .unwrap();
}

#[test]
fn examples_conform_to_their_schemas() {
    let conformance = Conformance::new();
    let mut bare = Vec::new();
    for (path, item) in conformance.document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap().iter();
            let bodies = responses
                .map(|(status, response)| (status.as_str(), conformance.resolved(response)));
            for (place, of) in
                bodies.chain(operation.get("requestBody").map(|body| ("request", body)))
            {
                let Some(content) = of["content"].get("application/json") else {
                    continue;
                };
                let named = content["examples"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(_, example)| &example["value"]);
                let examples: Vec<_> = content.get("example").into_iter().chain(named).collect();
                if examples.is_empty() {
                    bare.push(format!("{method} {path} {place}"));
                }
                for example in examples {
                    let faults = conformance.faults(&content["schema"], example);
                    assert!(faults.is_empty(), "{method} {path} {place}: {faults:?}");
                }
            }
        }
    }
    assert!(
        bare.is_empty(),
        "without an example, add it to api/src/openapi/examples.json: {bare:#?}"
    );
}
