//! Score receipts and the commitments of suites: `/v1/jobs/{job_id}/receipt`, `/v1/receipts`,
//! `/v1/suites/{suite_id}/commitment`, and the public files of keys and the log.

use std::time::Duration;

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::error_details::ReceiptRefusal;
use assay_core::model::ids::is_version;
use assay_core::model::job::{JobStatus, JobType};
use assay_core::model::permissions::{JobReader, Owner, ReceiptCaller, SuiteVisitor};
use assay_core::model::receipt::{
    Commitment, LogPlace, Receipt, ReceiptFigures, ReceiptOpening, SuiteOpening,
};
use assay_core::model::suite::{NamedVersion, OpenedFile, SuiteId};
use assay_core::store::receipt::{self as receipts, StoredOpening, StoredReceipt, StoredStatement};
use assay_core::{Code, Error, JobId, ReceiptId, Resource, Result, Timestamp, store};
use assay_receipts::jws::{compact, log_entry};
use assay_receipts::keys::{Jwk, JwkSet, LoggedChange};
use assay_receipts::log::{Proof, SignedCheckpoint};
use assay_receipts::tree::{CHECKPOINT, Found, KnownTiles};
use bytes::Bytes;
use futures_util::Stream;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::suites;
use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::SharedReservation;
use crate::receipt_log::publication::object_key;

/// The longest wait for a signature.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(5);
const SIGNATURE_TIMEOUT_MICROS: i64 = SIGNATURE_TIMEOUT.as_micros() as i64;

/// Time between two looks for a signature.
const SIGNATURE_INTERVAL: Duration = Duration::from_millis(200);

fn receipt_not_found() -> Error {
    Error::not_found(Resource::Receipt)
}

/// Returns the receipt of a job. Waits up to `SIGNATURE_TIMEOUT` for its signature.
pub async fn for_job(
    app: &App,
    caller: &JobReader,
    job_id: &str,
    input: inputs::GetJobReceipt,
) -> Result<Receipt> {
    let org_id = caller.org_id();
    let figures = input.figures.as_deref();
    let figures = figures
        .map(str::parse::<ReceiptFigures>)
        .transpose()
        .map_err(|expected| Error::field("figures", "enum", &expected))?;
    let job_not_found = || Error::not_found(Resource::Job);
    let job_id: JobId = job_id.parse().map_err(|_| job_not_found())?;
    let job = receipts::job(&app.db.get(), org_id, &job_id)
        .await?
        .ok_or_else(job_not_found)?;
    if job.job_type != JobType::Eval {
        return Err(Error::receipt_refused(ReceiptRefusal::NotAnEval));
    }
    if job.status != JobStatus::Succeeded {
        let status = job.status.to_string();
        return Err(Error::receipt_refused(ReceiptRefusal::NotSucceeded {
            status,
        }));
    }
    if let (Some(ReceiptFigures::Sealed), true, Some(closes_at)) =
        (figures, job.is_sealed, job.closes_at)
    {
        return Err(Error::receipt_refused(ReceiptRefusal::SealedUntil {
            closes_at,
        }));
    }
    let default = if job.is_sealed {
        ReceiptFigures::Open
    } else {
        ReceiptFigures::All
    };
    let figures = figures.unwrap_or(default);
    let wait = SignatureWait::new();
    loop {
        let stored = receipts::find_by_job(&app.db.get(), org_id, &job_id, figures)
            .await?
            .ok_or_else(receipt_not_found)?;
        if let Some(receipt) = receipt(app, stored).await? {
            return Ok(receipt);
        }
        wait.pause("receipt").await?;
    }
}

/// Returns `true` if a job has a signed receipt of the figures that it shows.
pub async fn has_receipt(app: &App, caller: &JobReader, job_id: &JobId) -> Result<bool> {
    receipts::has_signed(&app.db.get(), caller.org_id(), job_id).await
}

/// Returns a receipt by its id, to its organization and to those to whom a board shows it.
pub async fn get(app: &App, caller: &ReceiptCaller, receipt_id: &str) -> Result<Receipt> {
    let not_found = || match caller.org_id() {
        Some(_) => receipt_not_found(),
        None => Error::new(
            Code::Unauthenticated,
            "There is no such receipt on a public board. Send an API key or a session token to read others: \
             Authorization: Bearer <TOKEN>",
        ),
    };
    let receipt_id: ReceiptId = receipt_id.parse().map_err(|_| not_found())?;
    let wait = SignatureWait::new();
    loop {
        let stored = receipts::find(&app.db.get(), caller.org_id(), &receipt_id)
            .await?
            .ok_or_else(not_found)?;
        if let Some(receipt) = receipt(app, stored).await? {
            return Ok(receipt);
        }
        wait.pause("receipt").await?;
    }
}

/// Returns the badge of a receipt that a public board shows, as SVG. `None` if there is none.
pub async fn badge(app: &App, receipt_id: &str) -> Result<Option<String>> {
    let Ok(receipt_id) = receipt_id.parse::<ReceiptId>() else {
        return Ok(None);
    };
    let db = app.db.get();
    // A caller without an organization sees the receipts on public boards alone.
    let stored = receipts::find(&db, None, &receipt_id).await?;
    let Some(stored) = stored.filter(|stored| stored.signature.is_some()) else {
        return Ok(None);
    };
    let statement: assay_exports::Statement =
        serde_json::from_slice(&stored.payload).map_err(Error::internal)?;
    // The operator can open the board of a suite whose texts are for organizations alone.
    let id = &statement.predicate.suite_id;
    let suite_id: SuiteId = id.parse().map_err(Error::internal)?;
    let suite = suites::seen_by(app, None, &suite_id).await?;
    let title = suite.map_or_else(|| id.clone(), |suite| suite.title);
    Ok(Some(assay_exports::badge(&title, &statement)))
}

fn not_signed(what: &str) -> Error {
    let message = format!("The {what} is not signed yet. Repeat the request.");
    Error::new(Code::Unavailable, message).with_retry_after(1)
}

/// The wait of a request for a signature.
struct SignatureWait {
    deadline: Instant,
}

impl SignatureWait {
    fn new() -> Self {
        Self {
            deadline: Instant::now() + SIGNATURE_TIMEOUT,
        }
    }

    /// Waits until the next look. Fails after the deadline.
    async fn pause(&self, what: &str) -> Result<()> {
        if Instant::now() >= self.deadline {
            return Err(not_signed(what));
        }
        sleep(SIGNATURE_INTERVAL).await;
        Ok(())
    }
}

/// Returns a stored receipt. `None` if it is not signed.
async fn receipt(app: &App, stored: StoredReceipt) -> Result<Option<Receipt>> {
    let StoredReceipt {
        id,
        job_id,
        payload,
        kid,
        signature,
        log_index,
    } = stored;
    let statement = StoredStatement {
        payload,
        kid,
        signature,
        log_index,
    };
    let represented = represent(app, &statement).await?;
    Ok(represented.map(|(statement, jws, log)| Receipt {
        id,
        job_id,
        statement,
        jws,
        log,
    }))
}

/// Returns a statement, its signature and its place in the log. `None` if it is not signed.
async fn represent(
    app: &App,
    statement: &StoredStatement,
) -> Result<Option<(Value, String, Option<LogPlace>)>> {
    let StoredStatement {
        payload,
        kid: Some(kid),
        signature: Some(signature),
        log_index: Some(index),
    } = statement
    else {
        return Ok(None);
    };
    let decoded = serde_json::from_slice(payload).map_err(Error::internal)?;
    let jws = compact(kid, payload, signature);
    let place = place(app, &jws, *index).await?;
    Ok(Some((decoded, jws, place)))
}

/// Returns the place of a statement in the last checkpoint. `None` if that does not have it yet.
async fn place(app: &App, jws: &str, index: i64) -> Result<Option<LogPlace>> {
    let checkpoint = receipts::last_checkpoint(&app.db.get()).await?;
    let Some(checkpoint) = checkpoint.filter(|checkpoint| index < checkpoint.size) else {
        return Ok(None);
    };
    let signed = SignedCheckpoint::parse(&checkpoint.note).map_err(Error::internal)?;
    let (tree, entry) = (&signed.tree, log_entry(jws));
    let at = u64::try_from(index).map_err(Error::internal)?;
    let mut tiles = KnownTiles::default();
    let path = loop {
        let found = tiles
            .prove(tree.size(), *tree.hash(), at, &entry)
            .map_err(Error::internal)?;
        match found {
            Found::Complete(path) => break path,
            Found::Missing(paths) => {
                for path in paths {
                    let tile = app.artifacts.get(&object_key(&path)).await?;
                    let tile = tile.ok_or_else(|| {
                        Error::internal(format!("{path} of the receipt log is missing"))
                    })?;
                    tiles.add(path, tile.to_vec());
                }
            }
        }
    };
    let proof = Proof {
        index: at,
        path,
        checkpoint: checkpoint.note,
    };
    Ok(Some(LogPlace {
        origin: tree.origin().to_owned(),
        index,
        proof: proof.to_text(),
    }))
}

/// Returns the salt with which the receipts of a job name the organization.
pub async fn opening(app: &App, owner: &Owner, job_id: &str) -> Result<ReceiptOpening> {
    let caller = owner.session();
    let job_id: JobId = job_id.parse().map_err(|_| receipt_not_found())?;
    let org_id = caller.org_id();
    let mut transaction = app.db.get().begin().await?;
    let opening = receipts::opening(&mut *transaction, org_id, &job_id)
        .await?
        .ok_or_else(receipt_not_found)?;
    let opened = [Change::new(
        AuditType::ReceiptOpened,
        TargetType::Job,
        job_id.as_str(),
    )];
    assay_core::store::audit::record(&mut transaction, org_id, caller.actor(), &opened).await?;
    transaction.commit().await?;
    Ok(opening)
}

/// Returns the commitment of a version of a suite, and what opens it after it has retired.
pub async fn commitment(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    input: inputs::GetSuiteCommitment,
) -> Result<Commitment> {
    let version = input.version.as_deref();
    let wait = SignatureWait::new();
    loop {
        let stored = find_commitment(app, visitor, suite_id, version).await?;
        if let Some((statement, jws, log)) = represent(app, &stored.statement).await? {
            let suite = (&stored.suite_id, stored.suite_version.as_str());
            let opening = stored
                .opening
                .map(|opening| represent_opening(opening, suite));
            return Ok(Commitment {
                opening,
                suite_commitment: hex::encode(stored.commitment),
                published_at: stored.published_at,
                committed_at: stored.committed_at,
                suite_id: stored.suite_id,
                suite_version: stored.suite_version,
                statement,
                jws,
                log,
            });
        }
        // Where no log runs, the signature of an old publication does not come.
        if stored.committed_at.plus_micros(SIGNATURE_TIMEOUT_MICROS) < Timestamp::now() {
            return Err(not_signed("commitment"));
        }
        wait.pause("commitment").await?;
    }
}

async fn find_commitment(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    version: Option<&str>,
) -> Result<receipts::StoredCommitment> {
    let not_found = || Error::not_found(Resource::Suite);
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    if version.is_some_and(|version| !is_version(version)) {
        return Err(not_found());
    }
    receipts::commitment(&app.db.get(), visitor.org_id(), &suite_id, version)
        .await?
        .ok_or_else(not_found)
}

fn represent_opening(
    opening: StoredOpening,
    (suite_id, version): (&SuiteId, &str),
) -> SuiteOpening {
    let url = |file: &str| {
        let version: String = form_urlencoded::byte_serialize(version.as_bytes()).collect();
        format!("/v1/suites/{suite_id}/opening/{file}?version={version}")
    };
    SuiteOpening {
        retired_at: opening.retired_at,
        salt: hex::encode(opening.salt),
        seed: opening.seed.map(hex::encode),
        items_sha256: hex::encode(opening.items_sha256),
        answers_sha256: hex::encode(opening.answers_sha256),
        items_url: url("items.ndjson"),
        answers_url: url("answers.ndjson"),
        retest_url: opening.retest_sha256.as_ref().map(|_| url("retest.ndjson")),
        retest_sha256: opening.retest_sha256.map(hex::encode),
    }
}

/// Memory that each byte in a file takes while its lines are read and written, in bytes.
const FILE_BYTE_COST: u64 = 3;

/// Streams a file that a retired version opened, several lines at once. They are charged to `room`
/// before they are read.
///
/// # Errors
/// 404 if there is no such file, 503 if the address reads too many files at once.
pub async fn opened_file(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    version: Option<&str>,
    file: &str,
    address: &str,
    room: SharedReservation,
) -> Result<impl Stream<Item = Result<Vec<u8>>> + Send + 'static + use<>> {
    let not_found = || Error::not_found(Resource::Opening);
    let file = match file {
        "items.ndjson" => OpenedFile::Items,
        "answers.ndjson" => OpenedFile::Answers,
        "retest.ndjson" => OpenedFile::Retest,
        _ => return Err(not_found()),
    };
    let stored = find_commitment(app, visitor, suite_id, version).await?;
    let opening = stored.opening.ok_or_else(not_found)?;
    if file == OpenedFile::Retest && opening.retest_sha256.is_none() {
        return Err(not_found());
    }
    let suite = NamedVersion {
        suite_id: stored.suite_id,
        version: stored.suite_version,
    };
    let NamedVersion { suite_id, version } = &suite;
    store::suite::ensure_not_removed(&app.db.get(), suite_id, version).await?;
    let permit = app.concurrency.opened_files.acquire(address).await?;
    // A statement for each block instead of one cursor: a slow reader must not hold a connection.
    let (db, from) = (app.db.requests.clone(), 0);
    let reader = (db, suite, room, permit, from);
    Ok(futures_util::stream::try_unfold(
        reader,
        move |(db, suite, room, permit, from)| async move {
            let extent = receipts::opened_extent(&db.get(), &suite, file, from).await?;
            if extent.items == 0 {
                // The file of a removed version must not look complete.
                let NamedVersion { suite_id, version } = &suite;
                store::suite::ensure_not_removed(&db.get(), suite_id, version).await?;
                return Ok(None);
            }
            room.reserve_response_of(extent.bytes * FILE_BYTE_COST)
                .await?;
            let (lines, next) =
                receipts::opened_lines(&db.get(), &suite, file, from, extent.items).await?;
            Ok::<_, Error>(Some((lines, (db, suite, room, permit, next))))
        },
    ))
}

/// The time for which the JWK set is kept: its proofs need files of the artifact store.
const JWK_SET_LIFETIME: Duration = Duration::from_secs(1);

/// Returns all receipt keys as a JWK set, in JSON. Requests that arrive while it is computed wait for it.
pub async fn jwk_set(app: &App) -> Result<Bytes> {
    let mut kept = app.jwk_set.lock().await;
    if let Some((at, json)) = &*kept
        && at.elapsed() < JWK_SET_LIFETIME
    {
        return Ok(json.clone());
    }
    let mut keys = Vec::new();
    for key in receipts::public_keys(&app.db.get()).await? {
        let public_key: [u8; 32] = key
            .public_key
            .try_into()
            .map_err(|_| Error::internal("a receipt key does not have 32 bytes"))?;
        let revoked = key.revoked_at_index.map(u64::try_from).transpose();
        let mut jwk = Jwk::new(
            &public_key,
            key.valid_from.to_string(),
            key.valid_until.map(|until| until.to_string()),
            revoked.map_err(Error::internal)?,
        );
        jwk.introduction = logged_change(app, key.added_jws, key.added_index, &jwk.kid).await;
        if let (Some(jws), Some(index)) = (key.revoked_jws, key.revoked_at_index) {
            jwk.revocation = logged_change(app, jws, index, &jwk.kid).await;
        }
        keys.push(jwk);
    }
    let json = serde_json::to_vec(&JwkSet { keys }).map_err(Error::internal)?;
    let json = Bytes::from(json);
    *kept = Some((Instant::now(), json.clone()));
    Ok(json)
}

/// Returns a change of a key with its place in the log. `None` if no checkpoint has it, or if it cannot
/// be proven: then readers reject this key, and no other one.
async fn logged_change(app: &App, jws: String, index: i64, kid: &str) -> Option<LoggedChange> {
    match place(app, &jws, index).await {
        Ok(place) => {
            let LogPlace {
                origin,
                index,
                proof,
            } = place?;
            let index = u64::try_from(index).ok()?;
            Some(LoggedChange {
                jws,
                log: assay_receipts::place::LogPlace {
                    origin,
                    index,
                    proof,
                },
            })
        }
        Err(error) => {
            tracing::error!(
                kid,
                error = error.log_text(),
                "no proof for the change of a receipt key"
            );
            None
        }
    }
}

/// A file of the log.
pub enum LogFile {
    /// The checkpoint, which changes.
    Checkpoint(Bytes),
    /// A tile or a bundle of entries, which never changes.
    Tile(Bytes),
}

/// Returns a file of the log. `None` if there is none at this path.
pub async fn log_file(app: &App, path: &str) -> Result<Option<LogFile>> {
    let is_checkpoint = path == CHECKPOINT;
    // The path becomes the name of an object.
    let is_tile = path.starts_with("tile/")
        && path.len() <= 100
        && path.split('/').all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
                && !part.starts_with('.')
        });
    if !is_checkpoint && !is_tile {
        return Ok(None);
    }
    let bytes = app.artifacts.get(&object_key(path)).await?;
    Ok(bytes.map(|bytes| match is_checkpoint {
        true => LogFile::Checkpoint(bytes),
        false => LogFile::Tile(bytes),
    }))
}
