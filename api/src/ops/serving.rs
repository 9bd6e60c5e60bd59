//! The synchronous serving operations: `POST /v1/models/{model_id}/predict`, `generate` and
//! `embed`.
//!
//! A request is validated, its model is found, its units are charged, and then the engine is
//! called. A request that gets no result is refunded, also if its client disconnects.

use std::sync::Arc;
use std::time::Duration;

use assay_core::model::error_details::Endpoint;
use assay_core::model::permissions::{Caller, ModelRunner, TermsAccepted};
use assay_core::model::published_model::{ServedVersion, VisibleVersion};
use assay_core::model::random;
use assay_core::model::sequence::{Sequence, check_sequences};
use assay_core::model::served_model::ServedModel;
use assay_core::model::serving::{
    Continuations, EmbedData, EmbedUsage, Embeddings, GenerateData, GenerateMode, GenerateOptions,
    GenerateUsage, Generations, Pooling, PredictData, PredictUsage, Predictions, Refusal,
    SEQUENCES_MAX, Seed, Served, TOP_K, Unit, Units,
};
use assay_core::model::serving_options::{
    EmbedFields, GenerateFields, HistoryFields, PredictFields,
};
use assay_core::{Code, Details, Error, Resource, Result};
use assay_engine_client::{CallOptions, Computed, EarlyEvents, Priority};
use assay_eval::FieldError;
use sha2::{Digest as _, Sha256};

use super::models;
use super::serving_charge::{Charge, ChargedRequest};
use super::submissions::idempotency_key_error;
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;
use crate::limits::request_memory::SharedReservation;

/// The number of continuations that `generate` follows at once in the mode `beam`.
const BEAM: u32 = 10;

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

/// Ranks items for each sequence by their probability of being next.
///
/// # Errors
/// If the request is invalid, a limit is reached or the engine does not return a result. Then
/// nothing is charged.
pub async fn predict(
    app: &App,
    submitter: &TermsAccepted<ModelRunner>,
    fields: ServeFields<'_>,
    predict: PredictFields,
) -> Result<Served<Predictions>> {
    let mut errors = Vec::new();
    let options = predict.check(&fields.history, &mut errors);
    let request = Request::new(Endpoint::Predict, fields, errors, &options)?;
    let needs_items = request
        .sequences
        .iter()
        .any(|sequence| sequence.options.is_none());
    let has_options = request
        .sequences
        .iter()
        .any(|sequence| sequence.options.is_some());
    let units = request.units(Unit::PredictItems, 1);
    let work = Work {
        units,
        encodings: 1,
        needs_items,
        result_bytes: request.longest_ranking(options.top_k) * RESULT_ITEM_BYTES,
    };
    let ranks_options = |model: &Servable| {
        if has_options && !model.served.ranks_options() {
            return Err(not_offered(model, "it does not rank options"));
        }
        Ok(())
    };
    let caller = submitter.proof().caller();
    let (model, started, _permit) = request.start(app, caller, work, ranks_options).await?;
    let computed = app
        .serving
        .engines
        .predict(&model.served, &request.sequences, &options, started.call)
        .await;
    let (results, engine_time, replayed) = started.finish(&request.sequences, computed).await?;
    let data = request.sequences.iter().zip(results);
    Ok(Served {
        result: Predictions {
            data: data
                .map(|(sequence, ranking)| PredictData::new(sequence, ranking))
                .collect(),
            model_id: model.served.id,
            model_version: model.served.version,
            operation: Endpoint::Predict,
            usage: PredictUsage {
                predict_items: units.n,
            },
        },
        engine_time,
        replayed,
    })
}

/// Continues each sequence.
///
/// # Errors
/// As [`predict`].
pub async fn generate(
    app: &App,
    submitter: &TermsAccepted<ModelRunner>,
    fields: ServeFields<'_>,
    generate: GenerateFields,
) -> Result<Served<Generations>> {
    let (generation, started, _permit) =
        Generation::start(app, submitter, fields, generate, false).await?;
    let computed = generation.compute(app, started.call, None).await;
    generation.finish(started, computed).await
}

/// A valid request to continue sequences.
pub(super) struct Generation<'a> {
    sequences: Vec<Sequence<'a>>,
    options: GenerateOptions,
    model: Servable,
    units: Units,
}

impl<'a> Generation<'a> {
    pub(super) async fn start(
        app: &App,
        submitter: &TermsAccepted<ModelRunner>,
        fields: ServeFields<'a>,
        generate: GenerateFields,
        is_streamed: bool,
    ) -> Result<(Self, Started, ConcurrencyPermit)> {
        let mut errors = Vec::new();
        let seed = match &fields.idempotency_key {
            // A repetition draws the same seed.
            Some(key) => first_word(&Sha256::digest(key).into()),
            None => random::words::<1>()[0],
        };
        let options = generate.check(&fields.history, seed, &mut errors);
        if is_streamed && options.mode == GenerateMode::Beam && options.n_continuations > 1 {
            errors.push(FieldError::new(
                "n_continuations",
                "range",
                "must be 1 in a stream, unless you send mode: sample",
            ));
        }
        let request = Request::new(Endpoint::Generate, fields, errors, &options)?;
        let units = request.units(
            Unit::GeneratedEvents,
            i64::from(options.n_events) * i64::from(options.n_continuations),
        );
        let encodings = options.n_events
            * match options.mode {
                GenerateMode::Beam => BEAM,
                GenerateMode::Sample => options.n_continuations,
            };
        let work = Work {
            units,
            encodings,
            needs_items: true,
            result_bytes: u64::from(options.n_events)
                * u64::from(options.n_continuations)
                * RESULT_ITEM_BYTES,
        };
        let samples = |model: &Servable| {
            let must_sample = options.mode == GenerateMode::Sample || options.exclude_seen;
            if must_sample && !model.served.samples() {
                let why = "it generates with mode: beam only, and with all items";
                return Err(not_offered(model, why));
            }
            Ok(())
        };
        let caller = submitter.proof().caller();
        let (model, started, permit) = request.start(app, caller, work, samples).await?;
        let generation = Self {
            sequences: request.sequences,
            options,
            model,
            units,
        };
        Ok((generation, started, permit))
    }

    /// Copies what the request borrows.
    pub(super) fn into_owned(self) -> Generation<'static> {
        Generation {
            sequences: self
                .sequences
                .into_iter()
                .map(Sequence::into_owned)
                .collect(),
            options: self.options,
            model: self.model,
            units: self.units,
        }
    }

    /// Returns the ids of the sequences, in their order.
    pub(super) fn sequence_ids(&self) -> impl Iterator<Item = String> {
        self.sequences
            .iter()
            .map(|sequence| sequence.sequence_id.to_string())
    }

    /// Returns the version of the model.
    pub(super) fn model_version(&self) -> &str {
        &self.model.served.version
    }

    /// Calls the engine.
    pub(super) async fn compute(
        &self,
        app: &App,
        call: CallOptions,
        early: Option<&EarlyEvents>,
    ) -> Result<Computed<Continuations>> {
        let model = &self.model.served;
        app.serving
            .engines
            .generate_early(model, &self.sequences, &self.options, call, early)
            .await
    }

    /// Returns the result for the caller, or refunds the charge.
    pub(super) async fn finish(
        self,
        started: Started,
        computed: Result<Computed<Continuations>>,
    ) -> Result<Served<Generations>> {
        let finished = started.finish(&self.sequences, computed);
        let (results, engine_time, replayed) = finished.await?;
        let data = self.sequences.iter().zip(results);
        Ok(Served {
            result: Generations {
                data: data
                    .map(|(sequence, generated)| GenerateData::new(sequence, generated))
                    .collect(),
                model_id: self.model.served.id,
                model_version: self.model.served.version,
                operation: Endpoint::Generate,
                seed: (self.options.mode == GenerateMode::Sample)
                    .then_some(Seed(self.options.seed)),
                usage: GenerateUsage {
                    generated_events: self.units.n,
                },
            },
            engine_time,
            replayed,
        })
    }
}

/// Computes a vector of each sequence.
///
/// # Errors
/// As [`predict`].
pub async fn embed(
    app: &App,
    submitter: &TermsAccepted<ModelRunner>,
    fields: ServeFields<'_>,
    embed: EmbedFields,
) -> Result<Served<Embeddings>> {
    let mut errors = Vec::new();
    let (options, encoding) = embed.check(&fields.history, &mut errors);
    let request = Request::new(Endpoint::Embed, fields, errors, &(options, encoding))?;
    let units = request.units(Unit::Embeddings, 1);
    let work = Work {
        units,
        encodings: 1,
        needs_items: false,
        result_bytes: RESULT_VECTOR_BYTES,
    };
    let pools = |model: &Servable| {
        if options.pooling == Pooling::Mean && !model.served.pools_mean() {
            return Err(not_offered(model, "it embeds with pooling: last only"));
        }
        Ok(())
    };
    let caller = submitter.proof().caller();
    let (model, started, _permit) = request.start(app, caller, work, pools).await?;
    let computed = app
        .serving
        .engines
        .embed(&model.served, &request.sequences, &options, started.call)
        .await;
    let (results, engine_time, replayed) = started.finish(&request.sequences, computed).await?;
    let data = request.sequences.iter().zip(results);
    Ok(Served {
        result: Embeddings {
            data: data
                .map(|(sequence, vector)| EmbedData::new(sequence, vector, encoding))
                .collect(),
            model_id: model.served.id,
            model_version: model.served.version,
            operation: Endpoint::Embed,
            dim: model.served.embedding_dim.into(),
            usage: EmbedUsage {
                embeddings: units.n,
            },
        },
        engine_time,
        replayed,
    })
}

fn first_word(digest: &[u8; 32]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(word)
}

/// A model that can serve a request.
pub struct Servable {
    /// The model, as the engine client needs it.
    pub served: ServedModel,
    /// The time that ranking takes for a sequence of the context's full length, in microseconds.
    pub sequence_us: i64,
    /// The operations that the model offers.
    pub endpoints: Vec<Endpoint>,
}

/// Returns the model of a version, if it can serve an operation. `needs_items` is set if the request
/// returns items of the catalog that it does not name.
///
/// # Errors
/// 409 if it does not serve the operation.
pub(super) fn ensure_servable(
    version: &ServedVersion,
    endpoint: Endpoint,
    needs_items: bool,
) -> Result<Servable> {
    let ServedVersion { file, package } = version;
    if !file.endpoints.contains(&endpoint) {
        let message = format!("The model does not offer {endpoint}.");
        return Err(Error::invalid_state(Resource::Model, message).with_details(
            Details::EndpointNotOffered {
                endpoints: file.endpoints.clone(),
            },
        ));
    }
    let Some(package) = package else {
        let message = "The model was published as a card, without a package that can be served.";
        return Err(Error::invalid_state(Resource::Model, message).with_details(Details::NoEngine));
    };
    let served = package.served_model(file)?;
    if needs_items && !served.returns_items {
        let message = "No tokenizer is fitted, so the model cannot return items of a catalog. \
                       `embed`, and `predict` with options, still work.";
        return Err(Error::invalid_state(Resource::Model, message)
            .with_details(Details::TokenizerNotFitted));
    }
    Ok(Servable {
        sequence_us: package.sequence_us,
        served,
        endpoints: file.endpoints.clone(),
    })
}

/// Returns the 409 for a variant of an operation that the model's engine does not compute.
pub(super) fn not_offered(model: &Servable, why: &str) -> Error {
    let message = format!("The model does not offer this variant of the operation: {why}.");
    Error::invalid_state(Resource::Model, message).with_details(Details::EndpointNotOffered {
        endpoints: model.endpoints.clone(),
    })
}

/// The work that a request is for the engine.
#[derive(Debug, Clone, Copy)]
struct Work {
    units: Units,
    /// The number of times that a sequence goes through the network.
    encodings: u32,
    /// Set if the request returns items of the catalog that it does not name.
    needs_items: bool,
    /// The memory for one sequence's result, in bytes.
    result_bytes: u64,
}

/// Memory that an item in a result takes, in bytes: its id and its score, in the engine's response, in
/// the result and in the response. Item ids may have up to 512 bytes, but have 20 usually.
const RESULT_ITEM_BYTES: u64 = 512;

/// Memory that a vector in a result takes, in bytes: 2,048 numbers with up to 12 characters each.
const RESULT_VECTOR_BYTES: u64 = 64 * 1024;

/// A valid request.
struct Request<'a> {
    endpoint: Endpoint,
    model_id: &'a str,
    model_version: Option<String>,
    sequences: Vec<Sequence<'a>>,
    /// The idempotency key, and the digest of the request.
    idempotency: Option<(String, [u8; 32])>,
    room: SharedReservation,
}

impl<'a> Request<'a> {
    /// Validates the fields that all requests have.
    ///
    /// # Errors
    /// 413 if there are too many sequences, otherwise all field errors.
    fn new(
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
    fn longest_ranking(&self, top_k: Option<u32>) -> u64 {
        let options = self.sequences.iter().map(|sequence| {
            let options = sequence.options.as_ref();
            options.map_or(0, |options| options.len() as u64)
        });
        let all = options.max().unwrap_or(0).max(u64::from(TOP_K.0));
        top_k.map_or(all, u64::from)
    }

    fn units(&self, unit: Unit, each: i64) -> Units {
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
    async fn start(
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
