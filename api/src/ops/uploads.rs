//! Uploads and their parts: `/v1/uploads`.

use assay_core::model::cursor::PAGE;
use assay_core::model::error::Errors;
use assay_core::model::permissions::{Caller, UploadReader, Uploader};
use assay_core::model::upload::PartObject;
use assay_core::model::upload::{
    BYTES_MAX, ContentEncoding, ContentType, OPEN_MAX, PART_MAX, PARTS_MAX, Part, Upload,
    UploadKind, UploadRow, UploadStatus, Uploads,
};
use assay_core::model::{upload, validation};
use assay_core::runtime::prometheus;
use assay_core::store::upload::NewUpload;
use assay_core::{BestEffort as _, Code, Details, Error, Resource, Result, UploadId, store};
use assay_eval::FieldError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;

pub(super) fn not_found() -> Error {
    Error::not_found(Resource::Upload)
}

/// Creates an upload, which waits for its parts.
pub async fn create(
    app: &App,
    submitter: &Uploader,
    input: inputs::CreateUpload,
) -> Result<Upload> {
    let inputs::CreateUpload {
        kind,
        content_type,
        content_encoding,
        bytes,
        sha256,
    } = input;
    let mut errors = Errors::default();
    let parsed_kind = if kind.is_empty() {
        Err(FieldError::required("kind"))
    } else {
        validation::one_of::<UploadKind>("kind", &kind)
    };
    let kind = errors.take(parsed_kind.map(Some));
    let content_type = errors.take(
        content_type
            .map(|text| validation::one_of("content_type", &text))
            .transpose(),
    );
    let content_encoding = errors.take(
        content_encoding
            .map(|text| validation::one_of("content_encoding", &text))
            .transpose(),
    );
    if kind == Some(UploadKind::Sequences)
        && content_type.is_some_and(|content_type| content_type != ContentType::Ndjson)
    {
        errors.push(FieldError::new(
            "content_type",
            "range",
            "must be application/x-ndjson: an upload of sequences has one a line",
        ));
    }
    if bytes.is_some_and(|bytes| !(1..=BYTES_MAX).contains(&bytes)) {
        errors.push(FieldError::new(
            "bytes",
            "range",
            format!("must be an integer from 1 to {BYTES_MAX}"),
        ));
    }
    let sha256 = errors.take(sha256.map(|text| hex_digest("sha256", &text)).transpose());
    let Some(kind) = kind else {
        return Err(errors.into());
    };
    errors.finish()?;
    let caller = submitter.caller();
    if let Some(bytes) = bytes {
        ensure_within_plan(bytes, caller)?;
    }
    let id = UploadId::random()?;
    let new = NewUpload {
        id: &id,
        kind,
        content_type: content_type.unwrap_or(ContentType::Ndjson),
        content_encoding: content_encoding.unwrap_or(ContentEncoding::Identity),
        bytes,
        sha256: sha256.as_deref(),
    };
    let mut transaction = app.db.get().begin().await?;
    store::upload::lock_opening(&mut transaction, caller.org_id()).await?;
    let (active, first) = store::upload::open(&mut *transaction, caller.org_id()).await?;
    if let (OPEN_MAX.., Some((resets_at, seconds))) = (active, first) {
        let details = Details::Quota {
            limit: "open_uploads",
            max: OPEN_MAX,
            active: Some(active),
            resets_at,
        };
        let message = format!(
            "{active} uploads wait for their parts; an organization may have {OPEN_MAX}. Complete \
             or delete some."
        );
        return Err(Error::quota(message, details, seconds));
    }
    let row = store::upload::insert(&mut transaction, caller.org_id(), &new).await?;
    transaction.commit().await?;
    Ok(row.into_upload(Vec::new(), &app.settings.public_url))
}

/// Returns a SHA-256 in lower-case hex.
pub(super) fn hex_digest(field: &str, text: &str) -> Result<String, FieldError> {
    let well_formed = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if well_formed {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(FieldError::new(field, "format", "must be 64 hex digits"))
    }
}

/// Returns a page of the uploads of the organization, the newest first, without their parts.
pub async fn list(app: &App, caller: &UploadReader, input: inputs::ListUploads) -> Result<Uploads> {
    let inputs::ListUploads {
        status,
        limit,
        before,
    } = input;
    let mut errors = Errors::default();
    let status = status.map(|text| validation::one_of("status", &text));
    let status = errors.take(status.transpose());
    let limit = validation::limit(limit, PAGE.0, PAGE.1);
    let limit = errors.take(limit);
    let before: Option<Result<UploadId, _>> = before.map(|text| {
        let malformed =
            || FieldError::new("before", "format", "must be the id of an upload, upl_…");
        text.parse().map_err(|_| malformed())
    });
    let before = errors.take(before.transpose());
    errors.finish()?;
    let (db, org_id) = (app.db.get(), caller.org_id());
    let before = match &before {
        None => None,
        Some(id) => match store::upload::created_at(&db, org_id, id).await? {
            Some(at) => Some((at, id)),
            None => {
                let message = "there is no such upload; leave it out to begin again";
                return Err(Error::field("before", "not_found", message));
            }
        },
    };
    let filter = store::upload::Filter { status, before };
    // One row more than the page has shows that there is a next page.
    let mut rows = store::upload::list(&db, org_id, filter, i64::from(limit) + 1).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_before = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    let url = &app.settings.public_url;
    Ok(Uploads {
        uploads: rows.into_iter().map(|row| row.into_summary(url)).collect(),
        next_before,
    })
}

/// Returns an upload with its parts.
pub async fn get(app: &App, caller: &UploadReader, upload_id: &str) -> Result<Upload> {
    let upload_id: UploadId = upload_id.parse().map_err(|_| not_found())?;
    let row = store::upload::find(&app.db.get(), caller.org_id(), &upload_id)
        .await?
        .ok_or_else(not_found)?;
    upload_response(app, caller, row).await
}

/// Returns the upload of a row, with its parts.
pub(super) async fn upload_response(app: &App, caller: &Caller, row: UploadRow) -> Result<Upload> {
    let parts = store::upload::parts(&app.db.get(), caller.org_id(), &row.id).await?;
    Ok(row.into_upload(parts, &app.settings.public_url))
}

/// Receives a part. `content_length` is the announced size, if any. A part that is sent again
/// replaces the earlier one, once it was received completely.
pub async fn put_part(
    app: &App,
    submitter: &Uploader,
    upload_id: &str,
    number: i64,
    content_length: Option<u64>,
    reservation: &Reservation,
    body: &mut (impl Stream<Item = Result<Bytes>> + Unpin + Send),
) -> Result<Part> {
    let caller = submitter.caller();
    let number = validation::count("number", number, PARTS_MAX)?;
    if content_length.is_some_and(|bytes| bytes > PART_MAX) {
        return Err(part_too_large());
    }
    let upload_id: UploadId = upload_id.parse().map_err(|_| not_found())?;
    let row = store::upload::find(&app.db.get(), caller.org_id(), &upload_id)
        .await?
        .ok_or_else(not_found)?;
    ensure_pending(&row)?;
    let received =
        store::upload::received(&app.db.get(), caller.org_id(), &upload_id, number).await?;
    ensure_within_plan(
        received
            .others
            .saturating_add_unsigned(content_length.unwrap_or(0)),
        caller,
    )?;
    // This check is not exact, because it takes no lock. It rejects most parts that do not fit
    // before they are received. `record_part` decides.
    let stored = store::storage::used(&app.db.get(), caller.org_id()).await?;
    if stored
        .saturating_sub(received.part)
        .saturating_add_unsigned(content_length.unwrap_or(1))
        > caller.plan().storage_bytes
    {
        return Err(storage_full(app, caller, stored).await?);
    }

    let _permit = app
        .concurrency
        .upload_parts
        .acquire(caller.org_id().as_str())
        .await?;
    let object_key = upload::part_key(caller.org_id(), &upload_id, number)?;
    let (bytes, sha256) = receive(app, &object_key, reservation, body).await?;
    metrics::counter!(prometheus::UPLOAD_BYTES).increment(bytes.unsigned_abs());
    let object = PartObject {
        number,
        object_key,
        bytes,
    };
    match record_part(app, caller, &upload_id, &object, &sha256).await {
        Ok((part, replaced)) => {
            if let Some(replaced) = replaced {
                app.artifacts
                    .delete(&replaced)
                    .await
                    .best_effort("removing a replaced part; it is removed with the upload");
            }
            Ok(part)
        }
        Err(error) => {
            // After an internal error, the part may have been recorded, so its object must stay.
            if !matches!(error.code, Code::Internal | Code::Unavailable) {
                app.artifacts
                    .delete(&object.object_key)
                    .await
                    .best_effort("removing a rejected part; it is removed with the upload");
            }
            Err(error)
        }
    }
}

/// Writes a part to the artifact store as it arrives, and returns its size and SHA-256. An
/// incomplete part leaves no object.
async fn receive(
    app: &App,
    object_key: &str,
    reservation: &Reservation,
    body: &mut (impl Stream<Item = Result<Bytes>> + Unpin + Send),
) -> Result<(i64, String)> {
    let mut writer = app.artifacts.writer(object_key);
    let mut bytes = 0_u64;
    let mut hash = Sha256::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        bytes += chunk.len() as u64;
        if bytes > PART_MAX {
            return Err(part_too_large());
        }
        hash.update(&chunk);
        writer.write(&chunk).await?;
        // Only the bytes that the writer buffers are in memory.
        reservation.set(writer.buffered() as u64);
    }
    writer.finish().await?;
    let sha256: [u8; 32] = hash.finalize().into();
    Ok((
        i64::try_from(bytes).unwrap_or(i64::MAX),
        hex::encode(sha256),
    ))
}

/// Records a part in one transaction, and returns it with the object key of the part that it
/// replaces.
///
/// # Errors
/// If the upload does not wait for parts, or the part exceeds a limit of the plan.
async fn record_part(
    app: &App,
    caller: &Caller,
    upload_id: &UploadId,
    object: &PartObject,
    sha256: &str,
) -> Result<(Part, Option<String>)> {
    let mut transaction = app.db.get().begin().await?;
    let row = store::upload::lock(&mut transaction, caller.org_id(), upload_id)
        .await?
        .ok_or_else(not_found)?;
    ensure_pending(&row)?;
    let received =
        store::upload::received(&mut *transaction, caller.org_id(), upload_id, object.number)
            .await?;
    ensure_within_plan(received.others.saturating_add(object.bytes), caller)?;
    let recorded =
        store::upload::put_part(&mut transaction, caller.org_id(), upload_id, object, sha256)
            .await?;
    let stored = store::storage::used(&mut *transaction, caller.org_id()).await?;
    if stored > caller.plan().storage_bytes {
        transaction.rollback().await?;
        return Err(storage_full(
            app,
            caller,
            stored
                .saturating_sub(object.bytes)
                .saturating_add(received.part),
        )
        .await?);
    }
    transaction.commit().await?;
    count_storage_decision("admitted");
    Ok(recorded)
}

/// Counts a decision of the storage quota in the Prometheus metrics.
fn count_storage_decision(decision: &'static str) {
    metrics::counter!(
        prometheus::QUOTA_DECISIONS,
        "limit" => "storage_bytes",
        "decision" => decision
    )
    .increment(1);
}

/// Returns the error of a part that exceeds the storage of the plan, and counts the decision.
async fn storage_full(app: &App, caller: &Caller, stored: i64) -> Result<Error> {
    count_storage_decision("refused");
    let (resets_at, seconds) = store::storage::frees_at(&app.db.get(), caller.org_id()).await?;
    Ok(Error::storage_full(
        stored,
        caller.plan().storage_bytes,
        resets_at,
        seconds,
    ))
}

/// Deletes an upload and its parts, unless a queued or running job needs it.
pub async fn delete(app: &App, submitter: &Uploader, upload_id: &str) -> Result<()> {
    let upload_id: UploadId = upload_id.parse().map_err(|_| not_found())?;
    let org_id = submitter.caller().org_id();
    let mut transaction = app.db.get().begin().await?;
    store::upload::lock(&mut transaction, org_id, &upload_id)
        .await?
        .ok_or_else(not_found)?;
    if store::upload::is_needed(&mut *transaction, org_id, &upload_id).await? {
        let message = "A queued or running job needs this upload. Cancel the job, or wait until it \
                       has finished.";
        return Err(Error::invalid_state(Resource::Upload, message));
    }
    store::upload::delete(&mut transaction, org_id, &upload_id).await?;
    transaction.commit().await?;
    let removed = app
        .artifacts
        .delete_under(&upload::prefix(org_id, &upload_id))
        .await;
    removed.best_effort("removing a deleted upload; cleanup removes it later");
    Ok(())
}

/// Returns an error unless the upload waits for parts.
pub(super) fn ensure_pending(row: &UploadRow) -> Result<()> {
    let message = match row.status {
        UploadStatus::Pending => return Ok(()),
        UploadStatus::Ready => String::from("The upload is complete and cannot be changed."),
        UploadStatus::Failed => format!(
            "The upload failed: {}. Create another one.",
            row.error_message.as_deref().unwrap_or_default()
        ),
        UploadStatus::Expired => String::from("The upload has expired. Create another one."),
    };
    Err(Error::invalid_state(Resource::Upload, message))
}

/// Returns an error if the plan does not allow an upload of this size.
fn ensure_within_plan(bytes: i64, caller: &Caller) -> Result<()> {
    let max = caller.plan().upload_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    Err(Error::new(
        Code::PayloadTooLarge,
        format!("The upload is larger than the {max} bytes that the plan allows."),
    ))
}

pub(super) fn part_too_large() -> Error {
    Error::new(
        Code::PayloadTooLarge,
        format!("The part is larger than {PART_MAX} bytes. Send it as several parts."),
    )
}
