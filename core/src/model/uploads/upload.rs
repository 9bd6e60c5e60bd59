//! Uploads: predictions or sequences that a client sends in parts before it submits them, and
//! prediction jobs' outputs.

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::ids::{OrgId, UploadId};
use crate::model::random::{self, RandomError};
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;
use assay_eval::content::Compression;
use assay_eval::prediction::TextForm;

/// Maximum size of a part, in bytes.
pub const PART_MAX: u64 = 64 * 1024 * 1024;

/// A part's highest number. Numbers start at 1.
pub const PARTS_MAX: i32 = 10_000;

/// Maximum size of an upload, in bytes: all parts at their maximum size.
pub const BYTES_MAX: i64 = PART_MAX.cast_signed() * PARTS_MAX as i64;

/// The most uploads by an organization that wait for their parts.
pub const OPEN_MAX: i64 = 100;

text_enum! {
    /// The format of the content.
    pub enum ContentType {
        /// One prediction or sequence a line. Blank lines are ignored.
        Ndjson = "application/x-ndjson",
        /// One JSON array of predictions.
        Json = "application/json",
        /// A table of predictions with the columns `item_id` and `prediction` (RFC 4180).
        Csv = "text/csv",
    }
}

impl ContentType {
    /// Returns the content's form, unless its beginning shows another one.
    pub const fn text_form(self) -> TextForm {
        match self {
            Self::Ndjson | Self::Json => TextForm::Json,
            Self::Csv => TextForm::Csv,
        }
    }
}

text_enum! {
    /// An upload content's kind.
    pub enum UploadKind {
        /// Predictions for a suite.
        Predictions = "predictions",
        /// Sequences for a prediction job, one a line.
        Sequences = "sequences",
    }
}

text_enum! {
    /// An upload's state.
    pub enum UploadStatus {
        /// The upload waits for parts and completion.
        Pending = "pending",
        /// The content is valid and can be submitted.
        Ready = "ready",
        /// The content is invalid.
        Failed = "failed",
        /// The upload was not completed or submitted in time.
        Expired = "expired",
    }
}

text_enum! {
    /// The sent bytes' compression.
    pub enum ContentEncoding {
        /// The bytes are not compressed.
        Identity = "identity",
        /// The bytes are compressed with gzip (RFC 1952), with one or several members.
        Gzip = "gzip",
        /// The bytes are compressed with Zstandard (RFC 8878), with one or several frames.
        Zstd = "zstd",
    }
}

impl ContentEncoding {
    /// Returns the encoding for content with a compression.
    pub const fn of(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::Identity,
            Compression::Gzip => Self::Gzip,
            Compression::Zstd => Self::Zstd,
        }
    }

    /// Returns the compression that the content reader expects.
    pub const fn compression(self) -> Compression {
        match self {
            Self::Identity => Compression::None,
            Self::Gzip => Compression::Gzip,
            Self::Zstd => Compression::Zstd,
        }
    }
}

text_enum! {
    /// A failed upload's error code.
    pub enum UploadFailure {
        /// The content is invalid. The message names the position.
        InvalidPredictions = "invalid_predictions",
        /// A line is not a valid sequence. The message names the line.
        InvalidSequences = "invalid_sequences",
        /// The decompressed content is larger than the plan allows.
        PayloadTooLarge = "payload_too_large",
    }
}

/// The error of a failed upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UploadError {
    /// The code of the error.
    pub code: UploadFailure,
    /// A description for people. It can change.
    pub message: String,
}

/// A part that was received completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = UploadPart)]
pub struct Part {
    /// The number of the part. Parts are read in the order of their numbers.
    #[schema(minimum = 1, maximum = 10000)]
    pub number: i32,
    /// The size of the part, in bytes.
    #[schema(minimum = 0, maximum = 67_108_864)]
    pub bytes: i64,
    /// The SHA-256 of the part, 64 lower-case hex digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: String,
    /// The time at which the part was received.
    pub received_at: Timestamp,
}

/// An upload of the caller's organization in a listing, without its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UploadSummary {
    /// The id of the upload.
    pub id: UploadId,
    /// The id of the organization that owns the upload.
    pub org_id: OrgId,
    /// The kind of the content.
    pub kind: UploadKind,
    /// The state of the upload.
    pub status: UploadStatus,
    /// The format of the content.
    pub content_type: ContentType,
    /// The compression of the bytes.
    pub content_encoding: ContentEncoding,
    /// The value for `input_ref` of a submission.
    pub input_ref: UploadId,
    /// The URL of the parts: `PUT {upload_url}/{number}`.
    #[schema(format = "uri")]
    pub upload_url: String,
    /// The maximum size of a part, in bytes.
    #[schema(minimum = 1)]
    pub part_max_bytes: u64,
    /// The number of bytes of all parts as they are sent. Until the upload is ready, the announced
    /// number; null if none was announced.
    #[schema(minimum = 1)]
    pub bytes: Option<i64>,
    /// The announced SHA-256 of all parts as they are sent, 64 lower-case hex digits. Null if none
    /// was announced.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub sha256: Option<String>,
    /// The number of predictions or sequences. Null until the upload is ready.
    #[schema(minimum = 1)]
    pub n_items: Option<i64>,
    /// The time at which the upload was created.
    pub created_at: Timestamp,
    /// The time until which the upload can be completed, or, if it is ready, submitted.
    pub expires_at: Timestamp,
    /// The time at which the upload became ready. Null until then.
    pub completed_at: Option<Timestamp>,
    /// The error. Null unless the upload has failed.
    pub error: Option<UploadError>,
}

/// An upload of the caller's organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Upload {
    /// The upload without its parts.
    #[serde(flatten)]
    pub upload_summary: UploadSummary,
    /// The parts that were received, in the order of their numbers.
    pub parts: Vec<Part>,
}

/// A page of uploads, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Uploads {
    /// The uploads of the page.
    #[schema(max_items = 200)]
    pub uploads: Vec<UploadSummary>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<UploadId>,
}

/// An upload's row. The fields are those of [`UploadSummary`], flat.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of UploadSummary, flat")]
pub struct UploadRow {
    pub id: UploadId,
    pub org_id: OrgId,
    pub kind: UploadKind,
    /// `expired` after `expires_at`, even if the stored status was not updated yet.
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
    /// Returns the upload as callers see it. `public_url` is the API's public address.
    pub fn into_upload(self, parts: Vec<Part>, public_url: &str) -> Upload {
        Upload {
            upload_summary: self.into_summary(public_url),
            parts,
        }
    }

    /// Returns the upload as a listing shows it. `public_url` is the API's public address.
    pub fn into_summary(self, public_url: &str) -> UploadSummary {
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
        UploadSummary {
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
        }
    }
}

/// Returns the prefix for an upload's objects in the artifact store. Their names begin with it and
/// a slash.
pub fn prefix(org_id: &OrgId, upload_id: &UploadId) -> String {
    format!("{org_id}/{upload_id}")
}

/// Returns a unique name for a part's object, so that two parts with the same number that are
/// sent concurrently are two objects.
pub fn part_key(org_id: &OrgId, upload_id: &UploadId, number: i32) -> Result<String, RandomError> {
    Ok(format!(
        "{}/{number}-{}",
        prefix(org_id, upload_id),
        random::base62(12)?
    ))
}

/// Returns the object name for an output part that an attempt writes. Cleanup removes other
/// attempts' objects than the one that finished the job.
pub fn output_key(org_id: &OrgId, upload_id: &UploadId, number: i32, attempt: i32) -> String {
    format!("{}/{number}-{attempt}", prefix(org_id, upload_id))
}

/// Returns `true` if an output's object was written by this attempt.
pub fn is_output_of(object_key: &str, attempt: i32) -> bool {
    object_key
        .rsplit_once('-')
        .is_some_and(|(_, suffix)| suffix == attempt.to_string())
}

/// An object that holds one upload part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartObject {
    /// The part number, from 1.
    pub number: i32,
    /// The object's key in the artifact store.
    pub object_key: String,
    /// The object's length, in bytes.
    pub bytes: i64,
}
