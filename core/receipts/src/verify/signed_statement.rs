//! Signed statements: the signature, and the readable copy.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::jws::Jws;
use crate::keys::JwkSet;
use crate::statement::{STATEMENT_TYPE, Statement};
use crate::strict_json::is_same;

/// Checks that the named key signed a statement.
pub(super) fn check_signature(keys: &JwkSet, jws: &Jws<'_>) -> Result<(), String> {
    let (_, key) = keys.find(&jws.kid)?;
    if jws.is_by(&key) {
        Ok(())
    } else {
        Err(format!("the key {} did not sign the statement", jws.kid))
    }
}

/// Reads a signed statement strictly, and compares it with the readable one.
pub(super) fn read_statement<P: for<'de> Deserialize<'de>>(
    payload: &[u8],
    readable: &RawValue,
    predicate_type: &str,
    subject: &str,
) -> Result<Statement<P>, String> {
    let invalid = |error: serde_json::Error| format!("the statement is invalid: {error}");
    let statement: Statement<P> = serde_json::from_slice(payload).map_err(invalid)?;
    let _: Statement<P> = serde_json::from_str(readable.get()).map_err(invalid)?;
    let signed: Value = serde_json::from_slice(payload).map_err(invalid)?;
    let shown: Value = serde_json::from_str(readable.get()).map_err(invalid)?;
    if !is_same(&signed, &shown) {
        return Err("the statement is not the signed one".into());
    }
    if statement.r#type != STATEMENT_TYPE
        || statement.predicate_type != predicate_type
        || statement.subject[0].name != subject
    {
        return Err(format!(
            "the statement is not of the type {predicate_type} about {subject}"
        ));
    }
    Ok(statement)
}
