//! The comparison of an upload with a suite. The dashboard shows it before the submission.

use std::ops::ControlFlow;

use assay_core::model::permissions::UploadReader;
use assay_core::model::suite::Suite;
use assay_core::model::upload::{UploadStatus, UploadSummary};
use assay_core::runtime::upload_reader::{ContentReader, read_upload};
use assay_core::{Error, Result, store};
use assay_eval::content::ContentFormat;
use assay_eval::prediction::{CellForm, Fit, FitCheck, PredictionRules};

use crate::app::App;

/// Largest number of items of a suite whose ids are compared.
const ITEMS_MAX: u32 = 200_000;

/// Largest size of an upload that is read once more, in bytes as they were sent.
const BYTES_MAX: i64 = 64 * 1024 * 1024;

/// Reads a ready upload, and compares its predictions with the items and the metric of a suite.
/// Returns `None` if the upload or the suite is too large for that.
pub async fn find(
    app: &App,
    caller: &UploadReader,
    upload: &UploadSummary,
    suite: &Suite,
) -> Result<Option<Fit>> {
    let is_small = upload.bytes.is_some_and(|bytes| bytes <= BYTES_MAX)
        && suite.n_items <= i64::from(ITEMS_MAX);
    let rules = PredictionRules::published(&suite.metric, &suite.quantiles);
    let (UploadStatus::Ready, Ok(rules), true) = (upload.status, rules, is_small) else {
        return Ok(None);
    };
    let _permit = app
        .concurrency
        .upload_completions
        .acquire(caller.org_id().as_str())
        .await?;
    let db = app.db.get();
    let item_ids =
        store::suite::item_ids(&db, &suite.suite_id, &suite.version, 0, ITEMS_MAX).await?;
    if item_ids.is_empty() {
        // The operator has removed the version.
        return Ok(None);
    }
    let parts = store::upload::part_objects(&db, caller.org_id(), &upload.id).await?;
    let format = ContentFormat {
        text: upload.content_type.text_form(),
        compression: upload.content_encoding.compression(),
        bytes_max: caller.plan().upload_bytes_max.unsigned_abs(),
    };
    let compare = move |content: ContentReader<'_>| {
        let cells = CellForm::of(rules.metric());
        let mut check = FitCheck::new(rules, item_ids);
        content.read(cells, || ControlFlow::Continue(()), &mut check);
        check.finish()
    };
    let read = read_upload(&app.artifacts, &parts, format, false, compare).await?;
    let read = read.ok_or_else(|| {
        Error::internal("an object of the upload is missing in the artifact store")
    })?;
    Ok(Some(read.value))
}
