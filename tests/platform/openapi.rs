//! The OpenAPI document: the API serves the committed one, it lists every route, and responses
//! conform to it. `api_contract.rs` tests that the API accepts and rejects requests as the document
//! says.

mod responses;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use assay_tests::client::{Client, Response};
use serde_json::{Value, json};

use assay_tests::stack::StackSize;

use crate::harness::{Expect, World, declared_operations, shared_world, string};
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
async fn committed_document_matches_served_document() {
    let world = shared_world().await;
    let printed = Command::new(&world.stack.ground.binaries.api)
        .arg("openapi")
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(
        printed == committed(),
        "{FILE} is out of date, run: cargo run -p assay-api -- openapi > {FILE}"
    );
    let served = world
        .anonymous()
        .get("/openapi.json")
        .await
        .expect_status(200);
    assert_eq!(served.header("content-type"), "application/json");
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
    let printed = world
        .stack
        .operate(&["openapi", "--git-sha"])
        .await
        .unwrap();
    assert_eq!(printed["info"].get("x-git-sha"), build.as_ref());
}

/// Returns the document's operations, such as `GET /v1/me`.
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
fn routes_match_documented_operations() {
    assert_eq!(
        declared_operations(),
        operations(&document()),
        "a handler without #[utoipa::path], or one that rest::Operations does not list"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn docs_page_loads_no_external_resources() {
    let world = shared_world().await;
    let client = world.anonymous();
    let redirect_client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let redirect = redirect_client
        .get(format!("{}/docs", world.stack.url()))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            redirect.status().as_u16(),
            redirect.headers()["location"].to_str().unwrap()
        ),
        (308, "/docs/")
    );
    let page = client.get("/docs/").await.expect_status(200);
    let html = string(&page.body);
    let attribute_values = |attribute: &str| -> Vec<String> {
        html.split(&format!("{attribute}=\""))
            .skip(1)
            .filter_map(|rest| rest.split_once('"'))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let files: Vec<_> = attribute_values("src")
        .into_iter()
        .chain(attribute_values("href"))
        .collect();
    assert!(files.len() > 4, "{html}");
    for file in files {
        assert!(!file.contains("//"), "{file} is on another server");
        let found = client
            .get(&format!("/docs/{}", file.trim_start_matches("./")))
            .await
            .expect_status(200);
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
    let configuration = string(
        &client
            .get("/docs/swagger-initializer.js")
            .await
            .unwrap()
            .body,
    );
    assert!(
        configuration.contains("\"/openapi.json\"") && !configuration.contains("://"),
        "{configuration}"
    );
    client
        .get("/docs/nothing.js")
        .await
        .expect_error(404, "not_found");
}

/// Validates responses against the document, and records the operations and statuses that were
/// seen.
struct Conformance {
    document: Value,
    seen: BTreeSet<(String, u16)>,
}

impl Conformance {
    /// Creates a validator that rejects undocumented fields. Clients must accept new fields, but
    /// the document describes every field of today's responses.
    fn new() -> Self {
        let mut document = document();
        forbid_additional_properties(&mut document);
        Self {
            document,
            seen: BTreeSet::new(),
        }
    }

    /// Validates a value against a schema, and returns the errors.
    fn schema_errors(&self, schema: &Value, value: &Value) -> Vec<String> {
        let whole = json!({"allOf": [schema], "components": self.document["components"]});
        let options = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .should_validate_formats(true);
        let validator = options.build(&whole).unwrap();
        validator
            .iter_errors(value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect()
    }

    /// Follows a reference.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self
                .document
                .pointer(reference.trim_start_matches('#'))
                .unwrap(),
            None => value,
        }
    }

    /// Sends a request, and checks that its response has a documented status, all headers, and a
    /// body that matches the schema.
    async fn call(
        &mut self,
        client: &Client,
        method: &str,
        template: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Response {
        let request = client.request(method, path);
        let request = if let Some(body) = body {
            request.json(body)
        } else {
            request
        };
        let response = client.send(request).await.unwrap();
        self.check(method, template, &response);
        response
    }

    fn check(&mut self, method: &str, template: &str, response: &Response) {
        let context = format!("{method} {template}: {} {}", response.status, response.body);
        let operation = &self.document["paths"][template][method.to_lowercase()];
        let responses = operation["responses"]
            .as_object()
            .unwrap_or_else(|| panic!("no operation: {context}"));
        let documented = responses
            .get(&response.status.to_string())
            .unwrap_or_else(|| panic!("no such status: {context}"));
        let documented = self.resolved(documented);
        for (name, header) in documented["headers"].as_object().unwrap() {
            let header = self.resolved(header);
            let text = response.header(name);
            assert!(
                !text.is_empty() || header["required"] != true,
                "no {name}: {context}"
            );
            let value = match header["schema"]["type"].as_str() {
                Some("integer") => json!(text.parse::<i64>().unwrap()),
                Some("number") if !text.is_empty() => json!(text.parse::<f64>().unwrap()),
                _ => json!(text),
            };
            let errors = self.schema_errors(&header["schema"], &value);
            assert!(
                text.is_empty() || errors.is_empty(),
                "{name}: {errors:?}: {context}"
            );
        }
        let content = &documented["content"];
        let streams = ["application/x-ndjson", "text/event-stream"];
        let stream = streams.into_iter().find(|kind| content[*kind].is_object());
        match (content["application/json"].get("schema"), stream) {
            (None, Some(kind)) => assert_eq!(response.header("content-type"), kind, "{context}"),
            (None, None) => assert_eq!(response.body, Value::Null, "{context}"),
            (Some(schema), _) => {
                assert_eq!(
                    response.header("content-type"),
                    "application/json",
                    "{context}"
                );
                let errors = self.schema_errors(schema, &response.body);
                assert!(errors.is_empty(), "{errors:?}: {context}");
            }
        }
        self.seen.insert((
            operation["operationId"].as_str().unwrap().to_owned(),
            response.status,
        ));
    }
}

/// Makes every object schema reject undocumented fields.
fn forbid_additional_properties(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("type").is_some_and(|kind| kind == "object")
                && object.contains_key("properties")
            {
                object.insert("additionalProperties".to_owned(), false.into());
            }
            object.values_mut().for_each(forbid_additional_properties);
        }
        Value::Array(array) => array.iter_mut().for_each(forbid_additional_properties),
        _ => {}
    }
}

/// Returns the settings for an installation with all optional parts: terms, and a name server.
pub fn installation(name_server: &NameServer) -> StackSize {
    let settings = [
        ("ASSAY_TERMS_VERSION", TERMS.0.to_owned()),
        ("ASSAY_TERMS_URL", TERMS.1.to_owned()),
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000000".to_owned()),
        ("ASSAY_DEVICE_LOGINS_PER_MINUTE", "1000000".to_owned()),
        // Schemathesis sends invalid credentials on purpose.
        ("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000000".to_owned()),
    ];
    StackSize {
        env: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        engines: 1,
        ..StackSize::default()
    }
}

/// Publishes the model `next-1`, which is a card alone, and `embedded`, which is served.
pub async fn publish_a_model(world: &World) {
    let package = crate::serving::package("embedded");
    crate::packages::publish(world, &package, None)
        .await
        .unwrap();
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
    let mut without_example = Vec::new();
    for (path, item) in conformance.document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap().iter();
            let bodies = responses
                .map(|(status, response)| (status.as_str(), conformance.resolved(response)));
            for (place, body) in
                bodies.chain(operation.get("requestBody").map(|body| ("request", body)))
            {
                let Some(content) = body["content"].get("application/json") else {
                    continue;
                };
                let named = content["examples"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(_, example)| &example["value"]);
                let examples: Vec<_> = content.get("example").into_iter().chain(named).collect();
                if examples.is_empty() {
                    without_example.push(format!("{method} {path} {place}"));
                }
                for example in examples {
                    let errors = conformance.schema_errors(&content["schema"], example);
                    assert!(errors.is_empty(), "{method} {path} {place}: {errors:?}");
                }
            }
        }
    }
    assert!(
        without_example.is_empty(),
        "add examples to api/src/openapi/examples.json: {without_example:#?}"
    );
}
