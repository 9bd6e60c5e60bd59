//! The synchronous serving operations: `POST /v1/models/{model_id}/predict`, `generate` and
//! `embed`.
//!
//! A request is validated, its model is found, its units are charged, and then the engine is
//! called. A request that gets no result is refunded, also if its client disconnects.

use assay_core::Result;
use assay_core::model::error_details::Endpoint;
use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::random;
use assay_core::model::sequence::Sequence;
use assay_core::model::serving::{
    Continuations, EmbedData, EmbedUsage, Embeddings, GenerateData, GenerateMode, GenerateOptions,
    GenerateUsage, Generations, Pooling, PredictData, PredictUsage, Predictions, Seed, Served,
    Unit, Units,
};
use assay_core::model::serving_options::{EmbedFields, GenerateFields, PredictFields};
use assay_engine_client::{CallOptions, Computed, EarlyEvents};
use assay_eval::FieldError;
use sha2::{Digest as _, Sha256};

use super::servable_model::{Servable, not_offered};
pub use super::serving_request::ServeFields;
use super::serving_request::{RESULT_ITEM_BYTES, RESULT_VECTOR_BYTES, Request, Started, Work};
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;

/// The number of continuations that `generate` follows at once in the mode `beam`.
const BEAM: u32 = 10;

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
