//! Scopes of API keys: every route with every scope, on both protocols.

use assay_core::model::scope::Scope;
use assay_tests::client::Client;
use prost_reflect::MethodDescriptor;
use serde_json::{Value, json};
use tonic_types::StatusExt as _;

use crate::harness::{Expect, World, error_code, string};
use crate::parity::{Protocols, mirrored};
use crate::routes::{Class, ROUTES, Resource, Route, world_for_routes};

/// Returns a client with a new key that has one scope.
async fn key_with(world: &World, scope: Scope) -> Client {
    let body = json!({"name": scope.as_str(), "scopes": [scope.as_str()]});
    let made = world
        .owner()
        .post("/v1/keys", &body)
        .await
        .expect_status(201);
    world.client(&string(&made.body["key"]))
}

/// Returns an id for the kind of resource that the route names, which does not exist.
fn unknown_id(route: &Route) -> &'static str {
    route.resource.unknown()[0]
}

/// Returns the scope that the error of a gRPC status requires, if it is one of a scope.
fn required_by(status: &tonic::Status) -> Option<String> {
    let info = status.get_details_error_info()?;
    (info.reason == "FORBIDDEN" && info.metadata.get("reason")? == "scope")
        .then(|| info.metadata["required"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_requires_its_scope_on_both_protocols() {
    let (world, _name_server) = world_for_routes().await;
    let both = Protocols::of(&world).await;
    let streams = mirrored(MethodDescriptor::is_server_streaming);
    let (mut refused, mut admitted) = (0, 0);
    for &scope in Scope::ALL {
        let narrow = key_with(&world, scope).await;
        for route in ROUTES.iter().filter(|route| route.class() != Class::Open) {
            let id = unknown_id(route);
            let body = route.body_of(id);
            let context = format!("{} {} with {scope}", route.method, route.path);
            let rest = narrow
                .send(route.request_with(&narrow, id, &body))
                .await
                .unwrap();
            let line = format!("{} {}", route.method, route.path);
            let mut calls = Vec::new();
            if both
                .routes()
                .any(|mirrored| mirrored.path == route.path && mirrored.method == route.method)
            {
                calls.push(both.call(route, narrow.token(), id, &body).await);
            }
            for (_, rpc) in streams
                .iter()
                .filter(|(mirrors, _)| rest_line(mirrors) == line)
            {
                calls.push(both.call_rpc(rpc, route, narrow.token(), id, &body).await);
            }
            assert!(!calls.is_empty(), "{context}: no rpc");
            match route.class().scope().filter(|required| *required != scope) {
                Some(required) => {
                    refused += 1;
                    let details = json!({"reason": "scope", "required": required.as_str()});
                    assert_eq!(
                        (
                            rest.status,
                            error_code(&rest).as_str(),
                            &rest.body["error"]["details"]
                        ),
                        (403, "forbidden", &details),
                        "{context}: {}",
                        rest.body
                    );
                    for call in calls {
                        let status = call.unwrap_err();
                        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{context}");
                        assert_eq!(
                            required_by(&status).as_deref(),
                            Some(required.as_str()),
                            "{context}: {status:?}"
                        );
                    }
                }
                None => {
                    admitted += 1;
                    let expected = match (route.class(), route.resource) {
                        (Class::Session | Class::Member | Class::Owner | Class::Person, _) => 403,
                        (_, Resource::None) => route.status(),
                        _ => 404,
                    };
                    assert_eq!(rest.status, expected, "{context}: {}", rest.body);
                    for call in calls {
                        let required = call.err().and_then(|status| required_by(&status));
                        assert_eq!(required, None, "{context}");
                    }
                }
            }
        }
    }
    assert!(refused > 150 && admitted > 150, "{refused}, {admitted}");
}

/// Returns the method and path in an rpc's REST line, which may say more.
fn rest_line(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().take(2).collect();
    words.join(" ").trim_end_matches([',', '.', ':']).to_owned()
}

#[test]
fn documented_scopes_are_those_of_the_table() {
    let document: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    for route in ROUTES.iter() {
        let operation = &document["paths"][route.path][route.method.to_lowercase()];
        let documented = operation["x-required-scope"].as_str();
        let required = route.class().scope();
        assert_eq!(
            documented,
            required.map(Scope::as_str),
            "{} {}",
            route.method,
            route.path
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluated_prediction_requires_scope_of_evals() {
    let (world, _name_server) = world_for_routes().await;
    let runner = key_with(&world, Scope::ModelsRun).await;
    let body = json!({"model_id": "embedded", "suite_id": "suite:lunch", "evaluate": true});
    let refused = runner
        .post("/v1/predictions", &body)
        .await
        .expect_status(403);
    assert_eq!(
        refused.body["error"]["details"],
        json!({"reason": "scope", "required": "evals:write"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_have_all_scopes() {
    let (world, _name_server) = world_for_routes().await;
    let member = world.member("member").await;
    for route in ROUTES
        .iter()
        .filter(|route| route.class().scope().is_some())
    {
        let id = unknown_id(route);
        let sent = route.request_with(&member, id, &route.body_of(id));
        let response = member.send(sent).await.unwrap();
        assert_ne!(response.status, 403, "{} {}", route.method, route.path);
    }
}
