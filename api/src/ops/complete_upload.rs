//! `POST /v1/uploads/{upload_id}/complete`: reading an upload through before it can be submitted.
//!
//! No transaction is open while it is read. What was read is a list of objects, none of which ever changes; the end is
//! written only if the upload still consists of these. So whatever happens meanwhile, what was checked is what counts.

use std::ops::ControlFlow;

use assay_core::model::org::FREE;
use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::upload;
use assay_core::model::upload::{Upload, UploadFailure, UploadRow, UploadStatus};
use assay_core::runtime::prometheus;
use assay_core::runtime::upload_reader::{
    self, Content, ContentFault, Ended, PartObject, read_through,
};
use assay_core::store::upload::ReadThrough;
use assay_core::{BestEffort as _, Code, Error, Result, UploadId, store};
use assay_eval::FieldError;
use assay_eval::prediction::{MAX_FAULTS, Prediction, SubmissionDigest};

use super::uploads::{hex, missing, refuse_unless_pending, upload_response};
use crate::app::App;

/// Reads an upload through: afterwards it is ready, or has failed, or lacks something and waits for it. Doing it again
/// changes nothing.
pub async fn complete(app: &App, submitter: &Submitter, upload_id: &str) -> Result<Upload> {
    let caller = submitter.caller();
    let upload_id: UploadId = upload_id.parse().map_err(|_| missing())?;
    let row = store::upload::find(&app.db, caller.org_id(), &upload_id)
        .await?
        .ok_or_else(missing)?;
    if row.status != UploadStatus::Ready {
        refuse_unless_pending(&row)?;
        let turn = app
            .upload_completions
            .acquire(caller.org_id().as_str())
            .await?;
        let (app, caller) = (app.clone(), caller.clone());
        // It goes on when the caller does not wait any longer: whoever asks again finds it done.
        let completed = tokio::spawn(async move {
            let _turn = turn;
            read_and_note(&app, &caller, &upload_id).await
        });
        return completed.await.map_err(Error::internal)?;
    }
    upload_response(app, caller, row).await
}

/// What became of the content.
enum Verdict {
    Good { n_items: i64, digest: [u8; 32] },
    Bad { code: UploadFailure, error: Error },
}

async fn read_and_note(app: &App, caller: &Caller, upload_id: &UploadId) -> Result<Upload> {
    // Another one may have completed it while this one waited for its turn.
    let row = store::upload::find(&app.db, caller.org_id(), upload_id)
        .await?
        .ok_or_else(missing)?;
    if row.status == UploadStatus::Ready {
        return upload_response(app, caller, row).await;
    }
    refuse_unless_pending(&row)?;
    let parts = store::upload::part_objects(&app.db, caller.org_id(), upload_id).await?;
    let bytes = whole(&row, &parts)?;
    let read = read(app, caller, &row, &parts).await;

    let mut transaction = app.db.begin().await?;
    let now = store::upload::lock(&mut transaction, caller.org_id(), upload_id)
        .await?
        .ok_or_else(missing)?;
    if now.status == UploadStatus::Ready {
        return upload_response(app, caller, now).await;
    }
    refuse_unless_pending(&now)?;
    if store::upload::part_objects(&mut *transaction, caller.org_id(), upload_id).await? != parts {
        return Err(Error::new(
            Code::Conflict,
            "A part was sent again while the upload was read. Complete it again.",
        ));
    }
    match read? {
        Verdict::Good { n_items, digest } => {
            let read = ReadThrough {
                bytes,
                n_items,
                digest: &digest,
            };
            store::upload::ready(
                &mut transaction,
                caller.org_id(),
                upload_id,
                &read,
                hours(app, caller),
            )
            .await?;
            transaction.commit().await?;
            metrics::counter!(prometheus::UPLOADS_COMPLETED, "outcome" => "ready").increment(1);
            let row = store::upload::find(&app.db, caller.org_id(), upload_id)
                .await?
                .ok_or_else(missing)?;
            upload_response(app, caller, row).await
        }
        Verdict::Bad { code, error } => {
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
            removed.best_effort("removing an upload that failed; the dispatcher removes it later");
            Err(error)
        }
    }
}

/// How many hours an upload that is ready can be submitted.
const READY_HOURS: u32 = 7 * 24;

fn hours(app: &App, caller: &Caller) -> u32 {
    if caller.org().plan == FREE {
        app.settings.free_upload_hours
    } else {
        READY_HOURS
    }
}

/// How many bytes there are, if no part is missing and there are as many as were announced.
fn whole(row: &UploadRow, parts: &[PartObject]) -> Result<i64> {
    let missing = (1..)
        .zip(parts)
        .find(|(expected, part)| *expected != part.number)
        .map(|(expected, _)| expected);
    if let Some(number) = missing.or(if parts.is_empty() { Some(1) } else { None }) {
        let told = format!("part {number} is missing: parts are numbered from 1 without a gap");
        return Err(Error::field("parts", "required", told));
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

/// Reads all. An error says that nothing is known of the content, or that it is not what was announced.
async fn read(
    app: &App,
    caller: &Caller,
    row: &UploadRow,
    parts: &[PartObject],
) -> Result<Verdict> {
    let content = Content {
        content_type: row.content_type,
        content_encoding: row.content_encoding,
        bytes_max: caller.plan().upload_bytes_max.unsigned_abs(),
        hashed: row.sha256.is_some(),
    };
    let survey = |content: upload_reader::Decoded<'_>| {
        let mut survey = Survey::default();
        let ended =
            content.predictions(|| ControlFlow::Continue(()), &mut |next| survey.take(next));
        (survey, ended)
    };
    let found = read_through(&app.artifacts, parts, content, survey).await?;
    let found = found
        .ok_or_else(|| Error::internal("an object of an upload is not in the artifact store"))?;
    let received = found.sha256.map(|sha256| hex(&sha256));
    if let (Some(announced), Some(received)) = (&row.sha256, &received)
        && announced != received
    {
        return Err(Error::field(
            "sha256",
            "mismatch",
            format!("{announced} was announced, {received} was received"),
        ));
    }
    let (
        Survey {
            digest,
            n_items,
            faults,
        },
        ended,
    ) = found.value;
    Ok(match ended {
        Ended::Whole if faults.is_empty() => Verdict::Good {
            n_items,
            digest: digest.finish(),
        },
        Ended::Fault(ContentFault::TooLarge) => {
            let told = format!(
                "Decompressed, the upload is larger than the {} bytes that the plan allows.",
                content.bytes_max
            );
            Verdict::Bad {
                code: UploadFailure::PayloadTooLarge,
                error: Error::new(Code::PayloadTooLarge, told),
            }
        }
        Ended::Fault(ContentFault::Encoding) => {
            let told = match row.content_encoding {
                upload::ContentEncoding::Zstd => {
                    "the content is not zstd with a window of at most 8 MiB, or ends in the middle"
                }
                _ => "the content is not gzip, or ends in the middle",
            };
            Verdict::Bad {
                code: UploadFailure::InvalidPredictions,
                error: Error::field("content_encoding", "format", told),
            }
        }
        _ => Verdict::Bad {
            code: UploadFailure::InvalidPredictions,
            error: Error::fields(faults),
        },
    })
}

/// What is looked for: how many predictions there are, what they stand for, and what is wrong with them.
#[derive(Default)]
struct Survey {
    digest: SubmissionDigest,
    n_items: i64,
    faults: Vec<FieldError>,
}

impl Survey {
    fn take(&mut self, next: Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<()> {
        match next {
            Ok(prediction) => {
                self.digest.add(&prediction);
                self.n_items += 1;
            }
            Err(fault) => self.faults.push(fault),
        }
        if self.faults.len() < MAX_FAULTS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}
