//! The dispatcher: reclaims the jobs of dead or overdue workers, and notifies workers of queued
//! jobs.
//!
//! Every API process runs one. An advisory lock makes one of them the leader of each round. A round
//! starts when a job was stored, and every half second. The next round continues where a round
//! stops. Notifications that were recorded when their jobs were stored are sent without the lock:
//! see `stored_jobs`.

use std::time::{Duration, Instant};

use assay_core::model::job::{FailureCode, JobType};
use assay_core::model::span_context::SpanContext;
use assay_core::runtime::job_queue::{JobNotifier, QueueState};
use assay_core::runtime::prometheus;
use assay_core::runtime::redis_connection::Connection;
use assay_core::runtime::trace_export::{MessagingOperation, Span, Spans};
use assay_core::store::job_notifications::{self, JobNotification};
use assay_core::store::leases::{self, ReclaimedJob};
use assay_core::store::notifications::Notifications;
use assay_core::store::{Connection as _, PgConnection, TaskConnections, within_response_timeout};
use assay_core::{BestEffort as _, Result};
use tokio::sync::watch;

use crate::app::App;

/// Longest time between two rounds, and shortest time between two sweeps.
const TICK: Duration = Duration::from_millis(500);

/// Shortest time between two rounds, unless the first one notifies of a single job. Under load, jobs
/// are dispatched, claimed and finished in groups, which costs each much less.
const ROUND_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time between two rounds while more jobs wait than the queue has room for: workers have
/// emptied it after a third of a second.
const BACKLOG_TICK: Duration = Duration::from_millis(50);

/// Time between two removals of finished notifications from Redis.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);

/// The jobs that a round reclaims.
#[derive(Debug, Clone, Copy)]
enum Sweep {
    None,
    /// Those past their deadline.
    Overdue,
    /// Those past their deadline, and those whose worker has no live lease.
    All,
}

/// The reason for a round.
enum StartedBy {
    /// Jobs were stored with these notifications, which have yet to be sent.
    Notified(Vec<JobNotification>),
    /// Jobs were stored that the round must pick.
    Stored,
    /// The clock, or another process that has stored jobs.
    Other,
}

struct Dispatcher {
    db: TaskConnections,
    spans: Spans,
    notifier: JobNotifier,
    /// The time of the last removal of finished notifications.
    tidied_at: Option<Instant>,
    /// The time since which every round has succeeded.
    rounds_succeed_since: Option<Instant>,
    /// Set unless the last round has picked all jobs that waited for a notification.
    others_wait: bool,
    /// The longest time until the next round.
    tick: Duration,
}

/// Dispatches until `stop` is set.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) -> Result<()> {
    let settings = &app.settings.common;
    let connection = Connection::new(&settings.redis_url, Duration::from_millis(500))?;
    let notifier = JobNotifier::new(connection, &settings.redis_prefix);
    let db = app.task_connections.clone();
    let spans = app.spans.clone();
    let mut notifications =
        Notifications::new(app.db.clone(), job_notifications::SUBMITTED_CHANNEL);
    let mut dispatcher = Dispatcher {
        db,
        spans,
        notifier,
        tidied_at: None,
        rounds_succeed_since: None,
        others_wait: true,
        tick: TICK,
    };
    let mut swept_at = None::<Instant>;
    let mut started_by = StartedBy::Other;
    loop {
        let interval = match &started_by {
            StartedBy::Notified(notifications) if notifications.len() == 1 => Duration::ZERO,
            _ => ROUND_INTERVAL,
        };
        let next_round = tokio::time::Instant::now() + interval;
        let is_sweep_due = swept_at.is_none_or(|at| at.elapsed() >= TICK);
        if is_sweep_due {
            swept_at = Some(Instant::now());
        }
        let room = dispatcher.round(is_sweep_due, &started_by).await;
        app.stored_jobs.set_room(*room.as_ref().unwrap_or(&0));
        room.map(drop)
            .best_effort("running a round of the dispatcher; the next one continues");
        tokio::time::sleep_until(next_round).await;
        started_by = tokio::select! {
            stored = app.stored_jobs.to_send() => StartedBy::Notified(stored),
            () = app.stored_jobs.to_pick() => StartedBy::Stored,
            _ = notifications.next() => {
                notifications.discard_buffered();
                StartedBy::Other
            }
            () = tokio::time::sleep(dispatcher.tick) => StartedBy::Other,
            _ = stop.wait_for(|stop| *stop) => {
                app.stored_jobs.set_room(0);
                return Ok(());
            }
        };
    }
}

impl Dispatcher {
    /// Runs a round. Returns the number of jobs that may be stored with their notifications until
    /// the next one.
    async fn round(&mut self, is_sweep_due: bool, started_by: &StartedBy) -> Result<usize> {
        if let StartedBy::Notified(notifications) = started_by {
            self.send(notifications).await?;
            if !is_sweep_due {
                return Ok(self.room_for_stored_jobs(&self.state().await?));
            }
        }
        // While Redis is unavailable, no job is picked, because no notification could be sent: the
        // workers poll.
        let state = self.state().await;
        let room = state.as_ref().map_or(0, QueueState::room_for_jobs);
        // A worker that could not renew its lease because the database was unavailable is not dead.
        let leases_count = self
            .rounds_succeed_since
            .is_some_and(|since| since.elapsed() > leases::LEASE_DURATION);
        let sweep = match (is_sweep_due, leases_count) {
            (false, _) => Sweep::None,
            (true, false) => Sweep::Overdue,
            (true, true) => Sweep::All,
        };
        let rounds_succeed_since = self
            .rounds_succeed_since
            .take()
            .unwrap_or_else(Instant::now);
        // The timeout covers a connection that is dead but not closed, on which the round would
        // never end.
        let decided = self.decide(sweep, room);
        let Some((reclaimed, notifications)) = within_response_timeout(decided).await? else {
            self.rounds_succeed_since = Some(rounds_succeed_since);
            self.others_wait = true;
            if matches!(started_by, StartedBy::Stored) {
                // The leader may have looked for jobs before these were submitted.
                within_response_timeout(
                    self.db
                        .execute(async |db| job_notifications::notify(db).await),
                )
                .await?;
            }
            return Ok(0);
        };
        self.others_wait = notifications.len() >= room;
        self.tick = if self.others_wait && state.is_ok() {
            BACKLOG_TICK
        } else {
            TICK
        };
        self.report_reclaimed(&reclaimed);
        // Set before the error of Redis is returned: leases depend on the database only.
        self.rounds_succeed_since = Some(rounds_succeed_since);
        let state = state?;
        if !notifications.is_empty() {
            self.send(&notifications).await?;
        }
        if self
            .tidied_at
            .is_none_or(|at| at.elapsed() >= TIDY_INTERVAL)
        {
            self.tidied_at = Some(Instant::now());
            self.notifier.clean_up().await?;
        }
        Ok(self.room_for_stored_jobs(&state))
    }

    /// Returns the number of jobs that may be stored with their notifications. Each is counted as a
    /// task of its own, because the jobs of a task are only known when it is sent.
    const fn room_for_stored_jobs(&self, state: &QueueState) -> usize {
        if self.others_wait { 0 } else { state.room }
    }

    async fn send(&self, notifications: &[JobNotification]) -> Result<()> {
        self.notifier.notify(notifications).await?;
        let (first, repeated): (Vec<_>, Vec<_>) = notifications
            .iter()
            .partition(|notification| notification.dispatch_no == 1);
        metrics::counter!(prometheus::JOB_NOTIFICATIONS, "kind" => "first")
            .increment(first.len() as u64);
        metrics::counter!(prometheus::JOB_NOTIFICATIONS, "kind" => "repeated")
            .increment(repeated.len() as u64);
        Ok(())
    }

    /// Makes the changes of a round in the database: sweeps, and picks at most `room` jobs to notify workers of.
    /// Returns `None` if another process leads the round.
    async fn decide(
        &self,
        sweep: Sweep,
        room: usize,
    ) -> Result<Option<(Vec<ReclaimedJob>, Vec<JobNotification>)>> {
        let is_for_all_workers = match sweep {
            Sweep::None if room == 0 => return Ok(Some(Default::default())),
            Sweep::None => {
                let pick = async |db: &mut PgConnection| {
                    job_notifications::pick_jobs_to_notify(db, room).await
                };
                let picked = self.db.execute(pick).await?;
                return Ok(picked.map(|notifications| (Vec::new(), notifications)));
            }
            Sweep::Overdue => false,
            Sweep::All => true,
        };
        let sweep_and_pick = async |db: &mut PgConnection| {
            let mut transaction = db.begin().await?;
            if !job_notifications::try_lead(&mut transaction).await? {
                transaction.rollback().await?;
                return Ok(None);
            }
            let reclaimed = leases::sweep(&mut transaction, is_for_all_workers).await?;
            let picked = job_notifications::pick_jobs_to_notify(&mut *transaction, room).await?;
            transaction.commit().await?;
            Ok(Some((reclaimed, picked.unwrap_or_default())))
        };
        self.db.execute(sweep_and_pick).await
    }

    /// Logs, counts and traces the attempts that were ended by the sweep: their workers cannot.
    fn report_reclaimed(&self, reclaimed: &[ReclaimedJob]) {
        if !reclaimed.is_empty() {
            let failed = reclaimed.iter().filter(|job| job.failed).count();
            tracing::warn!(
                requeued = reclaimed.len() - failed,
                failed,
                "jobs reclaimed from dead or overdue workers"
            );
        }
        for ReclaimedJob {
            job_id,
            r#type,
            attempt,
            overdue,
            failed,
            eval_failed,
            started_at,
            ended_at,
            trace_id,
            span_id,
        } in reclaimed
        {
            let outcome = if *failed { "failed" } else { "requeued" };
            let (result, code) = if *overdue {
                ("timeout", FailureCode::Timeout)
            } else {
                ("lost", FailureCode::Internal)
            };
            metrics::counter!(prometheus::JOBS_RECLAIMED, "outcome" => outcome).increment(1);
            metrics::counter!(prometheus::JOB_ATTEMPTS, "result" => result).increment(1);
            if *failed {
                prometheus::count_finished_job(*r#type, code.as_str());
            }
            if *eval_failed {
                let code = FailureCode::InputUnavailable;
                prometheus::count_finished_job(JobType::Eval, code.as_str());
            }
            tracing::info!(%job_id, attempt, trace_id, result, outcome, "job reclaimed");
            if let Some(parent) = span_id
                .as_deref()
                .and_then(|span_id| SpanContext::read(trace_id, span_id))
            {
                let span_context = parent.child();
                self.spans.export(span_context.trace_id, || {
                    let span = Span::for_job(
                        MessagingOperation::Process,
                        span_context,
                        Some(parent.span_id),
                        job_id,
                        *started_at,
                        *ended_at,
                    );
                    span.with_attempt(*attempt, result)
                });
            }
        }
    }

    /// Returns the state of the queue. If Redis has lost its data, resets all notifications, so that
    /// they are sent again.
    async fn state(&self) -> Result<QueueState> {
        let state = self.notifier.state().await?;
        if state.lost_data {
            let reset = within_response_timeout(
                self.db
                    .execute(async |db| job_notifications::reset_notifications(db).await),
            )
            .await?;
            tracing::info!(
                reset,
                "Redis lost its data, workers are notified of every queued job again"
            );
        }
        Ok(state)
    }
}
