//! Calls to one engine: permits, circuit breaker, deadline, and one retry.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use assay_core::model::error::{Error, Result};
use assay_core::runtime::prometheus;
use assay_inference::ids;
use assay_inference::v2::{ModelInferRequest, ModelInferResponse};
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status};

use crate::breaker::{Breaker, Pass};
use crate::failure::{Effect, Failure, is_unsent};
use crate::permits::{Permit, Permits};
use crate::replicas::{Replica, Replicas};

/// The `outcome` label's values.
const OUTCOMES: [&str; 10] = [
    "ok",
    "saturated",
    "circuit_open",
    "timeout",
    "unavailable",
    "exhausted",
    "rejected",
    "error",
    "invalid",
    "cancelled",
];

/// The wait before a job's call is sent again because the engine has no permits for it.
const JOB_RETRY_DELAY: Duration = Duration::from_millis(250);

/// One engine, which all calls to it share.
pub struct Engine {
    name: Arc<str>,
    permits: Permits,
    breaker: Mutex<Breaker>,
    replicas: Replicas,
    /// Notified when a replica has failed.
    failed: Arc<Notify>,
    is_used: AtomicBool,
    /// The next call's id.
    next_id: AtomicU64,
}

/// A call's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request waits for the result. Without a free permit the call fails at once.
    Synchronous,
    /// A job's chunk, which waits for a permit until its deadline. Jobs use at most half an
    /// engine's permits, here and in the embedded engine.
    Job,
}

/// An operation that has a permit. It can call the engine several times, one call after the other.
pub struct Admitted {
    engine: Arc<Engine>,
    _permit: Permit,
    priority: Priority,
    deadline: Instant,
    /// The time from the operation's start to the deadline.
    whole: Duration,
    engine_time: Duration,
}

impl Engine {
    /// Creates an engine's client. It connects at the first call.
    pub fn new(name: &str, replicas: Replicas, cores: usize) -> Self {
        let engine = Self {
            name: name.into(),
            permits: Permits::new(cores),
            breaker: Mutex::default(),
            replicas,
            failed: Arc::default(),
            is_used: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
        };
        for outcome in OUTCOMES {
            engine.count(outcome, 0);
        }
        engine.record_circuit(false);
        engine
    }

    /// Returns the engine's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the engine's permits.
    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Returns the engine's circuit breaker.
    pub fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the engine's replicas.
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Returns the notification about failed replicas when the engine is first used, and `None`
    /// later: one task waits for it.
    pub fn first_use(&self) -> Option<Arc<Notify>> {
        let is_first = !self.is_used.swap(true, Ordering::Relaxed);
        is_first.then(|| Arc::clone(&self.failed))
    }

    /// Acquires a permit for an operation that ends at `deadline`.
    pub async fn admit(
        self: &Arc<Self>,
        priority: Priority,
        started: Instant,
        deadline: Instant,
    ) -> Result<Admitted> {
        let permit = match priority {
            Priority::Synchronous => self.permits.try_acquire(),
            Priority::Job => tokio::time::timeout_at(deadline, self.permits.acquire_for_job())
                .await
                .unwrap_or_default(),
        };
        let permit = permit.ok_or_else(|| self.refuse(Failure::Saturated))?;
        self.in_flight().increment(1.0);
        Ok(Admitted {
            engine: Arc::clone(self),
            _permit: permit,
            priority,
            deadline,
            whole: deadline - started,
            engine_time: Duration::ZERO,
        })
    }

    /// Sends a call. It is sent a second time if no connection could be opened.
    async fn send(
        &self,
        request: ModelInferRequest,
        priority: Priority,
        deadline: Instant,
        is_late: bool,
    ) -> Result<ModelInferResponse, Failure> {
        let replica = self.pick(deadline).await?;
        match attempt(&replica, request.clone(), priority, deadline).await {
            Outcome::Unsent(_) => {
                self.record_failure(&replica, true);
                let replica = self.pick(deadline).await?;
                let outcome = attempt(&replica, request, priority, deadline).await;
                self.finish(&replica, outcome, is_late)
            }
            outcome => self.finish(&replica, outcome, is_late),
        }
    }

    async fn pick(&self, deadline: Instant) -> Result<Arc<Replica>, Failure> {
        let picked = tokio::time::timeout_at(deadline, self.replicas.pick()).await;
        picked
            .map_err(|_| Failure::Timeout(String::from("the host was not resolved in time")))?
            .map_err(|status| Failure::from_status(&status))
    }

    fn finish(
        &self,
        replica: &Replica,
        outcome: Outcome,
        is_late: bool,
    ) -> Result<ModelInferResponse, Failure> {
        let failure = match outcome {
            Outcome::Response(response) => {
                replica.succeed();
                return Ok(response);
            }
            Outcome::Unsent(status) => {
                self.record_failure(replica, true);
                return Err(Failure::from_status(&status));
            }
            Outcome::Status(status) => Failure::from_status(&status),
            Outcome::Timeout => Failure::Timeout(String::from("no response within the deadline")),
        };
        match failure {
            // A call that started late says nothing about the replica.
            Failure::Timeout(_) if is_late => {}
            Failure::Timeout(_) => {
                replica.reconnect();
                self.record_failure(replica, false);
            }
            Failure::Unavailable(_) => self.record_failure(replica, false),
            _ => replica.succeed(),
        }
        Err(failure)
    }

    fn record_failure(&self, replica: &Replica, is_down: bool) {
        let address = replica.address();
        tracing::debug!(engine = %self.name, %address, is_down, "call to engine failed");
        replica.fail(is_down);
        self.failed.notify_one();
    }

    /// Records a call's effect on the circuit breaker.
    fn record_effect(&self, pass: Pass, effect: Effect) {
        let now = Instant::now();
        let (mut has_opened, mut has_closed) = (false, false);
        match effect {
            Effect::Success => has_closed = self.breaker().succeed(pass),
            Effect::Failure => has_opened = self.breaker().fail(pass, now),
            Effect::None => self.breaker().release(pass, now),
        }
        if has_opened {
            tracing::warn!(engine = %self.name, "circuit breaker opened");
        }
        if has_closed {
            tracing::info!(engine = %self.name, "circuit breaker closed");
        }
        if has_opened || has_closed {
            self.record_circuit(has_opened);
        }
    }

    fn refuse(&self, failure: Failure) -> Error {
        self.count(failure.outcome(), 1);
        failure.into_error(&self.name)
    }

    fn count(&self, outcome: &'static str, n: u64) {
        metrics::counter!(prometheus::ENGINE_CLIENT_CALLS, "engine" => Arc::clone(&self.name), "outcome" => outcome)
            .increment(n);
    }

    fn in_flight(&self) -> metrics::Gauge {
        metrics::gauge!(prometheus::ENGINE_CLIENT_CALLS_IN_FLIGHT, "engine" => Arc::clone(&self.name))
    }

    fn record_circuit(&self, is_open: bool) {
        metrics::gauge!(prometheus::ENGINE_CLIENT_CIRCUIT_OPEN, "engine" => Arc::clone(&self.name))
            .set(f64::from(u8::from(is_open)));
    }
}

/// One attempt's end.
enum Outcome {
    Response(ModelInferResponse),
    /// No connection could be opened.
    Unsent(Status),
    Status(Status),
    Timeout,
}

async fn attempt(
    replica: &Replica,
    message: ModelInferRequest,
    priority: Priority,
    deadline: Instant,
) -> Outcome {
    let mut request = Request::new(message);
    if priority == Priority::Job {
        let job = MetadataValue::from_static(ids::PRIORITY_JOB);
        request.metadata_mut().insert(ids::PRIORITY_HEADER, job);
    }
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    let mut client = replica.client();
    match tokio::time::timeout_at(deadline, client.model_infer(request)).await {
        Ok(Ok(response)) => Outcome::Response(response.into_inner()),
        Ok(Err(status)) if is_unsent(&status) => Outcome::Unsent(status),
        Ok(Err(status)) => Outcome::Status(status),
        Err(_) => Outcome::Timeout,
    }
}

impl Admitted {
    /// Calls the engine, and reads the response with `read`, which checks it.
    pub async fn infer<T>(
        &mut self,
        mut request: ModelInferRequest,
        read: impl FnOnce(&ModelInferResponse) -> Result<T, Failure>,
    ) -> Result<T> {
        let engine = &self.engine;
        let mut started = Instant::now();
        let pass = engine.breaker().admit(started);
        let pass = pass.ok_or_else(|| engine.refuse(Failure::CircuitOpen))?;
        let mut in_progress = InProgress { engine, pass };
        request.id = engine.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let (id, version) = (request.id.clone(), request.model_version.clone());
        // A job waits until the engine has permits for it.
        let waiting = (self.priority == Priority::Job).then(|| request.clone());
        let (response, is_late) = loop {
            // An operation with several calls, or one that waited, has less time left. That its
            // last call exceeds the deadline is not the engine's failure.
            let is_late = (self.deadline - started) * 2 < self.whole;
            let sent = engine.send(request, self.priority, self.deadline, is_late);
            match (sent.await, &waiting) {
                (Err(failure @ (Failure::Shed(_) | Failure::Exhausted(_))), Some(again))
                    if Instant::now() + JOB_RETRY_DELAY < self.deadline =>
                {
                    // Not during the wait: other calls may try the circuit.
                    in_progress.pause(&failure);
                    tokio::time::sleep(JOB_RETRY_DELAY).await;
                    started = Instant::now();
                    let pass = engine.breaker().admit(started);
                    let pass = pass.ok_or_else(|| engine.refuse(Failure::CircuitOpen))?;
                    in_progress = InProgress { engine, pass };
                    request = again.clone();
                }
                (response, _) => break (response, is_late),
            }
        };
        let result = response.and_then(|response| {
            check_identity(&response, &id, &version)?;
            read(&response)
        });
        let time = started.elapsed();
        self.engine_time += time;
        in_progress.finish(result.as_ref().err(), is_late, time);
        result.map_err(|failure| failure.into_error(&engine.name))
    }

    /// Returns all calls' time so far.
    pub fn engine_time(&self) -> Duration {
        self.engine_time
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.engine.in_flight().decrement(1.0);
    }
}

/// Checks that a response belongs to the call and to the version. Engines may leave both out.
fn check_identity(response: &ModelInferResponse, id: &str, version: &str) -> Result<(), Failure> {
    if !response.id.is_empty() && response.id != id {
        return Err(Failure::Invalid(String::from(
            "the response has the id of another call",
        )));
    }
    if !response.model_version.is_empty() && response.model_version != version {
        return Err(Failure::Invalid(format!(
            "the response is of version {:?}",
            response.model_version
        )));
    }
    Ok(())
}

/// A call in progress. Dropping it means that the caller has cancelled the call.
struct InProgress<'e> {
    engine: &'e Engine,
    pass: Pass,
}

impl InProgress<'_> {
    /// Ends the call without an outcome, because it will be sent again.
    fn pause(self, failure: &Failure) {
        self.engine.record_effect(self.pass, failure.effect(false));
        std::mem::forget(self);
    }

    fn finish(self, failure: Option<&Failure>, is_late: bool, time: Duration) {
        let Self { engine, pass } = self;
        std::mem::forget(self);
        let effect = failure.map_or(Effect::Success, |failure| failure.effect(is_late));
        engine.record_effect(pass, effect);
        engine.count(failure.map_or("ok", Failure::outcome), 1);
        metrics::histogram!(prometheus::ENGINE_CLIENT_CALL_SECONDS, "engine" => Arc::clone(&engine.name))
            .record(time);
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.engine.breaker().release(self.pass, Instant::now());
        self.engine.count("cancelled", 1);
    }
}
