//! Messages of `ReceiptService` with a statement, which is any JSON in its resource.

use assay_core::model::receipt::{Commitment, Receipt};
use prost_types::Struct;
use serde_json::Value;

use super::{IntoProto as _, object};
use crate::v1;

/// Converts a statement, which is always an object.
fn statement(json: Value) -> Option<Struct> {
    match json {
        Value::Object(fields) => Some(object(fields)),
        _ => None,
    }
}

impl From<Receipt> for v1::Receipt {
    fn from(receipt: Receipt) -> Self {
        let Receipt {
            id,
            job_id,
            statement: json,
            jws,
            log,
        } = receipt;
        Self {
            id: id.into(),
            job_id: job_id.into(),
            statement: statement(json),
            jws,
            log: log.map(Into::into),
        }
    }
}

impl From<Commitment> for v1::SuiteCommitment {
    fn from(commitment: Commitment) -> Self {
        let Commitment {
            suite_id,
            suite_version,
            suite_commitment,
            published_at,
            committed_at,
            statement: json,
            jws,
            log,
            opening,
        } = commitment;
        Self {
            suite_id: suite_id.into(),
            suite_version,
            suite_commitment,
            published_at: Some(published_at.into_proto()),
            committed_at: Some(committed_at.into_proto()),
            statement: statement(json),
            jws,
            log: log.map(Into::into),
            opening: opening.map(Into::into),
        }
    }
}
