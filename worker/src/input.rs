//! An attempt's input, except for a suite's items.

use assay_core::model::ids::UploadId;
use assay_core::model::upload::PartObject;
use assay_core::store::within_response_timeout;
use assay_core::store::work::{self, Claim, UploadForm};
use assay_core::{OrgId, Result};
use assay_eval::content::ContentFormat;
use bytes::Bytes;

use crate::context::AttemptContext;

/// A job's predictions or sequences.
pub enum Input {
    /// They were sent with the request.
    Inline(Bytes),
    /// They were uploaded, or are another job's output.
    Upload {
        /// The format of the content.
        format: ContentFormat,
        /// The content's objects.
        parts: Vec<PartObject>,
    },
}

/// A place for a job's predictions or sequences.
pub struct InputPlace<'a> {
    /// The input itself, if it is stored with the job.
    pub body: Option<&'a [u8]>,
    /// The object key for other inline input.
    pub input_key: Option<&'a str>,
    /// The upload, if the input is not inline.
    pub upload_id: Option<&'a UploadId>,
}

impl<'a> InputPlace<'a> {
    /// Returns where a claimed job's input is.
    pub fn of(claim: &'a Claim) -> Self {
        Self {
            body: claim.body.as_deref(),
            input_key: claim.input_key.as_deref(),
            upload_id: claim.upload_id.as_ref(),
        }
    }
}

/// Fetches inline input, which is small, or looks up the organization's upload parts.
/// `None` if the input is missing.
pub async fn fetch_input(
    context: &AttemptContext,
    org_id: &OrgId,
    place: InputPlace<'_>,
) -> Result<Option<Input>> {
    if let Some(body) = place.body {
        return Ok(Some(Input::Inline(Bytes::copy_from_slice(body))));
    }
    match (place.input_key, place.upload_id) {
        (Some(input_key), _) => Ok(context.artifacts.get(input_key).await?.map(Input::Inline)),
        (None, Some(upload_id)) => {
            let (
                UploadForm {
                    content_type,
                    content_encoding,
                },
                parts,
            ) = within_response_timeout(work::upload(&context.db.get(), org_id, upload_id)).await?;
            // The size and the hash were checked when the upload was completed.
            let format = ContentFormat {
                text: content_type.text_form(),
                compression: content_encoding.compression(),
                bytes_max: u64::MAX,
            };
            Ok((!parts.is_empty()).then_some(Input::Upload { format, parts }))
        }
        (None, None) => Ok(None),
    }
}
