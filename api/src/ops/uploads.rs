//! `/v1/uploads`

use assay_core::model::permissions::{Caller, Submitter};
use assay_core::model::upload::{
    BYTES_MAX, ContentEncoding, ContentType, OPEN_MAX, PART_MAX, PARTS_MAX, Part, Upload,
    UploadKind, UploadRow, UploadStatus,
};
use assay_core::model::{upload, validation};
use assay_core::runtime::prometheus;
use assay_core::runtime::upload_reader::PartObject;
use assay_core::store::upload::NewUpload;
use assay_core::{BestEffort as _, Code, Details, Error, Resource, Result, UploadId, store};
use assay_eval::FieldError;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};

use crate::app::App;
use crate::limits::request_memory::Reservation;

/// An upload that is asked for, as it came.
#[derive(Default)]
pub struct NewUploadFields {
    /// What it will hold.
    pub kind: String,
    /// How the predictions will be written.
    pub content_type: Option<String>,
    /// How they will be compressed.
    pub content_encoding: Option<String>,
    /// How many bytes will be sent.
    pub bytes: Option<i64>,
    /// Their SHA-256, in hex.
    pub sha256: Option<String>,
}

pub(super) fn missing() -> Error {
    Error::not_found(Resource::Upload)
}

/// Opens an upload.
pub async fn create(app: &App, submitter: &Submitter, fields: NewUploadFields) -> Result<Upload> {
    let NewUploadFields {
        kind,
        content_type,
        content_encoding,
        bytes,
        sha256,
    } = fields;
    let mut faults = Vec::new();
    let one_of_kinds = if kind.is_empty() {
        Err(FieldError::required("kind"))
    } else {
        validation::one_of::<UploadKind>("kind", &kind)
    };
    let kind = validation::ok_or_collect(&mut faults, one_of_kinds.map(Some));
    let content_type = validation::ok_or_collect(
        &mut faults,
        content_type
            .map(|text| validation::one_of("content_type", &text))
            .transpose(),
    );
    let content_encoding = validation::ok_or_collect(
        &mut faults,
        content_encoding
            .map(|text| validation::one_of("content_encoding", &text))
            .transpose(),
    );
    if bytes.is_some_and(|bytes| !(1..=BYTES_MAX).contains(&bytes)) {
        faults.push(FieldError::new(
            "bytes",
            "range",
            format!("must be a whole number from 1 to {BYTES_MAX}"),
        ));
    }
    let sha256 = validation::ok_or_collect(
        &mut faults,
        sha256.map(|text| hex_digest(&text)).transpose(),
    );
    let (Some(kind), true) = (kind, faults.is_empty()) else {
        return Err(Error::fields(faults));
    };
    let caller = submitter.caller();
    if let Some(bytes) = bytes {
        refuse_too_many(bytes, caller)?;
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
    let mut transaction = app.db.begin().await?;
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
            "{active} uploads are open; at most {OPEN_MAX} may be. Complete or delete some."
        );
        return Err(Error::quota(message, details, seconds));
    }
    let row = store::upload::insert(&mut transaction, caller.org_id(), &new).await?;
    transaction.commit().await?;
    Ok(row.into_upload(Vec::new(), &app.settings.public_url))
}

fn hex_digest(text: &str) -> Result<String, FieldError> {
    let well_formed = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if well_formed {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(FieldError::new("sha256", "format", "must be 64 hex digits"))
    }
}

/// An upload with its parts.
pub async fn get(app: &App, caller: &Caller, upload_id: &str) -> Result<Upload> {
    let upload_id: UploadId = upload_id.parse().map_err(|_| missing())?;
    let row = store::upload::find(&app.db, caller.org_id(), &upload_id)
        .await?
        .ok_or_else(missing)?;
    upload_response(app, caller, row).await
}

pub(super) async fn upload_response(app: &App, caller: &Caller, row: UploadRow) -> Result<Upload> {
    let parts = store::upload::parts(&app.db, caller.org_id(), &row.id).await?;
    Ok(row.into_upload(parts, &app.settings.public_url))
}

/// Receives a part. It may be sent again; the last one that came whole counts.
pub async fn put_part(
    app: &App,
    submitter: &Submitter,
    upload_id: &str,
    number: i64,
    announced: Option<u64>,
    held: &Reservation,
    body: &mut (impl Stream<Item = Result<Bytes>> + Unpin + Send),
) -> Result<Part> {
    let caller = submitter.caller();
    let number = i32::try_from(number)
        .ok()
        .filter(|number| (1..=PARTS_MAX).contains(number));
    let number = number.ok_or_else(|| {
        Error::field(
            "number",
            "range",
            format!("must be a whole number from 1 to {PARTS_MAX}"),
        )
    })?;
    if announced.is_some_and(|bytes| bytes > PART_MAX) {
        return Err(part_too_large());
    }
    let upload_id: UploadId = upload_id.parse().map_err(|_| missing())?;
    let row = store::upload::find(&app.db, caller.org_id(), &upload_id)
        .await?
        .ok_or_else(missing)?;
    refuse_unless_pending(&row)?;
    let received = store::upload::received(&app.db, caller.org_id(), &upload_id, number).await?;
    refuse_too_many(
        received
            .others
            .saturating_add_unsigned(announced.unwrap_or(0)),
        caller,
    )?;
    // Read without a lock: it spares most parts that do not fit. What is stored when the part is recorded decides.
    let stored = store::storage::used(&app.db, caller.org_id()).await?;
    if stored
        .saturating_sub(received.part)
        .saturating_add_unsigned(announced.unwrap_or(1))
        > caller.plan().storage_bytes
    {
        return Err(storage_full(app, caller, stored).await?);
    }

    let _turn = app.upload_parts.acquire(caller.org_id().as_str()).await?;
    let object_key = upload::part_key(caller.org_id(), &upload_id, number)?;
    let (bytes, sha256) = receive(app, &object_key, held, body).await?;
    metrics::counter!(prometheus::UPLOAD_BYTES).increment(bytes.unsigned_abs());
    let object = PartObject {
        number,
        object_key,
        bytes,
    };
    match note(app, caller, &upload_id, &object, &sha256).await {
        Ok((part, replaced)) => {
            if let Some(replaced) = replaced {
                app.artifacts
                    .delete(&replaced)
                    .await
                    .best_effort("removing a part that was sent again; it goes with the upload");
            }
            Ok(part)
        }
        Err(error) => {
            // After an error of ours it is not known whether the part was noted; then its object must stay.
            if !matches!(error.code, Code::Internal | Code::Unavailable) {
                app.artifacts
                    .delete(&object.object_key)
                    .await
                    .best_effort("removing a part that was refused; it goes with the upload");
            }
            Err(error)
        }
    }
}

/// Writes a part as it comes. One that breaks off leaves nothing.
async fn receive(
    app: &App,
    object_key: &str,
    held: &Reservation,
    body: &mut (impl Stream<Item = Result<Bytes>> + Unpin + Send),
) -> Result<(i64, String)> {
    let mut writer = app.artifacts.writer(object_key);
    let (mut bytes, mut hash) = (0_u64, Sha256::new());
    while let Some(piece) = body.next().await {
        let piece = piece?;
        bytes += piece.len() as u64;
        if bytes > PART_MAX {
            return Err(part_too_large());
        }
        hash.update(&piece);
        writer.write(&piece).await?;
        // What the writer has passed on is not in memory any more.
        held.set(writer.buffered() as u64);
    }
    writer.finish().await?;
    let sha256: [u8; 32] = hash.finalize().into();
    Ok((i64::try_from(bytes).unwrap_or(i64::MAX), hex(&sha256)))
}

/// One transaction: the part counts, or nothing has changed.
async fn note(
    app: &App,
    caller: &Caller,
    upload_id: &UploadId,
    object: &PartObject,
    sha256: &str,
) -> Result<(Part, Option<String>)> {
    let mut transaction = app.db.begin().await?;
    let row = store::upload::lock(&mut transaction, caller.org_id(), upload_id)
        .await?
        .ok_or_else(missing)?;
    refuse_unless_pending(&row)?;
    let received =
        store::upload::received(&mut *transaction, caller.org_id(), upload_id, object.number)
            .await?;
    refuse_too_many(received.others.saturating_add(object.bytes), caller)?;
    let noted =
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
    metrics::counter!(prometheus::QUOTA_DECISIONS, "limit" => "storage_bytes", "decision" => "admitted").increment(1);
    Ok(noted)
}

/// The rejection of a part for which there is no room.
async fn storage_full(app: &App, caller: &Caller, stored: i64) -> Result<Error> {
    metrics::counter!(prometheus::QUOTA_DECISIONS, "limit" => "storage_bytes", "decision" => "refused").increment(1);
    let (resets_at, seconds) = store::storage::frees_at(&app.db, caller.org_id()).await?;
    Ok(Error::storage_full(
        stored,
        caller.plan().storage_bytes,
        resets_at,
        seconds,
    ))
}

/// Drops an upload. One that a job needs stays.
pub async fn delete(app: &App, submitter: &Submitter, upload_id: &str) -> Result<()> {
    let upload_id: UploadId = upload_id.parse().map_err(|_| missing())?;
    let org_id = submitter.caller().org_id();
    let mut transaction = app.db.begin().await?;
    store::upload::lock(&mut transaction, org_id, &upload_id)
        .await?
        .ok_or_else(missing)?;
    if store::upload::is_needed(&mut *transaction, org_id, &upload_id).await? {
        let told =
            "A job that waits or runs needs this upload. Cancel the job or wait for its end.";
        return Err(Error::invalid_state(Resource::Upload, told));
    }
    store::upload::delete(&mut transaction, org_id, &upload_id).await?;
    transaction.commit().await?;
    let removed = app
        .artifacts
        .delete_under(&upload::prefix(org_id, &upload_id))
        .await;
    removed.best_effort("removing an upload; the dispatcher removes it later");
    Ok(())
}

pub(super) fn refuse_unless_pending(row: &UploadRow) -> Result<()> {
    let told = match row.status {
        UploadStatus::Pending => return Ok(()),
        UploadStatus::Ready => {
            String::from("The upload is complete; it cannot be changed any more.")
        }
        UploadStatus::Failed => format!(
            "The upload failed: {}. Make another one.",
            row.error_message.as_deref().unwrap_or_default()
        ),
        UploadStatus::Expired => String::from("The upload has expired. Make another one."),
    };
    Err(Error::invalid_state(Resource::Upload, told))
}

fn refuse_too_many(bytes: i64, caller: &Caller) -> Result<()> {
    let max = caller.plan().upload_bytes_max;
    if bytes <= max {
        return Ok(());
    }
    Err(Error::new(
        Code::PayloadTooLarge,
        format!("The upload is larger than the {max} bytes that the plan allows."),
    ))
}

fn part_too_large() -> Error {
    Error::new(
        Code::PayloadTooLarge,
        format!("The part is larger than {PART_MAX} bytes; send it as several."),
    )
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
