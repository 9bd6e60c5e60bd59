//! The comparison of an upload with a suite. The dashboard shows it before the submission.

use std::collections::HashMap;
use std::ops::ControlFlow;

use assay_core::model::permissions::UploadReader;
use assay_core::model::suite::Suite;
use assay_core::model::upload::{Upload, UploadStatus};
use assay_core::runtime::upload_reader::{ContentFormat, ContentReader, read_upload};
use assay_core::{Error, Result, store};
use assay_eval::prediction::{
    FIELD_ERRORS_MAX, Prediction, PredictionSink, Value, check_value, location,
};
use assay_eval::{FieldError, Metric};

use crate::app::App;

/// Largest number of items of a suite whose ids are compared.
const ITEMS_MAX: u32 = 200_000;

/// Largest size of an upload that is read once more, in bytes as they were sent.
const BYTES_MAX: i64 = 64 * 1024 * 1024;

/// The comparison of the predictions of an upload with the items and the metric of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Number of items of the suite with a prediction.
    pub n_matched: i64,
    /// Number of predictions for items that are not in the suite.
    pub n_unmatched: i64,
    /// The first of these items, with its place in the file.
    pub first_unmatched: Option<(String, String)>,
    /// The first errors for which a job would fail, at most `FIELD_ERRORS_MAX`.
    pub errors: Vec<FieldError>,
}

/// Reads a ready upload, and compares its predictions with the items and the metric of a suite.
/// Returns `None` if the upload or the suite is too large for that.
pub async fn find(
    app: &App,
    caller: &UploadReader,
    upload: &Upload,
    suite: &Suite,
) -> Result<Option<Fit>> {
    let is_small = upload.bytes.is_some_and(|bytes| bytes <= BYTES_MAX)
        && suite.n_items <= i64::from(ITEMS_MAX);
    let (UploadStatus::Ready, Ok(metric), true) =
        (upload.status, suite.metric.parse::<Metric>(), is_small)
    else {
        return Ok(None);
    };
    let _permit = app
        .upload_completions
        .acquire(caller.org_id().as_str())
        .await?;
    let db = app.db.get();
    let item_ids =
        store::suite::item_ids(&db, &suite.suite_id, &suite.version, 0, ITEMS_MAX).await?;
    let parts = store::upload::part_objects(&db, caller.org_id(), &upload.id).await?;
    let content = ContentFormat {
        content_type: upload.content_type,
        content_encoding: upload.content_encoding,
        bytes_max: caller.plan().upload_bytes_max.unsigned_abs(),
        compute_sha256: false,
    };
    let compare = move |content: ContentReader<'_>| {
        let mut comparison = Comparison {
            metric,
            places: item_ids.into_iter().map(|id| (id, None)).collect(),
            fit: Fit {
                n_matched: 0,
                n_unmatched: 0,
                first_unmatched: None,
                errors: Vec::new(),
            },
        };
        content.read(|| ControlFlow::Continue(()), &mut comparison);
        comparison.fit
    };
    let read = read_upload(&app.artifacts, &parts, content, compare).await?;
    let read = read.ok_or_else(|| {
        Error::internal("an object of the upload is missing in the artifact store")
    })?;
    Ok(Some(read.value))
}

/// Compares predictions with the items of a suite.
struct Comparison {
    metric: Metric,
    /// The place of the prediction of each item, once there is one.
    places: HashMap<String, Option<String>>,
    fit: Fit,
}

impl<'a> PredictionSink<'a> for Comparison {
    type Stop = ();

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        let fit = &mut self.fit;
        match prediction {
            Err(error) => fit.errors.push(error),
            Ok(prediction) => {
                if matches!(prediction.value, Value::Failed) {
                    return ControlFlow::Continue(());
                }
                let place = location(prediction.index, prediction.line);
                if let Err((reason, message)) = check_value(self.metric, prediction.value) {
                    fit.errors
                        .push(FieldError::new(place.clone(), reason, message));
                }
                match self.places.get_mut(prediction.item_id.as_ref()) {
                    None => {
                        fit.n_unmatched += 1;
                        let item_id = prediction.item_id.into_owned();
                        fit.first_unmatched.get_or_insert((item_id, place));
                    }
                    Some(Some(first)) => fit.errors.push(FieldError::new(
                        place,
                        "duplicate",
                        format!("this item is already predicted by {first}"),
                    )),
                    Some(first) => {
                        fit.n_matched += 1;
                        *first = Some(place);
                    }
                }
            }
        }
        if fit.errors.len() < FIELD_ERRORS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}
