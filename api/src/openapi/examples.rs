//! Examples of requests and answers, taken from real ones: `examples.json`, by operation. A test keeps them in the form
//! of today's answers.

use serde_json::{Value, json};

/// Adds the examples.
pub fn finish(document: &mut Value) {
    let Ok(examples) = serde_json::from_str::<Value>(include_str!("examples.json")) else {
        return;
    };
    for (_, _, operation) in super::operations(document) {
        let Some(of) = operation["operationId"].as_str().map(|id| &examples[id]) else {
            continue;
        };
        if let Some(request) = of.get("request") {
            operation["requestBody"]["content"]["application/json"]["example"] = request.clone();
        }
        for (status, answer) in of["responses"].as_object().into_iter().flatten() {
            let content = &mut operation["responses"][status]["content"]["application/json"];
            match content.get_mut("examples") {
                // It has those of its class.
                Some(examples) => examples["further"] = json!({"value": answer}),
                None => content["example"] = answer.clone(),
            }
        }
    }
}
