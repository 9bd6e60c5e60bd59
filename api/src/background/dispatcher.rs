//! The dispatcher: takes back what dead workers held, and rings for jobs that wait.
//!
//! Every api process runs one; an advisory lock makes one of them the leader for each round. A round begins when a job
//! was accepted, and every half second. Whatever a round does not finish, the next one does.

use std::time::{Duration, Instant};

use assay_core::model::job::FailureCode;
use assay_core::runtime::job_queue::JobNotifier;
use assay_core::runtime::prometheus;
use assay_core::runtime::redis_connection::Connection;
use assay_core::runtime::trace_export::{MessagingOperation, Span, SpanContext, Spans};
use assay_core::store::dispatch::{self, JobNotification, Swept};
use assay_core::store::{PgPool, notifications::Notifications, within_response_timeout};
use assay_core::{BestEffort as _, Result};
use tokio::sync::{Notify, watch};

use crate::app::App;

/// The longest time between rounds.
const TICK: Duration = Duration::from_millis(500);

/// How often what the queue leaves behind is removed.
const TIDY: Duration = Duration::from_secs(60);

/// Tells all dispatchers of what was submitted here, for as long as it is polled. Submissions do not wait for it, and those
/// that come meanwhile are told of together; should it fail, the dispatchers look for themselves.
pub async fn notify_dispatchers(db: PgPool, submitted: &Notify) {
    loop {
        submitted.notified().await;
        within_response_timeout(dispatch::notify(&db))
            .await
            .best_effort("telling the dispatchers of a new job");
    }
}

struct Dispatcher {
    db: PgPool,
    spans: Spans,
    notifier: JobNotifier,
    tidied: Option<Instant>,
    /// Since when every round went well.
    steady_since: Option<Instant>,
}

/// Dispatches until `stop` is set.
pub async fn run(app: App, mut stop: watch::Receiver<bool>) -> Result<()> {
    let settings = &app.settings.common;
    let connection = Connection::new(&settings.redis_url, Duration::from_millis(500))?;
    let notifier = JobNotifier::new(connection, &settings.redis_prefix);
    let (db, spans) = (app.db.clone(), app.spans.clone());
    let mut notifications = Notifications::new(db.clone(), dispatch::CHANNEL);
    let mut dispatcher = Dispatcher {
        db,
        spans,
        notifier,
        tidied: None,
        steady_since: None,
    };
    let mut swept = None::<Instant>;
    loop {
        let sweep = swept.is_none_or(|at| at.elapsed() >= TICK);
        if sweep {
            swept = Some(Instant::now());
        }
        dispatcher
            .round(sweep)
            .await
            .best_effort("a round of the dispatcher; the next one does its work");
        tokio::select! {
            _ = notifications.next() => notifications.forget(),
            () = tokio::time::sleep(TICK) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

impl Dispatcher {
    async fn round(&mut self, sweep: bool) -> Result<()> {
        // While Redis is away nothing is chosen, for nothing could be rung: the workers then help themselves.
        let room = self.room().await;
        let silence_counts = self
            .steady_since
            .is_some_and(|since| since.elapsed() > dispatch::LEASE);
        let steady_since = self.steady_since.take().unwrap_or_else(Instant::now);
        // On a connection that is dead without having been closed, the round would never end.
        let decided = self.decide(
            sweep.then_some(silence_counts),
            *room.as_ref().unwrap_or(&0),
        );
        let Some((swept, rings)) = within_response_timeout(decided).await? else {
            self.steady_since = Some(steady_since);
            return Ok(());
        };
        self.report_reclaimed(&swept);
        // It is the database that must have been there; Redis has no say in this.
        self.steady_since = Some(steady_since);
        room?;
        if !rings.is_empty() {
            self.notifier.notify(&rings).await?;
            let (first, again): (Vec<_>, Vec<_>) =
                rings.iter().partition(|ring| ring.dispatch_no == 1);
            metrics::counter!(prometheus::JOB_NOTIFICATIONS, "kind" => "first")
                .increment(first.len() as u64);
            metrics::counter!(prometheus::JOB_NOTIFICATIONS, "kind" => "repeated")
                .increment(again.len() as u64);
        }
        if self.tidied.is_none_or(|at| at.elapsed() >= TIDY) {
            self.tidied = Some(Instant::now());
            self.notifier.tidy().await?;
        }
        Ok(())
    }

    /// The round's transaction: what it swept, if it swept, and the jobs that it chose to ring for. Nothing where another
    /// process leads.
    async fn decide(
        &self,
        sweep: Option<bool>,
        room: i64,
    ) -> Result<Option<(Vec<Swept>, Vec<JobNotification>)>> {
        let mut transaction = self.db.begin().await?;
        if !dispatch::try_lead(&mut transaction).await? {
            return Ok(None);
        }
        let swept = match sweep {
            Some(silence_counts) => dispatch::sweep(&mut transaction, silence_counts).await?,
            None => Vec::new(),
        };
        let rings = if room > 0 {
            dispatch::pick_jobs_to_notify(&mut transaction, room).await?
        } else {
            Vec::new()
        };
        // First noted, then rung: a bell that is lost in between is found by a worker that looks for itself.
        transaction.commit().await?;
        Ok(Some((swept, rings)))
    }

    /// Tells operators of attempts that were given up: nobody else does.
    fn report_reclaimed(&self, swept: &[Swept]) {
        if !swept.is_empty() {
            let failed = swept.iter().filter(|swept| swept.failed).count();
            tracing::warn!(
                released = swept.len() - failed,
                failed,
                "jobs were taken back from dead or overdue workers"
            );
        }
        for Swept {
            job_id,
            attempt,
            overdue,
            failed,
            started_at,
            ended_at,
            trace_id,
            span_id,
        } in swept
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
                metrics::counter!(prometheus::JOBS_FINISHED, "type" => "eval", "outcome" => code.as_str()).increment(1);
            }
            tracing::info!(%job_id, attempt, trace_id, result, outcome, "a job was taken back");
            if let Some(sent) = span_id
                .as_deref()
                .and_then(|span_id| SpanContext::read(trace_id, span_id))
            {
                let span_context = sent.child();
                self.spans.export(span_context.trace_id, || {
                    let span = Span::for_job(
                        MessagingOperation::Process,
                        span_context,
                        Some(sent.span_id),
                        job_id,
                        *started_at,
                        *ended_at,
                    );
                    span.with_attempt(*attempt, result)
                });
            }
        }
    }

    /// How many bells may be rung. When Redis forgot those that were, all are to be rung again.
    async fn room(&mut self) -> Result<i64> {
        if !self.notifier.remembers().await? {
            let forgotten =
                within_response_timeout(dispatch::reset_notifications(&self.db)).await?;
            tracing::info!(
                forgotten,
                "Redis begins anew: every waiting job's bell is rung again"
            );
        }
        self.notifier.room().await
    }
}
