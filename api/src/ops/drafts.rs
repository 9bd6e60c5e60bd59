//! Drafts, which become suite versions: `/v1/drafts`.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::cursor::{PAGE, bad_cursor};
use assay_core::model::draft::{
    CHECKS_PER_HOUR, DEFINITION, DEFINITION_MAX, Draft, DraftStatus, Drafts, FILES_MAX,
    FileToCheck, MANIFEST, ManifestFile, NewDraftFile, OPEN_MAX, OPENING_KEY, definition_hmac,
    is_file_name,
};
use assay_core::model::error::Errors;
use assay_core::model::permissions::{Caller, Publisher};
use assay_core::model::suite::{SuiteId, SuiteVisibility};
use assay_core::model::suite_edits::SuiteReview;
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor, SuiteItems};
use assay_core::model::upload::{PART_MAX, PARTS_MAX};
use assay_core::model::{random, validation};
use assay_core::store::draft::{DraftCounts, DraftRow, NewDraft, PartRow};
use assay_core::store::escrow::{self, ChunkPlace};
use assay_core::store::{self, PgConnection, draft, owned_suite};
use assay_core::{Details, DraftId, Error, Resource, Result, Timestamp};
use assay_eval::FieldError;
use assay_eval::suite::{SuiteDefinition, Visibility};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::submissions::idempotency_key_error;
use super::suites::{PageForm, Paged, read_page};
use super::uploads::{hex_digest, part_too_large};
use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;

/// Maximum size of a new draft's body or message, in bytes.
pub const BODY_MAX: usize = 5 * 1024 * 1024;

/// Longest wait for a check or publication, in seconds.
const WAIT_MAX: i64 = 30;

/// Interval at which a waiting request reads the state.
const WAIT_INTERVAL: Duration = Duration::from_secs(1);

/// Length of a part's random id, in characters.
const PART_ID_CHARACTERS: usize = 22;

fn not_found() -> Error {
    Error::not_found(Resource::Draft)
}

/// The fields of a new draft, not validated yet.
pub struct Submission {
    /// The text of `suite.toml`. Required.
    pub suite_toml: String,
    /// The files.
    pub files: Vec<NewDraftFile>,
    /// The opening key in hex. `None` for a random one.
    pub opening_key: Option<String>,
    /// `true` to check the files at once.
    pub check: bool,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
}

/// A new draft, or the one that an earlier request with the same idempotency key created.
pub struct Created {
    /// The draft, with the opening key if it is new.
    pub draft: Draft,
    /// `true` if an earlier request created it.
    pub replayed: bool,
}

/// A validated submission.
struct Valid {
    suite_id: SuiteId,
    version: String,
    visibility: Option<&'static str>,
    suite_toml: String,
    files: Vec<NewDraftFile>,
    opening_key: [u8; 32],
    check: bool,
    idempotency_key: Option<String>,
}

/// Creates a draft from `suite.toml`, and stores the files that come with it. Requests their check if `check` is set.
///
/// # Errors
/// All errors of the fields and of `suite.toml` at once. Then nothing is stored.
pub async fn create(app: &App, publisher: &Publisher, submission: Submission) -> Result<Created> {
    let caller = publisher.caller();
    let valid = validate(caller, submission)?;
    let hmac = definition_hmac(&valid.opening_key, valid.suite_toml.as_bytes());
    let request_hmac = valid.request_hmac();
    let bytes: usize = valid.files.iter().map(|file| file.content.len()).sum();
    let bytes = i64::try_from(bytes).map_err(Error::internal)?;
    let id = DraftId::random()?;
    let org_id = caller.org_id();
    let actor = caller.actor();
    let mut transaction = app.db.get().begin().await?;
    draft::lock_opening(&mut transaction, org_id).await?;
    if let Some(key) = &valid.idempotency_key
        && let Some(repeated) = draft::find_repeated(&mut *transaction, org_id, key).await?
    {
        drop(transaction);
        return replay(app, caller, repeated, &request_hmac).await;
    }
    let counts = draft::counts(&mut *transaction, org_id).await?;
    ensure_may_open(&counts)?;
    ensure_has_room(caller, &counts, bytes)?;
    if valid.check {
        ensure_may_check(&counts)?;
    }
    let new = NewDraft {
        id: &id,
        suite_id: &valid.suite_id,
        version: &valid.version,
        definition_hmac: &hmac,
        visibility: valid.visibility,
        created_by: caller.actor_id(),
        received_bytes: bytes,
        idempotency: valid
            .idempotency_key
            .as_deref()
            .map(|key| (key, request_hmac.as_slice())),
    };
    draft::insert(&mut transaction, org_id, &new).await?;
    let mut changes = vec![Change::draft(AuditType::DraftCreated, &id)];
    let own = [
        (DEFINITION, valid.suite_toml.as_bytes()),
        (OPENING_KEY, valid.opening_key.as_slice()),
    ];
    for (name, content) in own {
        store_part(&mut transaction, caller, (&id, &hmac), name, content).await?;
    }
    let mut parts = Vec::new();
    for file in &valid.files {
        let (name, content) = (file.name.as_str(), file.content.as_bytes());
        let part_id = store_part(&mut transaction, caller, (&id, &hmac), name, content).await?;
        let part = PartRow {
            name: name.to_owned(),
            number: 1,
            part_id,
        };
        let bytes = i64::try_from(content.len()).map_err(Error::internal)?;
        draft::put_part(&mut transaction, org_id, &id, &part, bytes).await?;
        parts.push(part);
    }
    if valid.check {
        request_check(&mut transaction, caller, (&id, &hmac), &parts, None).await?;
        changes.push(Change::draft(AuditType::DraftChecked, &id));
    }
    store::audit::record(&mut transaction, org_id, &actor, &changes).await?;
    transaction.commit().await?;
    let mut draft = represent(app, caller, &id).await?;
    draft.opening_key = Some(hex::encode(valid.opening_key));
    Ok(Created {
        draft,
        replayed: false,
    })
}

/// Validates all fields of a submission.
///
/// # Errors
/// All field errors at once, those of `suite.toml` with their line.
fn validate(caller: &Caller, submission: Submission) -> Result<Valid> {
    let Submission {
        suite_toml,
        files,
        opening_key,
        check,
        idempotency_key,
    } = submission;
    let mut errors = Errors::default();
    let definition = errors.take_all(read_definition(caller, &suite_toml))?;
    check_names(files.iter().map(|file| file.name.as_str()), &mut errors);
    if check && files.is_empty() {
        errors.push(FieldError::new(
            "files",
            "required",
            "give at least one file, or leave out check and send the files in parts",
        ));
    }
    if let Some(key) = &idempotency_key
        && let Some(error) = idempotency_key_error(key)
    {
        errors.push(error);
    }
    if idempotency_key.is_some() && opening_key.is_none() {
        errors.push(FieldError::new(
            "opening_key",
            "required",
            "is required with Idempotency-Key, because a repeated request does not return it",
        ));
    }
    let opening_key = match &opening_key {
        None => Some(random::bytes()?),
        Some(text) => errors.take(read_key(text)),
    };
    errors.finish()?;
    let (Some((suite_id, version, visibility)), Some(opening_key)) = (definition, opening_key)
    else {
        return Err(Error::internal("a field without an error has no value"));
    };
    Ok(Valid {
        suite_id,
        version,
        visibility,
        suite_toml,
        files,
        opening_key,
        check,
        idempotency_key,
    })
}

/// The id of the suite, the version and the visibility in a definition.
type Definition = (SuiteId, String, Option<&'static str>);

/// Reads `suite.toml`.
///
/// # Errors
/// Its field errors, or 409 if the organization has no handle.
fn read_definition(caller: &Caller, suite_toml: &str) -> Result<Option<Definition>> {
    let bad = |reason, message: String| FieldError::new("suite_toml", reason, message);
    if suite_toml.is_empty() {
        return Err(FieldError::required("suite_toml").into());
    }
    if suite_toml.len() > DEFINITION_MAX {
        let message = format!("must have at most {DEFINITION_MAX} bytes");
        return Err(bad("too_long", message).into());
    }
    let definition = SuiteDefinition::parse(suite_toml).map_err(|errors| {
        let errors = errors.into_iter();
        let errors = errors.map(|error| bad(error.code.as_str(), error.to_string()));
        Error::fields(errors.collect())
    })?;
    let Some(handle) = caller.org().handle.as_deref() else {
        let message = "The organization has no handle, which the id of its suites begins with. An owner sets it: \
                       PATCH /v1/orgs/{org_id} with handle.";
        return Err(Error::invalid_state(Resource::Organization, message)
            .with_details(Details::HandleRequired));
    };
    let own = format!("suite:{handle}.");
    let has_name = definition
        .suite_id
        .strip_prefix(&own)
        .is_some_and(|name| !name.is_empty());
    if !has_name {
        let message = format!(
            "suite_id: must begin with {own:?}, the handle of the organization, such as \"{own}votes\""
        );
        return Err(bad("handle", message).into());
    }
    let suite_id = definition.suite_id.parse().map_err(Error::internal)?;
    let visibility = definition.visibility.map(Visibility::as_str);
    Ok(Some((suite_id, definition.version, visibility)))
}

/// Reports names that no file can have, and repeated ones.
fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a str>, errors: &mut Errors) {
    if names.len() > FILES_MAX {
        let message = format!("must have at most {FILES_MAX} files");
        errors.push(FieldError::new("files", "range", message));
        return;
    }
    let mut seen = HashSet::new();
    for (at, name) in names.enumerate() {
        let field = format!("files[{at}].name");
        if let Err(error) = file_name(&field, name) {
            errors.push(error);
        } else if !seen.insert(name) {
            errors.push(FieldError::new(field, "duplicate", "must be given once"));
        }
    }
}

fn file_name(field: &str, name: &str) -> std::result::Result<(), FieldError> {
    if is_file_name(name) {
        return Ok(());
    }
    let message = "must be 1 to 100 letters, digits, '.', '_' or '-', not begin with '.', and not be suite.toml, opening.key or manifest.json";
    Err(FieldError::new(field, "format", message))
}

/// Reads 32 bytes in hex.
pub(super) fn read_key(text: &str) -> std::result::Result<Option<[u8; 32]>, FieldError> {
    let mut key = [0; 32];
    match hex::decode_to_slice(text, &mut key) {
        Ok(()) => Ok(Some(key)),
        Err(_) => Err(FieldError::new(
            "opening_key",
            "format",
            "must be 64 hex digits",
        )),
    }
}

impl Valid {
    /// Returns the keyed hash of everything that the request says, in which no two requests are alike.
    fn request_hmac(&self) -> Vec<u8> {
        let mut said = Vec::new();
        let mut say = |text: &str| {
            said.extend_from_slice(&text.len().to_be_bytes());
            said.extend_from_slice(text.as_bytes());
        };
        say(&self.suite_toml);
        say(if self.check { "check" } else { "" });
        for NewDraftFile { name, content } in &self.files {
            say(name);
            say(content);
        }
        definition_hmac(&self.opening_key, &said).into_bytes()
    }
}

/// Returns the draft that an earlier request with the idempotency key created. `repeated` has its id and the keyed hash of that request.
///
/// # Errors
/// 422 if that request was another one.
async fn replay(
    app: &App,
    caller: &Caller,
    repeated: (DraftId, Vec<u8>),
    request_hmac: &[u8],
) -> Result<Created> {
    let (draft_id, before) = repeated;
    if before != request_hmac {
        let message = "was used for another request; use a new key";
        return Err(Error::field("Idempotency-Key", "reused", message));
    }
    Ok(Created {
        draft: represent(app, caller, &draft_id).await?,
        replayed: true,
    })
}

fn ensure_may_open(counts: &DraftCounts) -> Result<()> {
    if counts.open < OPEN_MAX {
        return Ok(());
    }
    let resets_at = counts.first_expires_at.unwrap_or(counts.now);
    let message = format!(
        "{} drafts are not published; an organization may have {OPEN_MAX}. Publish or delete some.",
        counts.open
    );
    let active = Some(counts.open);
    Err(quota(
        message,
        ("open_drafts", OPEN_MAX),
        active,
        (counts, resets_at),
    ))
}

/// Returns an error if more bytes would exceed what the organization may send before a check.
fn ensure_has_room(caller: &Caller, counts: &DraftCounts, bytes: i64) -> Result<()> {
    let max = caller.plan().suite_bytes;
    if counts.received_bytes.saturating_add(bytes) <= max {
        return Ok(());
    }
    let resets_at = counts.first_expires_at.unwrap_or(counts.now);
    let message = format!(
        "The files of drafts that were not checked have {} bytes; the plan allows {max}. Check or delete some.",
        counts.received_bytes
    );
    let active = Some(counts.received_bytes);
    Err(quota(
        message,
        ("suite_bytes", max),
        active,
        (counts, resets_at),
    ))
}

fn ensure_may_check(counts: &DraftCounts) -> Result<()> {
    if counts.checking > 0 {
        let message =
            "A draft of the organization is being checked. Wait until it is ready or failed.";
        let active = Some(counts.checking);
        // A check takes seconds, although its time limit is an hour.
        let soon = (counts, counts.now);
        return Err(quota(
            message.into(),
            ("concurrent_checks", 1),
            active,
            soon,
        ));
    }
    if counts.checks < CHECKS_PER_HOUR {
        return Ok(());
    }
    let resets_at = counts.check_at.unwrap_or(counts.now);
    let message = format!(
        "The organization has begun {} checks in an hour; {CHECKS_PER_HOUR} are possible.",
        counts.checks
    );
    let limit = ("checks_per_hour", CHECKS_PER_HOUR);
    Err(quota(message, limit, None, (counts, resets_at)))
}

/// Returns a limit's error. `limit` comes with its value, and `resets_at` is the time from which there is room again.
fn quota(
    message: String,
    (limit, max): (&'static str, i64),
    active: Option<i64>,
    (counts, resets_at): (&DraftCounts, Timestamp),
) -> Error {
    let details = Details::Quota {
        limit,
        max,
        active,
        resets_at,
    };
    let seconds = counts.now.seconds_until(resets_at);
    Error::quota(message, details, seconds)
}

/// Stores a part whose bytes are in memory, and returns its random id.
async fn store_part(
    db: &mut PgConnection,
    caller: &Caller,
    draft: (&DraftId, &str),
    name: &str,
    content: &[u8],
) -> Result<String> {
    let part_id = random::base62(PART_ID_CHARACTERS)?;
    let (draft_id, definition_hmac) = draft;
    let place = ChunkPlace {
        draft_id,
        name,
        part_id: &part_id,
        definition_hmac,
    };
    escrow::insert(db, caller.org_id(), place, 0, content).await?;
    Ok(part_id)
}

/// Requests a check for these parts. `digests` has the files' SHA-256 as they were sent.
async fn request_check(
    db: &mut PgConnection,
    caller: &Caller,
    draft: (&DraftId, &str),
    parts: &[PartRow],
    digests: Option<&BTreeMap<String, String>>,
) -> Result<()> {
    let mut files: BTreeMap<&str, ManifestFile> = BTreeMap::new();
    for PartRow {
        name,
        number: _,
        part_id,
    } in parts
    {
        let file = files.entry(name).or_insert_with(|| ManifestFile {
            name: name.clone(),
            parts: Vec::new(),
            sha256: digests.and_then(|digests| digests.get(name)).cloned(),
        });
        file.parts.push(part_id.clone());
    }
    let manifest: Vec<ManifestFile> = files.into_values().collect();
    let manifest = serde_json::to_vec(&manifest).map_err(Error::internal)?;
    let manifest_id = store_part(db, caller, draft, MANIFEST, &manifest).await?;
    draft::request_check(db, caller.org_id(), draft.0, &manifest_id).await
}

/// Returns a page with the organization's drafts, the newest first, without their files and reports.
pub async fn list(app: &App, publisher: &Publisher, input: inputs::ListDrafts) -> Result<Drafts> {
    let inputs::ListDrafts {
        status,
        limit,
        before,
    } = input;
    let mut errors = Errors::default();
    let status = status.map(|text| validation::one_of::<DraftStatus>("status", &text));
    let status = errors.take(status.transpose());
    let limit = errors.take(validation::limit(limit, PAGE.0, PAGE.1));
    let before: Option<std::result::Result<DraftId, _>> = before.map(|text| {
        let malformed = || FieldError::new("before", "format", "must be the id of a draft, dft_…");
        text.parse().map_err(|_| malformed())
    });
    let before = errors.take(before.transpose());
    errors.finish()?;
    let org_id = publisher.caller().org_id();
    // One row more than the page has shows that there is a next page.
    let more = i64::from(limit) + 1;
    let mut rows = draft::list(&app.db.get(), org_id, status, before.as_ref(), more).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_before = rows.last().filter(|_| has_more).map(|row| row.id.clone());
    Ok(Drafts {
        drafts: rows.into_iter().map(DraftRow::into_summary).collect(),
        next_before,
    })
}

/// Returns a draft with its files and its report, after its check or publication has ended if `wait` says so.
pub async fn get(
    app: &App,
    publisher: &Publisher,
    draft_id: &str,
    input: inputs::GetDraft,
) -> Result<Draft> {
    let seconds = input.wait.unwrap_or(0);
    if !(0..=WAIT_MAX).contains(&seconds) {
        let message = format!("must be an integer from 0 to {WAIT_MAX}, in seconds");
        return Err(Error::field("wait", "range", message));
    }
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    let caller = publisher.caller();
    for _ in 0..seconds {
        let status = draft::status(&app.db.get(), caller.org_id(), &draft_id).await?;
        match status.ok_or_else(not_found)? {
            DraftStatus::Checking | DraftStatus::Publishing => {}
            _ => break,
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
    represent(app, caller, &draft_id).await
}

/// Returns a draft as callers see it.
async fn represent(app: &App, caller: &Caller, draft_id: &DraftId) -> Result<Draft> {
    let (db, org_id) = (app.db.get(), caller.org_id());
    let row = draft::find(&db, org_id, draft_id)
        .await?
        .ok_or_else(not_found)?;
    let files = draft::files(&db, org_id, draft_id).await?;
    Ok(row.into_draft(files))
}

/// Receives a part of a file. `content_length` is the announced size, if any. A part that is sent again replaces the earlier one, once it
/// was received completely. Its bytes are charged before they are stored.
pub async fn put_part(
    app: &App,
    publisher: &Publisher,
    place: (&str, &str, i64),
    content_length: Option<u64>,
    reservation: &Reservation,
    body: &mut (impl Stream<Item = Result<Bytes>> + Unpin + Send),
) -> Result<()> {
    let (draft_id, name, number) = place;
    let caller = publisher.caller();
    let org_id = caller.org_id();
    let mut errors = Errors::default();
    errors.take(file_name("name", name).map(Some));
    let number = errors.take(validation::count("number", number, PARTS_MAX).map(Some));
    errors.finish()?;
    if content_length.is_some_and(|bytes| bytes > PART_MAX) {
        return Err(part_too_large());
    }
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    let row = draft::find(&app.db.get(), org_id, &draft_id).await?;
    let row = row.ok_or_else(not_found)?;
    ensure_open(row.status)?;
    let _permit = app
        .concurrency
        .upload_parts
        .acquire(org_id.as_str())
        .await?;
    let part = PartRow {
        name: name.to_owned(),
        number: number.unwrap_or_default(),
        part_id: random::base62(PART_ID_CHARACTERS)?,
    };
    let chunk_place = ChunkPlace {
        draft_id: &draft_id,
        name,
        part_id: &part.part_id,
        definition_hmac: &row.definition_hmac,
    };
    let mut chunk = BytesMut::new();
    let (mut seq, mut received) = (0, 0_u64);
    let mut is_last = false;
    while !is_last {
        // The chunk, and its copy in the statement.
        reservation.set(3 * escrow::CHUNK_MAX as u64);
        while chunk.len() < escrow::CHUNK_MAX {
            let Some(bytes) = body.next().await else {
                is_last = true;
                break;
            };
            let bytes = bytes?;
            received += bytes.len() as u64;
            if received > PART_MAX {
                return Err(part_too_large());
            }
            chunk.extend_from_slice(&bytes);
        }
        if chunk.is_empty() && seq > 0 {
            break;
        }
        let mut transaction = app.db.get().begin().await?;
        charge(&mut transaction, caller, &draft_id, chunk.len()).await?;
        seq = escrow::insert(&mut transaction, org_id, chunk_place, seq, &chunk).await?;
        transaction.commit().await?;
        chunk.clear();
    }
    let mut transaction = app.db.get().begin().await?;
    let row = draft::lock(&mut transaction, org_id, &draft_id).await?;
    ensure_open(row.ok_or_else(not_found)?.status)?;
    let bytes = i64::try_from(received).map_err(Error::internal)?;
    draft::put_part(&mut transaction, org_id, &draft_id, &part, bytes).await?;
    transaction.commit().await?;
    Ok(())
}

/// Charges bytes before they are stored.
async fn charge(
    db: &mut PgConnection,
    caller: &Caller,
    draft_id: &DraftId,
    bytes: usize,
) -> Result<()> {
    let bytes = i64::try_from(bytes).map_err(Error::internal)?;
    let org_id = caller.org_id();
    if !draft::charge(db, org_id, draft_id, bytes).await? {
        let status = draft::status(&mut *db, org_id, draft_id).await?;
        return Err(not_open(status.ok_or_else(not_found)?));
    }
    let counts = draft::counts(&mut *db, org_id).await?;
    ensure_has_room(caller, &counts, 0)
}

fn ensure_open(status: DraftStatus) -> Result<()> {
    if status == DraftStatus::Open {
        Ok(())
    } else {
        Err(not_open(status))
    }
}

fn not_open(status: DraftStatus) -> Error {
    let message = format!("The draft is {status} and takes no more files. Create another one.");
    Error::invalid_state(Resource::Draft, message).with_details(Details::NotOpen {
        status: status.as_str(),
    })
}

/// Requests a check for the files that were received, or for these. A draft that was checked before stays as it is.
pub async fn check(
    app: &App,
    publisher: &Publisher,
    draft_id: &str,
    files: Option<Vec<FileToCheck>>,
) -> Result<Draft> {
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    if let Some(files) = &files {
        check_files(files)?;
    }
    let caller = publisher.caller();
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    draft::lock_opening(&mut transaction, org_id).await?;
    let row = draft::lock(&mut transaction, org_id, &draft_id).await?;
    let row = row.ok_or_else(not_found)?;
    match row.status {
        DraftStatus::Open => {}
        DraftStatus::Expired => return Err(not_open(row.status)),
        _ => {
            drop(transaction);
            return represent(app, caller, &draft_id).await;
        }
    }
    ensure_may_check(&draft::counts(&mut *transaction, org_id).await?)?;
    let received = draft::parts(&mut *transaction, org_id, &draft_id).await?;
    let parts = parts_to_check(received, files.as_deref())?;
    let digests = files.map(|files| {
        let digests = files.into_iter();
        let digests =
            digests.filter_map(|file| Some((file.name, file.sha256?.to_ascii_lowercase())));
        digests.collect()
    });
    let place = (&draft_id, row.definition_hmac.as_str());
    request_check(&mut transaction, caller, place, &parts, digests.as_ref()).await?;
    let change = Change::draft(AuditType::DraftChecked, &draft_id);
    store::audit::record(&mut transaction, org_id, &caller.actor(), &[change]).await?;
    transaction.commit().await?;
    represent(app, caller, &draft_id).await
}

fn check_files(files: &[FileToCheck]) -> Result<()> {
    let mut errors = Errors::default();
    if files.is_empty() {
        let message =
            "must name at least one file; leave the field out to check all that were received";
        errors.push(FieldError::new("files", "range", message));
    }
    check_names(files.iter().map(|file| file.name.as_str()), &mut errors);
    for (at, file) in files.iter().enumerate().take(FILES_MAX) {
        let parts = validation::count(&format!("files[{at}].parts"), file.parts.into(), PARTS_MAX);
        errors.take(parts.map(Some));
        let digest = file.sha256.as_ref();
        let digest = digest.map(|text| hex_digest(&format!("files[{at}].sha256"), text));
        errors.take(digest.transpose());
    }
    errors.finish()
}

/// Returns the parts to check, in their order.
///
/// # Errors
/// 409 that names the first part that is missing.
fn parts_to_check(received: Vec<PartRow>, files: Option<&[FileToCheck]>) -> Result<Vec<PartRow>> {
    let mut by_file: BTreeMap<String, Vec<PartRow>> = BTreeMap::new();
    for part in received {
        by_file.entry(part.name.clone()).or_default().push(part);
    }
    let expected: Vec<(String, usize)> = match files {
        Some(files) => {
            let files = files.iter();
            files
                .map(|file| (file.name.clone(), file.parts.unsigned_abs() as usize))
                .collect()
        }
        None => {
            let files = by_file.iter();
            // The highest number, so that a gap is found.
            let last = |parts: &Vec<PartRow>| {
                parts
                    .last()
                    .map_or(0, |part| part.number.unsigned_abs() as usize)
            };
            files
                .map(|(name, parts)| (name.clone(), last(parts)))
                .collect()
        }
    };
    if expected.is_empty() {
        let message = "The draft has no file. Send its files first.";
        return Err(Error::invalid_state(Resource::Draft, message));
    }
    let mut all = Vec::new();
    for (name, n_parts) in expected {
        let parts = by_file.remove(&name).unwrap_or_default();
        let is_next = |(at, part): (usize, &PartRow)| part.number.unsigned_abs() as usize == at + 1;
        let present = parts
            .iter()
            .enumerate()
            .take_while(|next| is_next(*next))
            .count();
        if present < n_parts {
            let number = present + 1;
            let message = format!(
                "Part {number} of {name} was not received. Send it, then check the draft again."
            );
            return Err(Error::invalid_state(Resource::Draft, message)
                .with_details(Details::PartMissing { name, number }));
        }
        all.extend(parts.into_iter().take(n_parts));
    }
    Ok(all)
}

/// Returns a page with a checked draft's items. Its memory is charged to `room` before it is read.
pub async fn items(
    app: &App,
    publisher: &Publisher,
    draft_id: &str,
    input: inputs::ListDraftItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, publisher, draft_id, input, PageForm::JSON, room).await
}

/// Does the same as [`items`] for a response that is a message.
pub async fn message_items(
    app: &App,
    publisher: &Publisher,
    draft_id: &str,
    input: inputs::ListDraftItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, publisher, draft_id, input, PageForm::MESSAGE, room).await
}

async fn page(
    app: &App,
    publisher: &Publisher,
    draft_id: &str,
    input: inputs::ListDraftItems,
    form: PageForm,
    room: &Reservation,
) -> Result<SuiteItems> {
    let limit = validation::limit(input.limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
    let cursor = input.cursor.as_deref().map(str::parse::<ItemCursor>);
    let cursor = cursor.transpose()?;
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    let org_id = publisher.caller().org_id();
    let db = app.db.get();
    let row = draft::find(&db, org_id, &draft_id)
        .await?
        .ok_or_else(not_found)?;
    let Some(content_id) = row.content_id else {
        return Err(not_ready(row.status));
    };
    let cursor = cursor.map(|cursor| cursor.of(&row.suite_id)).transpose()?;
    if cursor
        .as_ref()
        .is_some_and(|cursor| cursor.version != row.version)
    {
        return Err(bad_cursor());
    }
    let n_items = draft::n_items(&db, content_id).await?;
    let from = cursor.map_or(0, |cursor| cursor.ordinal);
    let paged = Paged {
        suite_id: row.suite_id,
        version: row.version,
        content_id,
        n_items,
    };
    read_page(app, paged, (from, limit), form, room).await
}

fn not_ready(status: DraftStatus) -> Error {
    let message = format!("The draft is {status}; it must be ready. Check it first.");
    Error::invalid_state(Resource::Draft, message).with_details(Details::NotReady {
        status: status.as_str(),
    })
}

/// Requests a checked draft's publication, or its review by the operator. A draft that is published, being published or
/// in review stays as it is.
///
/// # Errors
/// 403 if the suite is public and the caller is no owner, 409 if the draft is not ready.
pub async fn publish(app: &App, publisher: &Publisher, draft_id: &str) -> Result<Draft> {
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    let caller = publisher.caller();
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    let row = draft::lock(&mut transaction, org_id, &draft_id).await?;
    let row = row.ok_or_else(not_found)?;
    match row.status {
        DraftStatus::Ready => {
            if row.visibility.as_deref() == Some("public") {
                caller.require_owner_session()?;
            }
            let needs_review = needs_review(app, &mut transaction, caller, &row).await?;
            draft::request_publication(&mut transaction, org_id, &draft_id, needs_review).await?;
            let change = Change::draft(AuditType::DraftPublished, &draft_id);
            store::audit::record(&mut transaction, org_id, &caller.actor(), &[change]).await?;
            transaction.commit().await?;
        }
        DraftStatus::InReview | DraftStatus::Publishing | DraftStatus::Published => {
            drop(transaction);
        }
        status => return Err(not_ready(status)),
    }
    represent(app, caller, &draft_id).await
}

/// Returns `true` if the publication of a draft waits for the operator.
async fn needs_review(
    app: &App,
    db: &mut PgConnection,
    caller: &Caller,
    row: &DraftRow,
) -> Result<bool> {
    let review = app.settings.suite_review;
    let wanted = row
        .visibility
        .as_deref()
        .filter(|_| review != SuiteReview::None);
    // Without a value, the version leaves the visibility as it is.
    let Ok(wanted) = wanted.unwrap_or_default().parse::<SuiteVisibility>() else {
        return Ok(false);
    };
    let suite = owned_suite::lock(db, Some(caller.org_id()), &row.suite_id).await?;
    let (before, was_approved) = suite.map_or((SuiteVisibility::Private, false), |suite| {
        (suite.editable.visibility, suite.was_approved)
    });
    Ok(review.is_needed(before, wanted, was_approved))
}

/// Deletes a draft that is not published. The checker deletes its files and its content.
pub async fn delete(app: &App, publisher: &Publisher, draft_id: &str) -> Result<()> {
    let draft_id: DraftId = draft_id.parse().map_err(|_| not_found())?;
    let caller = publisher.caller();
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    let row = draft::lock(&mut transaction, org_id, &draft_id).await?;
    let row = row.ok_or_else(not_found)?;
    if matches!(row.status, DraftStatus::Publishing | DraftStatus::Published) {
        let message = format!("The draft is {} and cannot be deleted.", row.status);
        return Err(Error::invalid_state(Resource::Draft, message));
    }
    draft::delete(&mut transaction, org_id, &draft_id).await?;
    let change = Change::draft(AuditType::DraftDeleted, &draft_id);
    store::audit::record(&mut transaction, org_id, &caller.actor(), &[change]).await?;
    transaction.commit().await?;
    Ok(())
}
