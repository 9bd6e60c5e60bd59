//! The operations of an OpenAPI document.

use serde_json::Value;

/// Returns every operation of the document, with its path and method.
pub(super) fn operations(
    document: &mut Value,
) -> impl Iterator<Item = (String, String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let operations = item.as_object_mut().into_iter().flatten();
        operations.map(move |(method, operation)| (path.clone(), method.clone(), operation))
    })
}
