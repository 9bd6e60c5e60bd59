//! Messages of `UploadService`.

use assay_core::model::upload::{Part, Upload, UploadError, UploadSummary, Uploads};

use super::timestamp;
use crate::v1;

impl From<Upload> for v1::Upload {
    fn from(upload: Upload) -> Self {
        let Upload {
            id,
            org_id,
            kind,
            status,
            content_type,
            content_encoding,
            input_ref,
            upload_url,
            part_max_bytes,
            bytes,
            sha256,
            n_items,
            created_at,
            expires_at,
            completed_at,
            error,
            parts,
        } = upload;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            kind: kind.to_string(),
            status: status.to_string(),
            content_type: content_type.to_string(),
            content_encoding: content_encoding.to_string(),
            input_ref: input_ref.into(),
            upload_url,
            part_max_bytes,
            bytes,
            sha256,
            n_items,
            created_at: Some(timestamp(created_at)),
            expires_at: Some(timestamp(expires_at)),
            completed_at: completed_at.map(timestamp),
            error: error.map(Into::into),
            parts: parts.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<UploadSummary> for v1::UploadSummary {
    fn from(upload: UploadSummary) -> Self {
        let UploadSummary {
            id,
            org_id,
            kind,
            status,
            content_type,
            content_encoding,
            input_ref,
            upload_url,
            part_max_bytes,
            bytes,
            sha256,
            n_items,
            created_at,
            expires_at,
            completed_at,
            error,
        } = upload;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            kind: kind.to_string(),
            status: status.to_string(),
            content_type: content_type.to_string(),
            content_encoding: content_encoding.to_string(),
            input_ref: input_ref.into(),
            upload_url,
            part_max_bytes,
            bytes,
            sha256,
            n_items,
            created_at: Some(timestamp(created_at)),
            expires_at: Some(timestamp(expires_at)),
            completed_at: completed_at.map(timestamp),
            error: error.map(Into::into),
        }
    }
}

impl From<Uploads> for v1::ListUploadsResponse {
    fn from(page: Uploads) -> Self {
        let Uploads {
            uploads,
            next_before,
        } = page;
        Self {
            uploads: uploads.into_iter().map(Into::into).collect(),
            next_before: next_before.map(Into::into),
        }
    }
}

impl From<Part> for v1::UploadPart {
    fn from(part: Part) -> Self {
        let Part {
            number,
            bytes,
            sha256,
            received_at,
        } = part;
        Self {
            number,
            bytes,
            sha256,
            received_at: Some(timestamp(received_at)),
        }
    }
}

impl From<UploadError> for v1::UploadError {
    fn from(error: UploadError) -> Self {
        let UploadError { code, message } = error;
        Self {
            code: code.to_string(),
            message,
        }
    }
}
