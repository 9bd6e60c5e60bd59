//! A serving request: its validation, its charge, and its result.

use std::sync::Arc;
use std::time::Duration;

use assay_core::model::error_details::Endpoint;
use assay_core::model::permissions::Caller;
use assay_core::model::published_model::VisibleVersion;
use assay_core::model::sequence::{Sequence, check_sequences};
use assay_core::model::serving::{Refusal, SEQUENCES_MAX, TOP_K, Unit, Units};
use assay_core::model::serving_options::HistoryFields;
use assay_core::{Code, Error, Result};
use assay_engine_client::{CallOptions, Computed, Priority};
use assay_eval::FieldError;
use sha2::{Digest as _, Sha256};

use super::models;
use super::servable_model::{Servable, ensure_servable};
use super::serving_charge::{Charge, ChargedRequest};
use super::submissions::idempotency_key_error;
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;
use crate::limits::request_memory::SharedReservation;

/// The fields that all requests have, not validated yet.
pub struct ServeFields<'a> {
    /// The id of the model.
    pub model_id: &'a str,
    /// The version of the model. `None`: the current one.
    pub model_version: Option<String>,
    /// The sequences. `None` if the field is missing.
    pub sequences: Option<Vec<Sequence<'a>>>,
    /// The options that all operations have.
    pub history: HistoryFields,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// The memory that is charged for the request and its response.
    pub room: SharedReservation,
}

/// The work that a request is for the engine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) units: Units,
    /// The number of times that a sequence goes through the network.
    pub(super) encodings: u32,
    /// Set if the request returns items of the catalog that it does not name.
    pub(super) needs_items: bool,
    /// The memory for one sequence's result, in bytes.
    pub(super) result_bytes: u64,
}

/// Memory that an item in a result takes, in bytes: its id and its score, in the engine's response, in
/// the result and in the response. Item ids may have up to 512 bytes, but have 20 usually.
pub(super) const RESULT_ITEM_BYTES: u64 = 512;

/// Memory that a vector in a result takes, in bytes: 2,048 numbers with up to 12 characters each.
pub(super) const RESULT_VECTOR_BYTES: u64 = 64 * 1024;

/// A valid request.
pub(super) struct Request<'a> {
    endpoint: Endpoint,
    model_id: &'a str,
    model_version: Option<String>,
    pub(super) sequences: Vec<Sequence<'a>>,
    /// The idempotency key, and the digest of the request.
    idempotency: Option<(String, [u8; 32])>,
    room: SharedReservation,
}

impl<'a> Request<'a> {
    /// Validates the fields that all requests have.
    ///
    /// # Errors
    /// 413 if there are too many sequences, otherwise all field errors.
    pub(super) fn new(
        endpoint: Endpoint,
        fields: ServeFields<'a>,
        mut errors: Vec<FieldError>,
        options: &impl std::fmt::Debug,
    ) -> Result<Self> {
        let ServeFields {
            model_id,
            model_version,
            sequences,
            history: _,
            idempotency_key,
            room,
        } = fields;
        let mut sequences = match sequences {
            Some(sequences) => sequences,
            None => {
                errors.push(FieldError::required("sequences"));
                Vec::new()
            }
        };
        if sequences.len() > SEQUENCES_MAX {
            return Err(too_large(
                endpoint,
                format!(
                    "The request has {} sequences, and at most {SEQUENCES_MAX} are served at once.",
                    sequences.len()
                ),
            ));
        }
        if sequences.is_empty() && errors.is_empty() {
            errors.push(FieldError::new(
                "sequences",
                "range",
                format!("must have 1 to {SEQUENCES_MAX} sequences"),
            ));
        }
        check_sequences(&mut sequences, &mut errors);
        if endpoint != Endpoint::Predict {
            let with_options = sequences
                .iter()
                .position(|sequence| sequence.options.is_some());
            errors.extend(with_options.map(|at| {
                let field = format!("sequences[{at}].options");
                FieldError::new(&field, "unknown_field", "only predict ranks options")
            }));
        }
        errors.extend(idempotency_key.as_deref().and_then(idempotency_key_error));
        if !errors.is_empty() {
            return Err(Error::fields(errors));
        }
        let mut request = Self {
            endpoint,
            model_id,
            model_version,
            sequences,
            idempotency: None,
            room,
        };
        request.idempotency = idempotency_key.map(|key| (key, request.digest(options)));
        Ok(request)
    }

    /// Returns how many items the longest ranking has. Without `top_k`, all options of a sequence are
    /// ranked.
    pub(super) fn longest_ranking(&self, top_k: Option<u32>) -> u64 {
        let options = self.sequences.iter().map(|sequence| {
            let options = sequence.options.as_ref();
            options.map_or(0, |options| options.len() as u64)
        });
        let all = options.max().unwrap_or(0).max(u64::from(TOP_K.0));
        top_k.map_or(all, u64::from)
    }

    pub(super) fn units(&self, unit: Unit, each: i64) -> Units {
        let sequences = i64::try_from(self.sequences.len()).unwrap_or(i64::MAX);
        Units {
            unit,
            n: sequences.saturating_mul(each),
        }
    }

    /// Returns the digest of what an idempotency key stands for. It does not depend on the protocol
    /// or on the formatting of the JSON.
    fn digest(&self, options: &impl std::fmt::Debug) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut text = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        text(self.endpoint.as_str());
        text(self.model_id);
        text(self.model_version.as_deref().unwrap_or_default());
        text(&format!("{options:?}"));
        for sequence in &self.sequences {
            text(&sequence.sequence_id);
            text(&sequence.events.len().to_string());
            for event in &sequence.events {
                text(&event.item_id);
                text(event.r#type.as_deref().unwrap_or_default());
                text(&event.ts.map_or_else(String::new, |ts| ts.to_string()));
            }
            let options = sequence.options.as_deref();
            text(&options.map_or_else(String::new, |options| options.len().to_string()));
            for option in options.unwrap_or_default() {
                text(option);
            }
        }
        hash.finalize().into()
    }

    /// Prepares the call of the engine: finds the model, waits for a permit, and charges the units.
    /// Returns the model, the charge, and the permit, which is for the time of the call.
    ///
    /// `check` returns the error of a model that does not offer the variant of the operation.
    ///
    /// # Errors
    /// 404 if the caller's organization has no such model, 422 if it has no such version, 409 if it
    /// does not serve the operation. 413 if the call would take too long, 503 if the engines are
    /// saturated, 429 if the units left for the month do not suffice.
    pub(super) async fn start(
        &self,
        app: &App,
        caller: &Caller,
        work: Work,
        check: impl Fn(&Servable) -> Result<()>,
    ) -> Result<(Servable, Started, ConcurrencyPermit)> {
        let bytes = work.result_bytes * self.sequences.len() as u64;
        self.room.reserve_response(bytes).await?;
        let prepare = |found: &VisibleVersion| {
            let model = ensure_servable(&found.published, self.endpoint, work.needs_items)?;
            check(&model)?;
            self.ensure_in_time(app, &model, work.encodings)?;
            Ok::<_, Error>(model)
        };
        let (org_id, version) = (caller.org_id(), self.model_version.as_deref());
        // Before the charge, so that a request that is refused costs no statement.
        let permit = async || app.concurrency.serving.acquire(org_id.as_str()).await;
        let started = |charge| Started {
            call: CallOptions {
                priority: Priority::Synchronous,
                deadline: app.settings.serve_deadline,
            },
            charge,
        };
        let mut early_permit = None;
        // If the cached version fails, the current one may not.
        if let Some(cached) = app.serving.models.get(org_id, self.model_id, version)
            && let Ok(model) = prepare(&cached)
        {
            let permit = permit().await?;
            match self.charge(app, caller, work.units, Some(cached)).await? {
                Some(charge) => return Ok((model, started(charge), permit)),
                None => early_permit = Some(permit),
            }
        }
        let found = Arc::new(models::find(app, caller, self.model_id, version).await?);
        app.serving
            .models
            .put(org_id, self.model_id, version, Arc::clone(&found));
        let model = prepare(&found)?;
        let permit = match early_permit {
            Some(permit) => permit,
            None => permit().await?,
        };
        match self.charge(app, caller, work.units, None).await? {
            Some(charge) => Ok((model, started(charge), permit)),
            None => Err(Error::internal("a charge without a model failed for it")),
        }
    }

    /// Checks that the request takes at most half of the deadline.
    fn ensure_in_time(&self, app: &App, model: &Servable, encodings: u32) -> Result<()> {
        let estimate = self.estimate(model, encodings);
        if estimate > app.settings.serve_deadline / 2 {
            return Err(too_large(
                self.endpoint,
                format!("The request would take about {} ms.", estimate.as_millis()),
            ));
        }
        Ok(())
    }

    /// Returns the time that the engine needs for the request on one core, by the time that was
    /// measured at publication.
    fn estimate(&self, model: &Servable, encodings: u32) -> Duration {
        let context = u64::from(model.served.context_length);
        let positions: u64 = self
            .sequences
            .iter()
            .map(|sequence| (sequence.events.len() as u64).min(context) + 1)
            .sum();
        let micros = u128::from(model.sequence_us.unsigned_abs())
            * u128::from(positions)
            * u128::from(encodings)
            / u128::from(context + 1);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Charges the units, unless an earlier request with the same idempotency key was charged. Returns
    /// `None` if the organization does not see the expected version of the model any more.
    ///
    /// The charge is a task of its own: if the client disconnects meanwhile, the task drops the charge,
    /// which refunds it.
    async fn charge(
        &self,
        app: &App,
        caller: &Caller,
        units: Units,
        expected: Option<Arc<VisibleVersion>>,
    ) -> Result<Option<Charge>> {
        let request = ChargedRequest {
            app: app.clone(),
            org_id: caller.org_id().clone(),
            idempotency: self.idempotency.clone(),
            units,
            max: units.unit.max(caller.plan()),
        };
        let requested_version = self.model_version.clone();
        let tasks = &app.request_tasks;
        let charge = tasks.spawn(request.charge(requested_version, expected));
        charge.await.map_err(Error::internal)?
    }
}

/// A request that is charged, and can call the engine.
pub(super) struct Started {
    /// The options of the engine's call.
    pub(super) call: CallOptions,
    charge: Charge,
}

impl Started {
    /// Keeps the charge although the client disconnects, because it gets a part of the result.
    /// Returns whether an earlier request was charged instead.
    ///
    /// # Errors
    /// As [`Charge::keep`].
    pub(super) async fn keep_charge(&mut self) -> Result<bool> {
        self.charge.keep().await
    }

    /// Returns the results, the time that the engine took, and whether an earlier request was
    /// charged. Refunds the charge if there are no results.
    pub(super) async fn finish<T>(
        mut self,
        sequences: &[Sequence<'_>],
        computed: Result<Computed<T>>,
    ) -> Result<(Vec<T>, Duration, bool)> {
        let finished = computed.and_then(|computed| {
            let Computed {
                results,
                engine_time,
            } = computed;
            Ok((complete(sequences, results)?, engine_time))
        });
        match finished {
            Ok((results, engine_time)) => {
                let replayed = self.charge.keep().await?;
                Ok((results, engine_time, replayed))
            }
            Err(error) => {
                self.charge.refund().await;
                Err(error)
            }
        }
    }
}

/// Returns the 413 of a request with too much work, and says how to split it. Only `predict` has
/// jobs.
fn too_large(endpoint: Endpoint, what: String) -> Error {
    let remedy = match endpoint {
        Endpoint::Predict => "Use a job instead: POST /v1/predictions.",
        Endpoint::Generate => "Send fewer or shorter sequences, or ask for fewer events.",
        Endpoint::Embed => "Send fewer or shorter sequences.",
    };
    Error::new(Code::PayloadTooLarge, format!("{what} {remedy}"))
}

/// Returns the results, or the field errors of the sequences that the model refused.
fn complete<T>(sequences: &[Sequence<'_>], results: Vec<Result<T, Refusal>>) -> Result<Vec<T>> {
    let mut complete = Vec::with_capacity(results.len());
    let mut errors = Vec::new();
    for (index, (sequence, result)) in sequences.iter().zip(results).enumerate() {
        match result {
            Ok(result) => complete.push(result),
            Err(refusal) => {
                errors.push(refusal.field_error(sequence, &format!("sequences[{index}].")));
            }
        }
    }
    if errors.is_empty() {
        Ok(complete)
    } else {
        Err(Error::fields(errors))
    }
}
