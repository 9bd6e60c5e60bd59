//! Messages of `KeyService`.

use assay_core::model::key::{ApiKey, ApiKeyCreated, ApiKeys};

use super::timestamp;
use crate::v1;

impl From<ApiKey> for v1::ApiKey {
    fn from(key: ApiKey) -> Self {
        let ApiKey {
            id,
            org_id,
            name,
            prefix,
            scopes,
            created_by,
            created_at,
            expires_at,
            last_used_at,
            last_used_address,
            replaces,
            replaced_by,
            revoked_at,
        } = key;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            name,
            prefix,
            scopes: scopes.list().iter().map(ToString::to_string).collect(),
            created_by: created_by.into(),
            created_at: Some(timestamp(created_at)),
            expires_at: expires_at.map(timestamp),
            last_used_at: last_used_at.map(timestamp),
            last_used_address,
            replaces: replaces.map(Into::into),
            replaced_by: replaced_by.map(Into::into),
            revoked_at: revoked_at.map(timestamp),
        }
    }
}

impl From<ApiKeyCreated> for v1::ApiKeyCreated {
    fn from(created: ApiKeyCreated) -> Self {
        let ApiKeyCreated { api_key, key } = created;
        let v1::ApiKey {
            id,
            org_id,
            name,
            prefix,
            scopes,
            created_by,
            created_at,
            expires_at,
            last_used_at,
            last_used_address,
            replaces,
            replaced_by,
            revoked_at,
        } = api_key.into();
        Self {
            id,
            org_id,
            name,
            prefix,
            scopes,
            created_by,
            created_at,
            expires_at,
            last_used_at,
            last_used_address,
            replaces,
            replaced_by,
            revoked_at,
            key,
        }
    }
}

impl From<ApiKeys> for v1::ListKeysResponse {
    fn from(listing: ApiKeys) -> Self {
        let ApiKeys { keys, next_cursor } = listing;
        Self {
            keys: keys.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}
