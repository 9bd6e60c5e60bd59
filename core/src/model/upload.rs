//! Uploads: predictions that are sent in parts before they are submitted.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::error::Result;
use crate::model::ids::{OrgId, UploadId};
use crate::model::random;
use crate::model::timestamp::Timestamp;
use crate::text_enum;
use assay_eval::prediction::Layout;

/// The largest part, in bytes.
pub const PART_MAX: u64 = 64 * 1024 * 1024;

/// The highest number of a part.
pub const PARTS_MAX: i32 = 10_000;

/// The largest upload that parts can make up, in bytes.
pub const BYTES_MAX: i64 = PART_MAX.cast_signed() * PARTS_MAX as i64;

/// How many uploads of an organization may wait for their parts.
pub const OPEN_MAX: i64 = 100;

text_enum! {
    /// How predictions are written one after the other.
    pub enum ContentType {
        /// One on each line; lines may be blank.
        Ndjson = "application/x-ndjson",
        /// A JSON array.
        Json = "application/json",
    }
}

impl ContentType {
    /// The layout that the reader is told.
    pub const fn layout(self) -> Layout {
        match self {
            Self::Ndjson => Layout::Lines,
            Self::Json => Layout::Array,
        }
    }
}

text_enum! {
    /// What an upload holds.
    pub enum UploadKind {
        /// Predictions for a suite.
        Predictions = "predictions",
    }
}

text_enum! {
    /// Where an upload stands.
    pub enum UploadStatus {
        /// Waits for its parts, and to be completed.
        Pending = "pending",
        /// Was read through, and can be submitted.
        Ready = "ready",
        /// Holds something else than predictions.
        Failed = "failed",
        /// Its time is over.
        Expired = "expired",
    }
}

text_enum! {
    /// How the bytes that are sent are compressed.
    pub enum ContentEncoding {
        /// Not at all.
        Identity = "identity",
        /// RFC 1952, of one member or several.
        Gzip = "gzip",
        /// RFC 8878, of one frame or several.
        Zstd = "zstd",
    }
}

text_enum! {
    /// Why an upload failed.
    pub enum UploadFailure {
        /// It is not what it should be; the message names the place.
        InvalidPredictions = "invalid_predictions",
        /// Decompressed it is larger than the plan allows.
        PayloadTooLarge = "payload_too_large",
    }
}

/// Why an upload failed, as the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UploadError {
    /// From a closed set.
    pub code: UploadFailure,
    /// For humans.
    pub message: String,
}

/// A part that was received whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UploadPart)]
pub struct Part {
    /// Its place, from 1.
    #[schema(minimum = 1, maximum = 10000)]
    pub number: i32,
    /// Its length.
    #[schema(minimum = 0, maximum = 67_108_864)]
    pub bytes: i64,
    /// SHA-256 of its bytes, in hex.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
    /// When it had arrived.
    pub received_at: Timestamp,
}

/// What a new upload is to hold.
#[derive(ToSchema)]
pub struct UploadCreate {
    /// What it will hold.
    pub kind: UploadKind,
    /// How the predictions will be written; `application/x-ndjson` if it is not given.
    pub content_type: Option<ContentType>,
    /// How the bytes will be compressed; `identity` if it is not given.
    pub content_encoding: Option<ContentEncoding>,
    /// How many bytes will be sent in all.
    #[schema(minimum = 1, maximum = 671_088_640_000_i64)]
    pub bytes: Option<i64>,
    /// SHA-256 of all bytes as they will be sent, in hex.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    pub sha256: Option<String>,
}

/// An upload, as the callers of its organization see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Upload {
    /// `upl_…`
    pub id: UploadId,
    /// The organization that sends it.
    pub org_id: OrgId,
    /// What it holds.
    pub kind: UploadKind,
    /// Where it stands.
    pub status: UploadStatus,
    /// How the predictions are written.
    pub content_type: ContentType,
    /// How they are compressed.
    pub content_encoding: ContentEncoding,
    /// What a submission names it by: its id.
    pub input_ref: UploadId,
    /// Where its parts go: `PUT {upload_url}/{number}`.
    #[schema(format = "uri")]
    pub upload_url: String,
    /// The largest part.
    #[schema(minimum = 1)]
    pub part_max_bytes: u64,
    /// How many bytes are sent in all, as announced; when it is ready, as received.
    #[schema(minimum = 1)]
    pub bytes: Option<i64>,
    /// SHA-256 of all bytes as they are sent, in hex, as announced.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: Option<String>,
    /// How many predictions it holds, once it is ready.
    #[schema(minimum = 1)]
    pub n_items: Option<i64>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it can be completed; when it is ready, until when it can be submitted.
    pub expires_at: Timestamp,
    /// When it became ready.
    pub completed_at: Option<Timestamp>,
    /// Why it failed, if it did.
    pub error: Option<UploadError>,
    /// The parts that were received, by number.
    pub parts: Vec<Part>,
}

/// An upload's row. For the fields see [`Upload`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of Upload, flat")]
pub struct UploadRow {
    pub id: UploadId,
    pub org_id: OrgId,
    pub kind: UploadKind,
    /// What has expired says so, whether it was noted or not.
    pub status: UploadStatus,
    pub content_type: ContentType,
    pub content_encoding: ContentEncoding,
    pub bytes: Option<i64>,
    pub sha256: Option<String>,
    pub n_items: Option<i64>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub error_code: Option<UploadFailure>,
    pub error_message: Option<String>,
}

impl UploadRow {
    /// The upload as callers see it; `public_url` is where the api can be reached.
    pub fn into_upload(self, parts: Vec<Part>, public_url: &str) -> Upload {
        let Self {
            id,
            org_id,
            kind,
            status,
            content_type,
            content_encoding,
            bytes,
            sha256,
            n_items,
            created_at,
            expires_at,
            completed_at,
            error_code,
            error_message,
        } = self;
        Upload {
            upload_url: format!("{public_url}/v1/uploads/{id}/parts"),
            input_ref: id.clone(),
            part_max_bytes: PART_MAX,
            error: error_code.map(|code| UploadError {
                code,
                message: error_message.unwrap_or_default(),
            }),
            id,
            org_id,
            kind,
            status,
            content_type,
            content_encoding,
            bytes,
            sha256,
            n_items,
            created_at,
            expires_at,
            completed_at,
            parts,
        }
    }
}

/// Where the artifact store keeps an upload: all of its objects' names begin with this and a slash.
pub fn prefix(org_id: &OrgId, upload_id: &UploadId) -> String {
    format!("{org_id}/{upload_id}")
}

/// A name for a part that no other has, so that two that are sent at once are two objects.
pub fn part_key(org_id: &OrgId, upload_id: &UploadId, number: i32) -> Result<String> {
    Ok(format!(
        "{}/{number}-{}",
        prefix(org_id, upload_id),
        random::base62(12)?
    ))
}
