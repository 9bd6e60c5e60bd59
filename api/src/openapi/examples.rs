//! Examples of requests and responses, by operation, in `examples.json`. They are from real
//! responses. A test validates them against the schemas.

use serde_json::{Value, json};

use super::operations::operations;

/// Adds the examples to the operations.
pub fn finish(document: &mut Value) {
    let Ok(examples) = serde_json::from_str::<Value>(include_str!("examples.json")) else {
        return;
    };
    for (_, _, operation) in operations(document) {
        let Some(of) = operation["operationId"].as_str().map(|id| &examples[id]) else {
            continue;
        };
        if let Some(request) = of.get("request") {
            operation["requestBody"]["content"]["application/json"]["example"] = request.clone();
        }
        for (status, response) in of["responses"].as_object().into_iter().flatten() {
            let content = &mut operation["responses"][status]["content"]["application/json"];
            match content.get_mut("examples") {
                // The response already has the examples of its class.
                Some(examples) => examples["further"] = json!({"value": response}),
                None => content["example"] = response.clone(),
            }
        }
    }
}
