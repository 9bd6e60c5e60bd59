//! Submission of prediction jobs: `POST /v1/predictions`.

use std::sync::Arc;
use std::time::Duration;

use assay_core::model::error::Errors;
use assay_core::model::error_details::Endpoint;
use assay_core::model::job::charged_items;
use assay_core::model::permissions::{Caller, ModelRunner, TermsAccepted};
use assay_core::model::prediction::CHUNK_DEADLINE;
use assay_core::model::published_model::ServedVersion;
use assay_core::model::scope::Scope;
use assay_core::model::sequence_list::{self, CheckedSequences};
use assay_core::model::served_model::Profile;
use assay_core::model::serving::{PredictOptions, SEQUENCES_MAX};
use assay_core::model::serving_options::{HistoryFields, PredictFields};
use assay_core::model::upload::UploadKind;
use assay_core::model::validation;
use assay_core::store::leases::ATTEMPT_TIMEOUT;
use assay_core::store::new_job::{NewEval, NewPrediction, NewTask, StoredAs};
use assay_core::store::suite::SuiteRow;
use assay_core::{Code, Error, JobId, Result, UploadId};
use assay_eval::{Family, FieldError, Metric};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::evals::{ensure_may_submit, find_suite, no_such_suite};
use super::models;
use super::servable_model::{Servable, ensure_servable, not_offered};
use super::submissions::{
    Accepted, FoundUpload, Origin, ValidJob, ensure_json, find_repeated, find_upload,
    idempotency_key_error, replay, store_job, upload_not_ready, with_bytes,
};
use crate::app::App;

/// The fields of a prediction job, not validated yet.
#[derive(Default)]
pub struct PredictionFields {
    /// The id of the model. Required.
    pub model_id: String,
    /// The version of the model.
    pub model_version: Option<String>,
    /// The operation: `predict`.
    pub operation: Option<String>,
    /// A JSON array of sequences.
    pub sequences: Option<Bytes>,
    /// The id of a ready upload of sequences, instead of `sequences`.
    pub input_ref: Option<String>,
    /// The id of a suite, instead of `sequences`.
    pub suite_id: Option<String>,
    /// The options of the operation.
    pub options: PredictFields,
    /// The options of the handling of histories.
    pub history: HistoryFields,
    /// `true` to evaluate the output.
    pub evaluate: Option<bool>,
    /// The caller's label of the job.
    pub label: Option<String>,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
}

/// Validates a prediction job, stores its sequences, and queues and charges it, together with the
/// eval of its output if the caller wants one.
///
/// # Errors
/// If the request is invalid or a limit is reached. Then no job is stored and nothing is charged.
pub async fn submit(
    app: &App,
    submitter: &TermsAccepted<ModelRunner>,
    fields: PredictionFields,
    origin: Origin,
) -> Result<Accepted> {
    let caller = submitter.proof().caller();
    if fields.evaluate == Some(true) {
        caller.require_scope(Scope::EvalsWrite)?;
    }
    // The sequences have arrived. A permit before that would be held by slow clients.
    let permit = app
        .concurrency
        .submission_bodies
        .acquire(caller.org_id().as_str())
        .await?;
    let valid = validate(app, caller, fields).await?;
    let request_sha256 = valid
        .idempotency_key
        .is_some()
        .then(|| valid.request_digest());
    let ValidPrediction {
        version,
        requested_version: _,
        input,
        options,
        evaluated,
        label,
        idempotency_key,
    } = valid;
    let is_usable = !matches!(input, Input::Upload(FoundUpload { usable: false, .. }));
    let is_closed = evaluated
        .as_ref()
        .is_some_and(|suite| suite.is_closed_to_caller());
    let model = ensure_servable(&version, Endpoint::Predict, input.needs_items());
    let finishes = model.as_ref().map_or(Ok(()), |model| {
        ensure_finishes(model, input.n(), app.serving.engines.cores())
    });
    if !is_usable || is_closed || finishes.is_err() {
        // A repetition returns its job even if it could not be submitted any more.
        if let Some(repeated) = find_repeated(app, caller, idempotency_key.as_deref()).await? {
            return replay(app, caller, repeated, request_sha256.as_ref()).await;
        }
    }
    if !is_usable {
        return Err(upload_not_ready().into());
    }
    if let Some(suite) = evaluated.as_deref().filter(|_| is_closed) {
        ensure_may_submit(suite)?;
    }
    let model = model?;
    if input.has_options() && !model.served.ranks_options() {
        return Err(not_offered(&model, "it does not rank options"));
    }
    let n_submitted = input.n();
    finishes?;
    let suite = match &input {
        Input::Suite(suite) => Some(Arc::clone(suite)),
        Input::Inline(..) | Input::Upload(_) => None,
    };
    let evaluation = match evaluated {
        Some(suite) => {
            let charged_items = charged_items(n_submitted, i64::from(suite.n_items));
            let eval = NewEval {
                suite,
                charged_items,
            };
            Some((JobId::random()?, eval))
        }
        None => None,
    };
    let job = ValidJob {
        task: NewTask::Predict(Box::new(NewPrediction {
            model: model.served,
            options,
            suite,
            cost: app
                .jobs
                .queue
                .speed()
                .cost_of_sequences(n_submitted, model.sequence_us),
            output_upload_id: UploadId::random()?,
            evaluation,
        })),
        input: match input {
            Input::Inline(sequences, _) => StoredAs::Row(sequences),
            Input::Upload(upload) => StoredAs::Upload(upload.id),
            Input::Suite(_) => StoredAs::SuiteItems,
        },
        n_submitted,
        label,
        metadata: None,
        idempotency_key,
        request_sha256,
    };
    store_job(app, caller, job, origin, permit).await
}

/// Checks that an attempt has the time for all sequences, if each has the context's full length and
/// the engine has as many cores as this machine. The time of an external engine is not known: it may
/// compute the sequences of a call at once.
///
/// # Errors
/// 413 if not: every attempt would end at a timeout.
fn ensure_finishes(model: &Servable, n: i64, cores: usize) -> Result<()> {
    if model.served.profile != Profile::Embedded {
        return Ok(());
    }
    let sequence_us = u128::from(model.sequence_us.unsigned_abs().max(1));
    let n_within = |time: Duration| time.as_micros() * cores as u128 / sequence_us;
    let n_of_chunk = n_within(CHUNK_DEADLINE);
    let n_max = match n_of_chunk < SEQUENCES_MAX as u128 {
        true => n_of_chunk,
        false => n_within(ATTEMPT_TIMEOUT),
    };
    if u128::from(n.unsigned_abs()) <= n_max {
        return Ok(());
    }
    Err(Error::new(
        Code::PayloadTooLarge,
        format!(
            "The job could take longer than the {} minutes of an attempt, or a part of it longer than \
             its {} s. Send at most {n_max} sequences in one job.",
            ATTEMPT_TIMEOUT.as_secs() / 60,
            CHUNK_DEADLINE.as_secs()
        ),
    ))
}

/// A validated prediction job.
struct ValidPrediction {
    /// The model, in the version that the job keeps.
    version: ServedVersion,
    /// The version that the caller named.
    requested_version: Option<String>,
    input: Input,
    options: PredictOptions,
    /// The suite that the output is scored for, if it is.
    evaluated: Option<Arc<SuiteRow>>,
    label: Option<String>,
    idempotency_key: Option<String>,
}

/// The sequences of a job.
enum Input {
    Inline(Bytes, CheckedSequences),
    Upload(FoundUpload),
    /// The items of the current version of a suite.
    Suite(Arc<SuiteRow>),
}

impl Input {
    /// Returns the number of sequences.
    fn n(&self) -> i64 {
        match self {
            Self::Inline(_, checked) => checked.n,
            Self::Upload(upload) => upload.n_items,
            Self::Suite(suite) => i64::from(suite.n_items),
        }
    }

    /// Returns `true` if a sequence certainly has no options, so that items of the catalog are
    /// returned for it. Sequences of an upload without options fail one by one.
    fn needs_items(&self) -> bool {
        match self {
            Self::Inline(_, checked) => checked.n_with_options < checked.n,
            Self::Upload(_) => false,
            Self::Suite(suite) => suite.sequence_options.is_none(),
        }
    }

    /// Returns `true` if a sequence certainly has options.
    fn has_options(&self) -> bool {
        match self {
            Self::Inline(_, checked) => checked.n_with_options > 0,
            Self::Upload(_) => false,
            Self::Suite(suite) => suite.sequence_options.is_some(),
        }
    }
}

impl ValidPrediction {
    /// Returns the digest of the request's content, which an idempotency key stands for. It does not
    /// depend on the protocol, the formatting of the JSON, or whether the sequences were uploaded.
    fn request_digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        // No digest of an eval begins with this text.
        add(b"prediction");
        add(self.version.file.id.as_bytes());
        add(self
            .requested_version
            .as_deref()
            .unwrap_or_default()
            .as_bytes());
        match &self.input {
            Input::Inline(_, checked) => add(&checked.digest),
            Input::Upload(upload) => add(&upload.digest),
            Input::Suite(suite) => add(suite.suite_id.as_str().as_bytes()),
        }
        add(format!("{:?}", self.options).as_bytes());
        add(&[u8::from(self.evaluated.is_some())]);
        add(&[u8::from(self.label.is_some())]);
        add(self.label.as_deref().unwrap_or_default().as_bytes());
        hash.finalize().into()
    }
}

/// Validates all fields.
///
/// # Errors
/// All field errors at once.
async fn validate(app: &App, caller: &Caller, fields: PredictionFields) -> Result<ValidPrediction> {
    let PredictionFields {
        model_id,
        model_version,
        operation,
        sequences,
        input_ref,
        suite_id,
        options,
        history,
        evaluate,
        label,
        idempotency_key,
    } = fields;
    let mut errors = Errors::default();
    let version = find_model(
        app,
        caller,
        &model_id,
        model_version.as_deref(),
        &mut errors,
    )
    .await?;
    if operation.is_some_and(|operation| operation != Endpoint::Predict.as_str()) {
        errors.push(FieldError::new(
            "operation",
            "unknown_value",
            "must be predict, the only operation of jobs",
        ));
    }
    let mut option_errors = Vec::new();
    let options = options.check(&history, &mut option_errors);
    errors.extend(option_errors.into_iter().map(|error| FieldError {
        field: format!("parameters.{}", error.field),
        ..error
    }));
    let label = errors.take(
        label
            .map(|label| validation::text("label", &label))
            .transpose(),
    );
    errors.extend(idempotency_key.as_deref().and_then(idempotency_key_error));
    let evaluate = evaluate.unwrap_or(false);
    if evaluate && suite_id.is_none() {
        errors.push(FieldError::new(
            "evaluate",
            "requires_suite",
            "give suite_id, the suite for which the output is scored",
        ));
    }
    let input = match (sequences, input_ref, suite_id) {
        (Some(sequences), None, None) => inline(sequences, &mut errors).await?,
        (None, Some(input_ref), None) => {
            let found = find_upload(app, caller, &input_ref, UploadKind::Sequences).await?;
            errors.take(found.map(|upload| Some(Input::Upload(upload))))
        }
        (None, None, Some(suite_id)) => {
            let suite = match suite_id.parse() {
                Ok(suite_id) => find_suite(app, caller, suite_id).await?,
                Err(_) => None,
            };
            let suite = predictable(suite, evaluate);
            errors.take(suite.map(|suite| Some(Input::Suite(suite))))
        }
        (sequences, _, _) => {
            if let Some(sequences) = sequences {
                ensure_json("sequences", sequences).await?;
            }
            errors.push(FieldError::new(
                "sequences",
                "exactly_one_of",
                "give exactly one of sequences, input_ref and suite_id",
            ));
            None
        }
    };
    let (Some(version), Some(input)) = (version, input) else {
        return Err(errors.into());
    };
    errors.finish()?;
    let evaluated = match &input {
        Input::Suite(suite) if evaluate => Some(Arc::clone(suite)),
        _ => None,
    };
    Ok(ValidPrediction {
        version,
        requested_version: model_version,
        input,
        options,
        evaluated,
        label,
        idempotency_key,
    })
}

/// Returns the model of a job in its version. An unknown model or version is a field error: the
/// request names it in its body.
async fn find_model(
    app: &App,
    caller: &Caller,
    model_id: &str,
    version: Option<&str>,
    errors: &mut Errors,
) -> Result<Option<ServedVersion>> {
    if model_id.is_empty() {
        errors.push(FieldError::required("model_id"));
        return Ok(None);
    }
    let found = models::find(app, caller, model_id, version).await;
    let found = found.map_err(|error| match error.code {
        Code::NotFound => Error::field(
            "model_id",
            "not_found",
            "there is no such model; GET /v1/models lists them",
        ),
        _ => error,
    });
    errors.take_all(found.map(|found| Some(found.published)))
}

/// Checks inline sequences.
async fn inline(sequences: Bytes, errors: &mut Errors) -> Result<Option<Input>> {
    let checked = with_bytes(sequences.clone(), |json| {
        let text = std::str::from_utf8(json).unwrap_or_default();
        sequence_list::check_array(text)
    });
    let checked = checked.await?.map_err(Error::from);
    errors.take_all(checked.map(|checked| Some(Input::Inline(sequences, checked))))
}

/// Returns the suite if it can be predicted, and scored if that is wanted.
fn predictable(suite: Option<Arc<SuiteRow>>, evaluate: bool) -> Result<Arc<SuiteRow>, FieldError> {
    let suite = suite.ok_or_else(no_such_suite)?;
    if suite.sequence_events.is_none() {
        return Err(FieldError::new(
            "suite_id",
            "not_a_sequence",
            "the items of this suite have no sequence to predict",
        ));
    }
    if !evaluate {
        return Ok(suite);
    }
    let takes_rankings =
        Metric::published(&suite.metric).is_ok_and(|metric| metric.family() == Family::Rankings);
    if takes_rankings {
        Ok(suite)
    } else {
        Err(FieldError::new(
            "evaluate",
            "metric",
            format!(
                "the metric of this suite, {}, scores no rankings",
                suite.metric
            ),
        ))
    }
}
