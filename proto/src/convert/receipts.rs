//! Messages of `ReceiptService`.

use assay_core::model::receipt::{Commitment, LogPlace, Receipt, ReceiptOpening, SuiteOpening};
use prost_types::Struct;
use serde_json::Value;

use super::{object, timestamp};
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

impl From<LogPlace> for v1::LogPlace {
    fn from(place: LogPlace) -> Self {
        let LogPlace {
            origin,
            index,
            proof,
        } = place;
        Self {
            origin,
            index,
            proof,
        }
    }
}

impl From<ReceiptOpening> for v1::GetReceiptOpeningResponse {
    fn from(opening: ReceiptOpening) -> Self {
        let ReceiptOpening { org_id, org_salt } = opening;
        Self {
            org_id: org_id.into(),
            org_salt,
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
            published_at: Some(timestamp(published_at)),
            committed_at: Some(timestamp(committed_at)),
            statement: statement(json),
            jws,
            log: log.map(Into::into),
            opening: opening.map(Into::into),
        }
    }
}

impl From<SuiteOpening> for v1::SuiteOpening {
    fn from(opening: SuiteOpening) -> Self {
        let SuiteOpening {
            retired_at,
            salt,
            seed,
            items_sha256,
            answers_sha256,
            items_url,
            answers_url,
        } = opening;
        Self {
            retired_at: Some(timestamp(retired_at)),
            salt,
            seed,
            items_sha256,
            answers_sha256,
            items_url,
            answers_url,
        }
    }
}
