//! Completion of an upload: `POST /v1/uploads/{upload_id}/complete` reads and validates the content
//! before it can be submitted.
//!
//! No transaction is open during the read. The objects of parts never change, and the result is
//! stored only if the upload still consists of the objects that were read. The stored result
//! therefore always describes the content that was validated.

use std::ops::ControlFlow;

use assay_core::model::org::FREE;
use assay_core::model::permissions::{Caller, Uploader};
use assay_core::model::sequence_list::{SequenceSurvey, read_checked};
use assay_core::model::upload;
use assay_core::model::upload::PartObject;
use assay_core::model::upload::{Upload, UploadFailure, UploadKind, UploadRow, UploadStatus};
use assay_core::runtime::lines::{LINE_BYTES_MAX, Line};
use assay_core::runtime::prometheus;
use assay_core::runtime::upload_reader::{ContentReader, read_upload};
use assay_core::store::upload::UploadContent;
use assay_core::{BestEffort as _, Code, Error, Result, UploadId, store};
use assay_eval::FieldError;
use assay_eval::content::{ContentError, ContentFormat, ReadEnd};
use assay_eval::prediction::{
    CellForm, FIELD_ERRORS_MAX, Prediction, PredictionSink, SubmissionDigest,
};

use super::uploads::{ensure_pending, not_found, upload_response};
use crate::app::App;

/// Reads and validates an upload. Afterwards it is `ready` or `failed`, or stays `pending` if a
/// part is missing or the announced size or checksum does not match. Completing a ready upload
/// again changes nothing.
pub async fn complete(app: &App, submitter: &Uploader, upload_id: &str) -> Result<Upload> {
    let caller = submitter.caller();
    let upload_id: UploadId = upload_id.parse().map_err(|_| not_found())?;
    let row = store::upload::find(&app.db.get(), caller.org_id(), &upload_id)
        .await?
        .ok_or_else(not_found)?;
    if row.status != UploadStatus::Ready {
        ensure_pending(&row)?;
        let permit = app
            .concurrency
            .upload_completions
            .acquire(caller.org_id().as_str())
            .await?;
        // A task of its own continues after the caller has disconnected, so that a retry finds the
        // result.
        let completed = app.request_tasks.spawn({
            let app = app.clone();
            let caller = caller.clone();
            async move {
                let _permit = permit;
                read_and_record(&app, &caller, &upload_id).await
            }
        });
        return completed.await.map_err(Error::internal)?;
    }
    upload_response(app, caller, row).await
}

/// The result of the validation.
enum Outcome {
    Valid { n_items: i64, digest: [u8; 32] },
    Invalid { code: UploadFailure, error: Error },
}

/// Reads the content, and records the outcome if the parts have not changed meanwhile.
async fn read_and_record(app: &App, caller: &Caller, upload_id: &UploadId) -> Result<Upload> {
    // Another request may have completed the upload while this one waited for its permit.
    let row = store::upload::find(&app.db.get(), caller.org_id(), upload_id)
        .await?
        .ok_or_else(not_found)?;
    if row.status == UploadStatus::Ready {
        return upload_response(app, caller, row).await;
    }
    ensure_pending(&row)?;
    let parts = store::upload::part_objects(&app.db.get(), caller.org_id(), upload_id).await?;
    let bytes = total_bytes(&row, &parts)?;
    let outcome = validate(app, caller, &row, &parts).await;

    let mut transaction = app.db.get().begin().await?;
    let now = store::upload::lock(&mut transaction, caller.org_id(), upload_id)
        .await?
        .ok_or_else(not_found)?;
    if now.status == UploadStatus::Ready {
        return upload_response(app, caller, now).await;
    }
    ensure_pending(&now)?;
    if store::upload::part_objects(&mut *transaction, caller.org_id(), upload_id).await? != parts {
        return Err(Error::new(
            Code::Conflict,
            "A part was sent again while the upload was read. Complete it again.",
        ));
    }
    match outcome? {
        Outcome::Valid { n_items, digest } => {
            let content = UploadContent {
                bytes,
                n_items,
                digest: &digest,
            };
            store::upload::mark_ready(
                &mut transaction,
                caller.org_id(),
                upload_id,
                &content,
                ready_hours(app, caller),
            )
            .await?;
            transaction.commit().await?;
            metrics::counter!(prometheus::UPLOADS_COMPLETED, "outcome" => "ready").increment(1);
            let row = store::upload::find(&app.db.get(), caller.org_id(), upload_id)
                .await?
                .ok_or_else(not_found)?;
            upload_response(app, caller, row).await
        }
        Outcome::Invalid { code, error } => {
            store::upload::fail(
                &mut transaction,
                caller.org_id(),
                upload_id,
                code,
                &error.message,
            )
            .await?;
            transaction.commit().await?;
            metrics::counter!(prometheus::UPLOADS_COMPLETED, "outcome" => "failed").increment(1);
            let removed = app
                .artifacts
                .delete_under(&upload::prefix(caller.org_id(), upload_id))
                .await;
            removed.best_effort("removing a failed upload; cleanup removes it later");
            Err(error)
        }
    }
}

/// Number of hours for which a ready upload can be submitted, unless the organization is on the
/// plan `free`.
const READY_HOURS: u32 = 7 * 24;

/// Returns the number of hours for which a ready upload of the caller can be submitted.
fn ready_hours(app: &App, caller: &Caller) -> u32 {
    if caller.org().plan == FREE {
        app.settings.free_upload_hours
    } else {
        READY_HOURS
    }
}

/// Returns the number of bytes of all parts.
///
/// # Errors
/// If a part is missing, or the number is not the announced one.
fn total_bytes(row: &UploadRow, parts: &[PartObject]) -> Result<i64> {
    let missing_part = (1..)
        .zip(parts)
        .find(|(expected, part)| *expected != part.number)
        .map(|(expected, _)| expected);
    if let Some(number) = missing_part.or(if parts.is_empty() { Some(1) } else { None }) {
        let message = format!("part {number} is missing: parts are numbered from 1 without a gap");
        return Err(Error::field("parts", "required", message));
    }
    let bytes = parts.iter().map(|part| part.bytes).sum();
    match row.bytes {
        Some(announced) if announced != bytes => Err(Error::field(
            "bytes",
            "mismatch",
            format!("{announced} were announced, {bytes} were received"),
        )),
        _ => Ok(bytes),
    }
}

/// Reads and validates the content.
///
/// # Errors
/// If the content could not be read, or its checksum is not the announced one. The upload stays
/// pending.
async fn validate(
    app: &App,
    caller: &Caller,
    row: &UploadRow,
    parts: &[PartObject],
) -> Result<Outcome> {
    let format = ContentFormat {
        text: row.content_type.text_form(),
        compression: row.content_encoding.compression(),
        bytes_max: caller.plan().upload_bytes_max.unsigned_abs(),
    };
    let kind = row.kind;
    let survey = move |content: ContentReader<'_>| match kind {
        UploadKind::Predictions => survey_predictions(content),
        UploadKind::Sequences => survey_sequences(content),
    };
    let found = read_upload(&app.artifacts, parts, format, row.sha256.is_some(), survey).await?;
    let found = found.ok_or_else(|| {
        Error::internal("an object of the upload is missing in the artifact store")
    })?;
    let received = found.sha256.map(hex::encode);
    if let (Some(announced), Some(received)) = (&row.sha256, &received)
        && announced != received
    {
        return Err(Error::field(
            "sha256",
            "mismatch",
            format!("{announced} was announced, {received} was received"),
        ));
    }
    let Survey {
        digest,
        n_items,
        errors,
        ended,
    } = found.value;
    let invalid = match row.kind {
        UploadKind::Predictions => UploadFailure::InvalidPredictions,
        UploadKind::Sequences => UploadFailure::InvalidSequences,
    };
    Ok(match ended {
        ReadEnd::Complete if errors.is_empty() => Outcome::Valid { n_items, digest },
        ReadEnd::Invalid(ContentError::TooLarge) => {
            let message = format!(
                "The decompressed upload is larger than the {} bytes that the plan allows.",
                format.bytes_max
            );
            Outcome::Invalid {
                code: UploadFailure::PayloadTooLarge,
                error: Error::new(Code::PayloadTooLarge, message),
            }
        }
        ReadEnd::Invalid(ContentError::Compression) => {
            let message = match row.content_encoding {
                upload::ContentEncoding::Zstd => {
                    "the content is not zstd with a window of at most 8 MiB, or is truncated"
                }
                _ => "the content is not gzip, or is truncated",
            };
            Outcome::Invalid {
                code: invalid,
                error: Error::field("content_encoding", "format", message),
            }
        }
        _ => Outcome::Invalid {
            code: invalid,
            error: Error::fields(errors),
        },
    })
}

/// The digest and number of the predictions or sequences, the errors in them, and the end of the
/// reading.
struct Survey {
    digest: [u8; 32],
    n_items: i64,
    errors: Vec<FieldError>,
    ended: ReadEnd<()>,
}

fn survey_predictions(content: ContentReader<'_>) -> Survey {
    let mut sink = PredictionSurvey::default();
    // The metric that decides the form of cells is known once the upload is submitted for a suite.
    let ended = content.read(CellForm::Text, || ControlFlow::Continue(()), &mut sink);
    let PredictionSurvey {
        digest,
        n_items,
        errors,
    } = sink;
    Survey {
        digest: digest.finish(),
        n_items,
        errors,
        ended,
    }
}

fn survey_sequences(content: ContentReader<'_>) -> Survey {
    let mut sequences = SequenceSurvey::default();
    let mut errors = Vec::new();
    let ended = content.read_lines(|number, line| {
        let location = format!("line {number}");
        match line {
            Line::Text(json) => match read_checked(json, &location) {
                Ok(sequence) => sequences.add(&sequence),
                Err(found) => errors.extend(found),
            },
            Line::TooLong => {
                let message = format!("is longer than {LINE_BYTES_MAX} bytes");
                errors.push(FieldError::new(location, "range", message));
            }
            Line::NotUtf8 => errors.push(FieldError::new(location, "format", "is not UTF-8")),
        }
        continue_below_limit(&errors)
    });
    let checked = sequences.finish();
    if checked.n == 0 && errors.is_empty() {
        let message = "there must be at least one sequence";
        errors.push(FieldError::new("sequences", "required", message));
    }
    errors.truncate(FIELD_ERRORS_MAX);
    Survey {
        digest: checked.digest,
        n_items: checked.n,
        errors,
        ended,
    }
}

fn continue_below_limit(errors: &[FieldError]) -> ControlFlow<()> {
    if errors.len() < FIELD_ERRORS_MAX {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// The digest and number of the predictions, and the errors in them.
#[derive(Default)]
struct PredictionSurvey {
    digest: SubmissionDigest,
    n_items: i64,
    errors: Vec<FieldError>,
}

impl<'a> PredictionSink<'a> for PredictionSurvey {
    type Stop = ();

    fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
        match prediction {
            Ok(prediction) => {
                self.digest.add(&prediction);
                self.n_items += 1;
            }
            Err(error) => self.errors.push(error),
        }
        continue_below_limit(&self.errors)
    }
}
