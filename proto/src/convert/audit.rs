//! Messages of `AuditService`.

use assay_core::model::audit::{AuditActor, AuditEntries, AuditEntry, AuditTarget};

use super::{object, timestamp};
use crate::v1;

impl From<AuditEntry> for v1::AuditEntry {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry {
            id,
            org_id,
            r#type,
            created_at,
            actor,
            request_id,
            address,
            target,
            changes,
        } = entry;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            r#type: r#type.to_string(),
            created_at: Some(timestamp(created_at)),
            actor: Some(actor.into()),
            request_id: request_id.map(Into::into),
            address,
            target: Some(target.into()),
            changes: changes.map(object),
        }
    }
}

impl From<AuditActor> for v1::AuditActor {
    fn from(actor: AuditActor) -> Self {
        let AuditActor {
            r#type,
            user_id,
            email,
            key_id,
        } = actor;
        Self {
            r#type: r#type.to_string(),
            user_id: user_id.map(Into::into),
            email,
            key_id: key_id.map(Into::into),
        }
    }
}

impl From<AuditTarget> for v1::AuditTarget {
    fn from(target: AuditTarget) -> Self {
        let AuditTarget { r#type, id } = target;
        Self {
            r#type: r#type.to_string(),
            id,
        }
    }
}

impl From<AuditEntries> for v1::ListAuditEntriesResponse {
    fn from(listing: AuditEntries) -> Self {
        let AuditEntries {
            entries,
            next_before,
        } = listing;
        Self {
            entries: entries.into_iter().map(Into::into).collect(),
            next_before: next_before.map(Into::into),
        }
    }
}
