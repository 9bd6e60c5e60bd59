//! The dispatcher: reclaims dead or overdue workers' jobs, and notifies workers about queued
//! jobs.
//!
//! Every API process runs one. An advisory lock makes one process each round's leader. A round
//! starts when a job was stored, and every half second. The next round continues where a round
//! stops. Notifications that were recorded when their jobs were stored are sent without the lock:
//! see `stored_jobs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use assay_core::model::job::{FailureCode, JobType};
use assay_core::model::span_context::SpanContext;
use assay_core::runtime::job_queue::{JobNotifier, QueueState};
use assay_core::runtime::prometheus;
use assay_core::runtime::redis_connection::Connection;
use assay_core::runtime::trace_export::{MessagingOperation, Span};
use assay_core::store::job_notifications::{self, JobNotification};
use assay_core::store::leases::{self, ReclaimedJob};
use assay_core::store::notifications::Notifications;
use assay_core::store::queue::BusyJobs;
use assay_core::store::{Connection as _, PgConnection, queue, within_response_timeout};
use assay_core::{BestEffort as _, OrgId, Result};
use tokio::sync::watch;

use crate::app::App;
use crate::queue::order::{ChoiceCounts, Order, Room, choose};

/// Longest time between two rounds, and shortest time between two sweeps.
const TICK: Duration = Duration::from_millis(500);

/// Shortest time between two rounds, unless the first one is about a single job. Under load, jobs
/// are dispatched, claimed and finished in groups, which costs each much less.
const ROUND_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time from the pause after a round to the next one while jobs wait for a slot, unless one
/// finishes earlier.
const BACKLOG_TICK: Duration = Duration::from_millis(50);

/// The age at which recent jobs' costs are read again. They are a minute's rows.
const RECENT_COSTS_AGE_MAX: Duration = Duration::from_secs(5);

/// Shortest time between two records that notifications can be sent.
const NOTIFIER_RECORD_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two removals that take finished notifications from Redis.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

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
    app: App,
    notifier: JobNotifier,
    /// The time when finished notifications were last removed.
    cleaned_up_at: Option<Instant>,
    /// The time since which every round has succeeded.
    rounds_succeed_since: Option<Instant>,
    /// Set unless no job waited for a notification in the last round.
    others_wait: bool,
    /// The longest time until the next round.
    tick: Duration,
    /// The time for which no round is needed, because every slot has jobs.
    pause: Duration,
    /// Of the jobs that this process has chosen.
    counts: ChoiceCounts,
    recent_costs: Option<RecentCosts>,
    /// The time at which it was last recorded that notifications can be sent.
    notifier_recorded_at: Option<Instant>,
}

/// The costs of each organization's jobs that started recently.
struct RecentCosts {
    read_at: Instant,
    /// Those for jobs that had ended.
    ended: HashMap<OrgId, i64>,
    /// Those for jobs that occupied workers, and for those that this process has chosen since.
    started: HashMap<OrgId, i64>,
}

/// A round's changes in the database.
#[derive(Default)]
struct Decided {
    reclaimed: Vec<ReclaimedJob>,
    notifications: Vec<JobNotification>,
    /// Set if jobs wait for a slot.
    others_wait: bool,
    /// The time for which no round is needed, because every slot has jobs.
    pause: Duration,
    /// The counts with this round's jobs. `None` if it did not look for jobs.
    counts: Option<ChoiceCounts>,
}

/// Dispatches until `stop` is set.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) -> Result<()> {
    let settings = &app.settings.common;
    let connection = Connection::new(&settings.redis_url, Duration::from_millis(500))?;
    let notifier = JobNotifier::new(connection, &settings.redis_prefix);
    let mut notifications = Notifications::new(
        app.db.requests.clone(),
        job_notifications::SUBMITTED_CHANNEL,
    );
    let mut dispatcher = Dispatcher {
        app: app.clone(),
        notifier,
        cleaned_up_at: None,
        rounds_succeed_since: None,
        others_wait: true,
        tick: TICK,
        pause: Duration::ZERO,
        counts: ChoiceCounts::default(),
        recent_costs: None,
        notifier_recorded_at: None,
    };
    let mut swept_at = None::<Instant>;
    let mut started_by = StartedBy::Other;
    loop {
        let interval = match &started_by {
            StartedBy::Notified(notifications) if notifications.len() == 1 => Duration::ZERO,
            _ => ROUND_INTERVAL,
        };
        let began = tokio::time::Instant::now();
        let is_sweep_due = swept_at.is_none_or(|at| at.elapsed() >= TICK);
        if is_sweep_due {
            swept_at = Some(Instant::now());
        }
        let room = dispatcher.round(is_sweep_due, &started_by).await;
        app.jobs.stored.set_room(*room.as_ref().unwrap_or(&0));
        room.map(drop)
            .best_effort("running a round of the dispatcher; the next one continues");
        let mut next_round = began + interval;
        if dispatcher.others_wait {
            // A round with a long backlog takes longer. At most half the time is spent in rounds.
            let pause = dispatcher.pause.max(began.elapsed());
            next_round = next_round.max(tokio::time::Instant::now() + pause);
        }
        tokio::time::sleep_until(next_round).await;
        started_by = tokio::select! {
            stored = app.jobs.stored.to_send() => StartedBy::Notified(stored),
            () = app.jobs.stored.to_pick() => StartedBy::Stored,
            () = app.jobs.updates.finished(), if dispatcher.others_wait => StartedBy::Other,
            _ = notifications.next() => {
                notifications.discard_buffered();
                StartedBy::Other
            }
            () = tokio::time::sleep(dispatcher.tick) => StartedBy::Other,
            _ = stop.wait_for(|stop| *stop) => {
                app.jobs.stored.set_room(0);
                return Ok(());
            }
        };
    }
}

impl Dispatcher {
    /// Runs a round. Returns how many jobs may be stored with their notifications until
    /// the next one.
    async fn round(&mut self, is_sweep_due: bool, started_by: &StartedBy) -> Result<usize> {
        if let StartedBy::Notified(notifications) = started_by {
            self.send(notifications).await?;
            if !is_sweep_due {
                return Ok(self.room_for_stored_jobs(&self.state().await?));
            }
        }
        // While Redis is unavailable, no job is chosen, because no notification could be sent: the
        // workers poll.
        let state = self.state().await;
        let tasks = state.as_ref().ok().map(|state| state.room);
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
        let decided = self.decide(sweep, tasks);
        let Some(decided) = within_response_timeout(decided).await? else {
            self.rounds_succeed_since = Some(rounds_succeed_since);
            self.others_wait = true;
            self.pause = Duration::ZERO;
            if matches!(started_by, StartedBy::Stored) {
                // The leader may have looked for jobs before these were submitted.
                within_response_timeout(
                    self.app
                        .db
                        .tasks
                        .execute(async |db| job_notifications::notify(db).await),
                )
                .await?;
            }
            return Ok(0);
        };
        // The transaction has been committed.
        self.counts = decided.counts.unwrap_or(self.counts);
        self.others_wait = decided.others_wait;
        self.pause = decided.pause;
        self.tick = if self.others_wait && state.is_ok() {
            BACKLOG_TICK
        } else {
            TICK
        };
        self.report_reclaimed(&decided.reclaimed);
        // Set before Redis's error is returned: leases depend on the database only.
        self.rounds_succeed_since = Some(rounds_succeed_since);
        let state = state?;
        if !decided.notifications.is_empty() {
            self.send(&decided.notifications).await?;
        }
        if self
            .cleaned_up_at
            .is_none_or(|at| at.elapsed() >= CLEANUP_INTERVAL)
        {
            self.cleaned_up_at = Some(Instant::now());
            self.notifier.clean_up().await?;
        }
        Ok(self.room_for_stored_jobs(&state))
    }

    /// Returns how many small jobs may be stored with their notifications. Each is counted
    /// as its own task, because a task's jobs are only known when it is sent.
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

    /// Makes a round's changes in the database: sweeps, and chooses jobs to notify workers about,
    /// if Redis has room for this many `tasks`. Returns `None` if another process leads the round.
    async fn decide(&mut self, sweep: Sweep, tasks: Option<usize>) -> Result<Option<Decided>> {
        if matches!(sweep, Sweep::None) && tasks.unwrap_or(0) == 0 {
            return Ok(Some(Decided {
                others_wait: true,
                ..Decided::default()
            }));
        }
        let app = self.app.clone();
        let this = &mut *self;
        let lead = async |db: &mut PgConnection| {
            let mut transaction = db.begin().await?;
            if !job_notifications::try_lead(&mut transaction).await? {
                transaction.rollback().await?;
                return Ok(None);
            }
            let reclaimed = match sweep {
                Sweep::None => Vec::new(),
                Sweep::Overdue => leases::sweep(&mut transaction, false).await?,
                Sweep::All => leases::sweep(&mut transaction, true).await?,
            };
            let mut decided = match tasks {
                Some(tasks) => this.choose(&mut transaction, tasks).await?,
                None => Decided {
                    others_wait: true,
                    ..Decided::default()
                },
            };
            decided.reclaimed = reclaimed;
            transaction.commit().await?;
            Ok(Some(decided))
        };
        app.db.tasks.execute(lead).await
    }

    /// Chooses jobs to notify workers about.
    async fn choose(&mut self, db: &mut PgConnection, tasks: usize) -> Result<Decided> {
        if self
            .notifier_recorded_at
            .is_none_or(|at| at.elapsed() >= NOTIFIER_RECORD_INTERVAL)
        {
            queue::record_notifier(&mut *db).await?;
            self.notifier_recorded_at = Some(Instant::now());
        }
        let speed = self.app.jobs.queue.speed();
        let busy = queue::busy(&mut *db, speed.cost_of_short_jobs_max()).await?;
        let mut room = Room::new(speed, tasks, busy.slots, &busy.jobs);
        let mut chosen = Vec::new();
        let mut counts = self.counts;
        if busy.others_wait && room.jobs_max() > 0 {
            let costs = self.active_costs(&mut *db, &busy.jobs).await?;
            let waiting =
                queue::waiting(&mut *db, &costs, room.jobs_max(), room.cost_max()).await?;
            let mut order = Order::new(waiting, speed, self.counts);
            for (org_id, job) in choose(&mut order, &mut room) {
                if let Some(recent) = &mut self.recent_costs {
                    *recent.started.entry(org_id).or_default() += job.cost;
                }
                chosen.push(job.job_id);
            }
            counts = order.counts();
        }
        Ok(Decided {
            reclaimed: Vec::new(),
            notifications: job_notifications::record(db, &chosen).await?,
            // Also if all were chosen: more may have waited than were read.
            others_wait: busy.others_wait,
            pause: room.pause(),
            counts: Some(counts),
        })
    }

    /// Returns the cost of each organization's jobs that occupy workers, or started recently.
    async fn active_costs(
        &mut self,
        db: &mut PgConnection,
        busy: &[BusyJobs],
    ) -> Result<HashMap<OrgId, i64>> {
        let recent = match self.recent_costs.take() {
            Some(recent) if recent.read_at.elapsed() < RECENT_COSTS_AGE_MAX => recent,
            _ => RecentCosts {
                read_at: Instant::now(),
                ended: queue::recent_costs(db).await?,
                started: busy
                    .iter()
                    .map(|jobs| (jobs.org_id.clone(), jobs.cost))
                    .collect(),
            },
        };
        // A job that was chosen since then may have ended. Another process may have chosen others.
        let mut active = recent.started.clone();
        for jobs in busy {
            let started = active.entry(jobs.org_id.clone()).or_default();
            *started = jobs.cost.max(*started);
        }
        for (org_id, cost) in &recent.ended {
            *active.entry(org_id.clone()).or_default() += cost;
        }
        self.recent_costs = Some(recent);
        Ok(active)
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
                self.app.spans.export(span_context.trace_id, || {
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

    /// Returns the queue's state. If Redis has lost its data, resets all notifications, so that
    /// they are sent again.
    async fn state(&self) -> Result<QueueState> {
        let state = self.notifier.state().await?;
        if state.lost_data {
            let reset = within_response_timeout(
                self.app
                    .db
                    .tasks
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
