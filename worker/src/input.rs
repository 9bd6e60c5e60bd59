//! The input of an attempt, except for the items of a suite.

use assay_core::model::ids::UploadId;
use assay_core::model::upload::PartObject;
use assay_core::store::within_response_timeout;
use assay_core::store::work::{self, Claim, UploadForm};
use assay_core::{OrgId, Result};
use assay_eval::content::ContentFormat;
use bytes::Bytes;

use crate::context::AttemptContext;

/// The predictions or sequences of a job.
pub enum Input {
    /// They were sent with the request.
    Inline(Bytes),
    /// They were uploaded, or are the output of another job.
    Upload {
        /// The format of the content.
        format: ContentFormat,
        /// The objects of the content.
        parts: Vec<PartObject>,
    },
}

/// The place of the predictions or sequences of a job.
pub struct InputPlace<'a> {
    /// The input itself, if it is stored with the job.
    pub body: Option<&'a [u8]>,
    /// The object key of other inline input.
    pub input_key: Option<&'a str>,
    /// The upload, if the input is not inline.
    pub upload_id: Option<&'a UploadId>,
}

impl<'a> InputPlace<'a> {
    /// Returns the place of the input of a claimed job.
    pub fn of(claim: &'a Claim) -> Self {
        Self {
            body: claim.body.as_deref(),
            input_key: claim.input_key.as_deref(),
            upload_id: claim.upload_id.as_ref(),
        }
    }
}

/// Fetches inline input, which is small, or looks up the parts of an upload of the organization.
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
