//! The operations of the API, as the contract declares them.

pub use crate::generated::operations::*;

/// Returns a request's operation, so that it is repeated as the retry table says. An operation
/// that the program does not know has the id and its method's rules.
pub fn find(method: &'static str, path: &str) -> Operation {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let matches = |operation: &&Operation| {
        let template = operation.path.split('/');
        operation.method == method
            && template.clone().count() == path.split('/').count()
            && template
                .zip(path.split('/'))
                .all(|(expected, found)| expected.starts_with('{') || expected == found)
    };
    let unknown = Operation {
        id: method,
        method,
        path: "",
    };
    ALL.iter().find(matches).copied().unwrap_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_retries_names_known_operations() {
        let table: serde_json::Value =
            serde_json::from_str(include_str!("../../retries.json")).unwrap();
        for id in table["operations"].as_object().unwrap().keys() {
            assert!(ALL.iter().any(|operation| operation.id == id), "{id}");
        }
    }
}
