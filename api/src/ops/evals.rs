//! Submission of predictions: `POST /v1/evals`.

use std::sync::Arc;

use assay_core::model::error::Errors;
use assay_core::model::job::charged_items;
use assay_core::model::metadata::Metadata;
use assay_core::model::permissions::{Caller, EvalSubmitter, TermsAccepted};
use assay_core::model::suite::{SuiteId, SuiteStatus};
use assay_core::model::upload::UploadKind;
use assay_core::model::validation;
use assay_core::store::new_job::{NewEval, NewTask, StoredAs};
use assay_core::store::suite::SuiteRow;
use assay_core::{Error, Result, UploadId};
use assay_eval::FieldError;
use assay_eval::prediction::{self, Checked, PredictionRules};
use bytes::Bytes;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::submissions::{
    Accepted, FoundUpload, Origin, ValidJob, ensure_json, find_repeated, find_upload,
    idempotency_key_error, replay, store_job, upload_not_ready, with_bytes,
};
use crate::app::App;

/// Maximum size of the body or message of a submission, in bytes.
pub const BODY_MAX: usize = 5 * 1024 * 1024;

/// The fields of a submission, not validated yet.
pub struct Submission {
    /// The id of the suite. Required.
    pub suite_id: String,
    /// A JSON array of predictions.
    pub predictions: Option<Bytes>,
    /// The id of a ready upload, instead of `predictions`.
    pub input_ref: Option<String>,
    /// The version of the suite that the predictions were made for.
    pub suite_version: Option<String>,
    /// The caller's label of the job.
    pub label: Option<String>,
    /// The caller's pairs of texts.
    pub metadata: Option<Map<String, Value>>,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
}

/// Validates a submission, stores its predictions, and queues and charges one job.
///
/// # Errors
/// If the submission is invalid or a limit is reached. Then no job is stored and nothing is
/// charged.
pub async fn submit(
    app: &App,
    submitter: &TermsAccepted<EvalSubmitter>,
    submission: Submission,
    origin: Origin,
) -> Result<Accepted> {
    let caller = submitter.proof().caller();
    // The predictions have arrived. A permit before that would be held by slow clients.
    let permit = app
        .concurrency
        .submission_bodies
        .acquire(caller.org_id().as_str())
        .await?;
    let ValidSubmission {
        suite,
        input,
        n_items,
        digest,
        suite_version,
        label,
        metadata,
        idempotency_key,
    } = validate(app, caller, submission).await?;
    let request_sha256 = digest.map(|digest| {
        let sent = (suite_version.as_deref(), label.as_deref());
        request_digest(&suite, &digest, sent, metadata.as_ref())
    });
    if let Some(version) = suite_version.filter(|version| *version != suite.version) {
        // A repetition returns its job even if the suite has a new version.
        if let Some(repeated) = find_repeated(app, caller, idempotency_key.as_deref()).await? {
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
        return Err(Error::other_suite_version(version, suite.version.clone()));
    }
    if suite.is_closed_to_caller() {
        // A repetition returns its job even if the organization may not submit any more.
        if let Some(repeated) = find_repeated(app, caller, idempotency_key.as_deref()).await? {
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
        ensure_may_submit(&suite)?;
    }
    let input = match input {
        Input::Inline(predictions) => StoredAs::Row(predictions),
        Input::Upload { id, usable: true } => StoredAs::Upload(id),
        Input::Upload { usable: false, .. } => {
            let repeated = find_repeated(app, caller, idempotency_key.as_deref()).await?;
            let repeated = repeated.ok_or_else(|| Error::from(upload_not_ready()))?;
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
    };
    let job = ValidJob {
        task: NewTask::Eval(NewEval {
            charged_items: charged_items(n_items, i64::from(suite.n_items)),
            suite,
        }),
        input,
        n_submitted: n_items,
        label,
        metadata,
        idempotency_key,
        request_sha256,
    };
    store_job(app, caller, job, origin, permit).await
}

/// Returns an error if the suite's version has retired, or if the caller's organization may not
/// submit to the suite.
pub(super) fn ensure_may_submit(suite: &SuiteRow) -> Result<()> {
    match suite.status() {
        SuiteStatus::Active | SuiteStatus::Retiring if suite.can_submit => Ok(()),
        SuiteStatus::Active | SuiteStatus::Retiring => Err(Error::suite_access(suite.access)),
        SuiteStatus::Retired => Err(Error::suite_retired(&suite.version)),
        SuiteStatus::Suspended => Err(Error::suite_suspended()),
        SuiteStatus::Removed => Err(Error::suite_removed()),
    }
}

/// Returns a suite that the caller's organization sees.
pub(super) async fn find_suite(
    app: &App,
    caller: &Caller,
    suite_id: SuiteId,
) -> Result<Option<Arc<SuiteRow>>> {
    let key = (caller.org_id().clone(), suite_id);
    app.lookups.suites.execute(key).await
}

/// Returns the field error of an id that is not that of a suite.
pub(super) fn no_such_suite() -> FieldError {
    FieldError::new(
        "suite_id",
        "not_found",
        "there is no such suite; GET /v1/suites lists them",
    )
}

/// A validated submission.
struct ValidSubmission {
    suite: Arc<SuiteRow>,
    input: Input,
    n_items: i64,
    /// The digest of the predictions. `None` without an idempotency key.
    digest: Option<[u8; 32]>,
    suite_version: Option<String>,
    label: Option<String>,
    metadata: Option<Metadata>,
    idempotency_key: Option<String>,
}

/// The location of the predictions.
enum Input {
    Inline(Bytes),
    /// An upload that was ready once. If it is no longer `usable`, only a repetition of an earlier
    /// submission is accepted.
    Upload {
        id: UploadId,
        usable: bool,
    },
}

/// Validates all fields of a submission.
///
/// # Errors
/// All field errors at once.
async fn validate(app: &App, caller: &Caller, submission: Submission) -> Result<ValidSubmission> {
    let Submission {
        suite_id,
        predictions,
        input_ref,
        suite_version,
        label,
        metadata,
        idempotency_key,
    } = submission;
    let mut errors = Errors::default();
    let suite = match suite_id.parse() {
        _ if suite_id.is_empty() => None,
        Ok(suite_id) => find_suite(app, caller, suite_id).await?,
        Err(_) => None,
    };
    if suite.is_none() {
        errors.push(match suite_id.is_empty() {
            true => FieldError::required("suite_id"),
            false => no_such_suite(),
        });
    }
    if predictions.is_some() == input_ref.is_some() {
        errors.push(FieldError::new(
            "predictions",
            "exactly_one_of",
            "give exactly one of predictions and input_ref",
        ));
    }
    let label = errors.take(
        label
            .map(|label| validation::text("label", &label))
            .transpose(),
    );
    if suite_version.as_deref() == Some("") {
        errors.push(FieldError::required("suite_version"));
    }
    let metadata = metadata.and_then(|pairs| {
        Metadata::validate(pairs)
            .map_err(|invalid| errors.extend(invalid))
            .ok()
    });
    errors.extend(idempotency_key.as_deref().and_then(idempotency_key_error));
    let input = match (&suite, predictions, input_ref) {
        (_, None, Some(input_ref)) => {
            let found = find_upload(app, caller, &input_ref, UploadKind::Predictions).await?;
            let input = |found: FoundUpload| {
                let FoundUpload {
                    id,
                    usable,
                    n_items,
                    digest,
                } = found;
                let digest = Some(digest);
                let counted = Counted { n_items, digest };
                Some((Input::Upload { id, usable }, counted))
            };
            errors.take(found.map(input))
        }
        (Some(suite), Some(predictions), None) => {
            let needs_digest = idempotency_key.is_some();
            let rules = suite.prediction_rules()?;
            let counted = check(rules, predictions.clone(), needs_digest).await;
            let input = |counted| Some((Input::Inline(predictions), counted));
            errors.take_all(counted.map(input))?
        }
        (_, Some(predictions), _) => {
            ensure_json("predictions", predictions).await?;
            None
        }
        _ => None,
    };
    let (Some(suite), Some((input, Counted { n_items, digest }))) = (suite, input) else {
        return Err(errors.into());
    };
    errors.finish()?;
    Ok(ValidSubmission {
        suite,
        input,
        n_items,
        digest,
        suite_version,
        label,
        metadata,
        idempotency_key,
    })
}

/// The number of valid predictions, and their digest if it is needed.
struct Counted {
    n_items: i64,
    digest: Option<[u8; 32]>,
}

/// Checks predictions.
async fn check(rules: PredictionRules, predictions: Bytes, needs_digest: bool) -> Result<Counted> {
    let checked = with_bytes(predictions, move |predictions| {
        if needs_digest {
            prediction::check(predictions, &rules).map(|Checked { n_items, digest }| Counted {
                n_items,
                digest: Some(digest),
            })
        } else {
            prediction::check_and_count(predictions, &rules).map(|n_items| Counted {
                n_items,
                digest: None,
            })
        }
    });
    Ok(checked.await??)
}

/// Returns the digest of a submission's content, which an idempotency key stands for. It does not
/// depend on the protocol, the formatting of the JSON, or whether the predictions were uploaded.
fn request_digest(
    suite: &SuiteRow,
    predictions: &[u8; 32],
    (suite_version, label): (Option<&str>, Option<&str>),
    metadata: Option<&Metadata>,
) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(predictions);
    // Every string is preceded by its length, so that no two requests have the same encoding.
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(suite.suite_id.as_str());
    for optional in [label, suite_version] {
        add(if optional.is_some() { "set" } else { "unset" });
        add(optional.unwrap_or_default());
    }
    for (key, value) in metadata.iter().flat_map(|metadata| metadata.pairs()) {
        add(key);
        add(value);
    }
    hash.finalize().into()
}
