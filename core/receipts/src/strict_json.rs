//! Comparing JSON documents that were parsed strictly before.

use serde_json::Value;

/// Returns `true` if two documents have the same members and values. Numbers are equal if they are
/// the same double, however they are written.
pub fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64().is_some_and(|one| Some(one) == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_compared_by_value() {
        let same = |one: &str, other: &str| {
            is_same(
                &serde_json::from_str(one).unwrap(),
                &serde_json::from_str(other).unwrap(),
            )
        };
        assert!(same(
            r#"{"a":1,"b":[0.5,null]}"#,
            r#"{"b":[5e-1,null],"a":1.0}"#
        ));
        for (one, other) in [
            ("1", "1.5"),
            ("null", "0"),
            ("[1]", "[1,1]"),
            (r#"{"a":null}"#, "{}"),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            ("\"1\"", "1"),
        ] {
            assert!(!same(one, other), "{one} {other}");
            assert!(!same(other, one), "{one} {other}");
        }
    }
}
