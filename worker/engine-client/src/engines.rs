//! The client of all engines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::engine_address::EngineAddress;
use assay_core::model::error::{Error, Result};
use assay_core::model::sequence::Sequence;
use assay_core::model::served_model::{CodeOutputs, Profile, ServedModel};
use assay_core::model::serving::{
    Continuations, EmbedOptions, GenerateMode, GenerateOptions, PredictOptions, Ranking, Refusal,
    Vector,
};
use assay_core::runtime::artifacts::Artifacts;
use tokio::time::Instant;

use crate::by_prediction::Predictor;
use crate::calls::{Admitted, Engine, Priority};
use crate::checks::Rows;
use crate::code_calls::Codes;
use crate::early::EarlyEvents;
use crate::item_tables::ItemTables;
use crate::replicas::Replicas;
use crate::{ids, permits, recovery};

/// A call's options that do not belong to the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    /// The call's priority.
    pub priority: Priority,
    /// The longest time until the result, waiting included.
    pub deadline: Duration,
}

/// A call's results, in its sequences' order.
#[derive(Debug, Clone, PartialEq)]
pub struct Computed<T> {
    /// Each sequence's result, or the reason why it has none.
    pub results: Vec<Result<T, Refusal>>,
    /// The time that the engine took, transfer included.
    pub engine_time: Duration,
}

/// An engine's state, for the admin port and for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineHealth {
    /// The name of the engine.
    pub name: String,
    /// The call count in progress.
    pub permits_used: usize,
    /// `true` while calls are refused because of earlier failures.
    pub is_circuit_open: bool,
}

/// An installation's engines, by name. Clones share connections, permits and circuit breakers.
#[derive(Clone)]
pub struct Engines(Arc<Inner>);

struct Inner {
    by_name: BTreeMap<String, Arc<Engine>>,
    item_tables: ItemTables,
    cores: usize,
}

impl Engines {
    /// Creates a client for these engines. It connects at each engine's first call.
    ///
    /// `artifacts` has the item tables for models whose engine reads codes. `cores` is the core
    /// count of an engine; each gets four permits per core.
    pub fn new(addresses: &[EngineAddress], artifacts: Artifacts, cores: usize) -> Self {
        let engine = |address: &EngineAddress| {
            let engine = Engine::new(&address.name, Replicas::new(address.clone()), cores);
            (address.name.clone(), Arc::new(engine))
        };
        let by_name: BTreeMap<_, _> = addresses.iter().map(engine).collect();
        Self(Arc::new(Inner {
            by_name,
            item_tables: ItemTables::new(artifacts),
            cores,
        }))
    }

    /// Returns the engine names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.by_name.keys().map(String::as_str)
    }

    /// Returns how many cores an engine is assumed to have.
    pub fn cores(&self) -> usize {
        self.0.cores
    }

    /// Returns the most calls to one engine that are in progress at once.
    pub fn permits(&self) -> usize {
        permits::permits_max(self.0.cores)
    }

    /// Returns each engine's state.
    pub fn health(&self) -> Vec<EngineHealth> {
        let engines = self.0.by_name.values();
        let health = engines.map(|engine| EngineHealth {
            name: engine.name().to_owned(),
            permits_used: engine.permits().used(),
            is_circuit_open: engine.breaker().is_open(),
        });
        health.collect()
    }

    /// Ranks items for each sequence by their probability of being next.
    ///
    /// The events must be in time order. Calls have at most 64 sequences: more are sent in
    /// several calls, one after the other.
    ///
    /// # Errors
    /// - `unavailable`: no permit was free, the circuit breaker is open, the engine did not respond
    ///   within the deadline, or it reported that it is unavailable.
    /// - `internal`: the engine returned an invalid result or another error, or the settings name
    ///   no such engine. The cause has the engine's text.
    pub async fn predict(
        &self,
        model: &ServedModel,
        sequences: &[Sequence<'_>],
        options: &PredictOptions,
        call: CallOptions,
    ) -> Result<Computed<Ranking>> {
        let mut operation = self.start(model, call).await?;
        let admitted = &mut operation.admitted;
        let results = match &operation.codes {
            Some(codes) => codes.predict(admitted, sequences, options).await?,
            None => ids::predict(admitted, model, sequences, options).await?,
        };
        Ok(operation.finish(results))
    }

    /// Continues each sequence.
    ///
    /// # Errors
    /// As [`Engines::predict`].
    pub async fn generate(
        &self,
        model: &ServedModel,
        sequences: &[Sequence<'_>],
        options: &GenerateOptions,
        call: CallOptions,
    ) -> Result<Computed<Continuations>> {
        self.generate_early(model, sequences, options, call, None)
            .await
    }

    /// Continues each sequence. Sends events to `early` as soon as they are known: models that only
    /// predict are called once for each event. The other events are in the result only.
    ///
    /// # Errors
    /// As [`Engines::predict`].
    pub async fn generate_early(
        &self,
        model: &ServedModel,
        sequences: &[Sequence<'_>],
        options: &GenerateOptions,
        call: CallOptions,
        early: Option<&EarlyEvents>,
    ) -> Result<Computed<Continuations>> {
        let mut operation = self.start(model, call).await?;
        let admitted = &mut operation.admitted;
        let results = match (operation.codes.take(), &model.profile) {
            (Some(codes), Profile::Codes { outputs, .. }) if returns_beam(outputs, options) => {
                codes.continuations(admitted, sequences, options).await?
            }
            (Some(codes), _) => {
                let predictor = Predictor::Codes(codes);
                let generated = predictor.generate(admitted, sequences, options, early);
                generated.await?
            }
            (
                None,
                Profile::Ids {
                    generates: false, ..
                },
            ) => {
                let predictor = Predictor::Ids(model);
                let generated = predictor.generate(admitted, sequences, options, early);
                generated.await?
            }
            (None, _) => ids::generate(admitted, model, sequences, options).await?,
        };
        Ok(operation.finish(results))
    }

    /// Computes each sequence's vector.
    ///
    /// # Errors
    /// As [`Engines::predict`].
    pub async fn embed(
        &self,
        model: &ServedModel,
        sequences: &[Sequence<'_>],
        options: &EmbedOptions,
        call: CallOptions,
    ) -> Result<Computed<Vector>> {
        let mut operation = self.start(model, call).await?;
        let admitted = &mut operation.admitted;
        let results = match &operation.codes {
            Some(codes) => codes.embed(admitted, sequences, options).await?,
            None => ids::embed(admitted, model, sequences, options).await?,
        };
        Ok(operation.finish(results))
    }

    /// Finds a model's engine, and acquires a permit.
    async fn start<'m>(&self, model: &'m ServedModel, call: CallOptions) -> Result<Operation<'m>> {
        let started = Instant::now();
        let deadline = started + call.deadline;
        let engine = self.engine(model)?;
        let codes = match &model.profile {
            Profile::Codes { name, outputs } => {
                let items = tokio::time::timeout_at(deadline, self.0.item_tables.get(model))
                    .await
                    .map_err(|_| Error::unavailable("the item table was not read in time"))??;
                Some(Codes::new(model, name, *outputs, items))
            }
            Profile::Embedded | Profile::Ids { .. } => None,
        };
        let admitted = engine.admit(call.priority, started, deadline).await?;
        Ok(Operation { admitted, codes })
    }

    pub(crate) fn engine(&self, model: &ServedModel) -> Result<&Arc<Engine>> {
        let Some(engine) = self.0.by_name.get(&model.engine) else {
            return Err(Error::internal(format!(
                "the setting ASSAY_ENGINES names no engine {:?}, which version {} of model {} needs",
                model.engine, model.version, model.id
            )));
        };
        if let Some(failed) = engine.first_use() {
            tokio::spawn(recovery::watch(Arc::downgrade(engine), failed));
        }
        Ok(engine)
    }
}

/// An operation in progress.
struct Operation<'m> {
    admitted: Admitted,
    /// The client for a model whose engine reads codes.
    codes: Option<Codes<'m>>,
}

impl Operation<'_> {
    fn finish<T>(self, results: Rows<T>) -> Computed<T> {
        Computed {
            results,
            engine_time: self.admitted.engine_time(),
        }
    }
}

/// Returns `true` if the output `continuations` has what the options request: it is a beam, whose
/// items can repeat.
fn returns_beam(outputs: &CodeOutputs, options: &GenerateOptions) -> bool {
    outputs.continuations && options.mode == GenerateMode::Beam && !options.exclude_seen
}
