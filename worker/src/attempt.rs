//! One attempt at one job: fetch the submission, score it, write the result.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use assay_core::model::job::{
    ATTEMPTS_MAX, EvalResult, FailureCode, SealedFigures, stores_item_scores,
};
use assay_core::model::upload::PartObject;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{KeyValue, MessagingOperation, Span, Spans};
use assay_core::runtime::upload_reader::{
    ContentFormat, ContentReader, ReadEnd, ReadUpload, read_upload,
};
use assay_core::store::combined_statements::CombinedStatements;
use assay_core::store::item_scores::{ITEM_SCORES_ROW_BYTES_MAX, ItemScoresIn};
use assay_core::store::leases::ATTEMPT_TIMEOUT;
use assay_core::store::submission::ROW_BYTES_MAX;
use assay_core::store::work::{self, Claim, Phase, SuccessfulAttempt, UploadForm};
use assay_core::store::{PrimaryPool, allowance, within_response_timeout};
use assay_core::{Error, Result, Timestamp};
use assay_eval::Scoring;
use assay_eval::item_scores::ItemScores;
use assay_eval::score::{self, Failure, Figures, Progress, Score, Scorer};
use bytes::Bytes;

use crate::answer_cache::{AnswerCache, Answers};

/// Time between two checks that the job still belongs to this attempt. Each check also writes the
/// progress.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time by which an attempt times out before the sweep would reclaim the job.
const DEADLINE_MARGIN: Duration = Duration::from_secs(5);

/// Number of times that the result is written if the database is unavailable.
const WRITE_ATTEMPTS: u32 = 4;

/// Timeout of one write. It is longer than that of other statements, because attempts at suites
/// with the same ladder write one after the other.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Largest piece of the item scores that is written at once, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// The dependencies of attempts.
pub struct AttemptContext {
    /// The connection pool, with a role that can read answers.
    pub db: PrimaryPool,
    /// The store of submissions and item scores.
    pub artifacts: Artifacts,
    /// The cached answers of suites.
    pub answers: AnswerCache,
    /// The build of the scoring library, which results report.
    pub hfm_sha: String,
    /// The results of attempts, which share statements.
    pub results: CombinedStatements<SuccessfulAttempt, bool>,
    /// The exporter of trace spans.
    pub spans: Spans,
}

/// The outcome of an attempt.
enum Outcome {
    Scored(Box<Scored>),
    /// The submission is invalid or missing: another attempt would fail in the same way.
    Rejected(FailureCode, String),
    /// An internal error, with its cause: another attempt may succeed.
    Failed(String),
    /// The attempt took too long.
    TimedOut,
    /// The job no longer belongs to this attempt: it was cancelled or reclaimed.
    Lost,
}

/// A job's score before it is disclosed.
struct Scored {
    /// The result without its figures.
    result: EvalResult,
    figures: Figures,
    sealed: Option<SealedFigures>,
    scoring: Scoring,
    /// The stored item scores, if they are stored.
    item_scores: Option<ItemScoresIn>,
}

impl Outcome {
    /// Returns the name of the outcome in metrics, logs and spans.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Scored(_) => "succeeded",
            Self::Rejected(..) => "failed",
            Self::Failed(_) => "requeued",
            Self::TimedOut => "timeout",
            Self::Lost => "lost",
        }
    }

    /// Returns the final outcome of the job, if this attempt finishes it.
    fn of_job(&self, claim: &Claim) -> Option<&'static str> {
        let is_last = claim.attempt >= ATTEMPTS_MAX;
        match self {
            Self::Scored(_) => Some("succeeded"),
            Self::Rejected(code, _) => Some(code.as_str()),
            Self::Failed(_) => is_last.then_some(FailureCode::Internal.as_str()),
            Self::TimedOut => is_last.then_some(FailureCode::Timeout.as_str()),
            Self::Lost => None,
        }
    }
}

/// The finished phases of an attempt, as offsets from its start.
struct Phases {
    start: Instant,
    finished: Vec<Phase>,
}

impl Phases {
    /// Returns the microseconds since the start of the attempt.
    fn offset_us(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Records a phase: the time that `work` takes.
    async fn record<T>(&mut self, name: &'static str, work: impl Future<Output = T>) -> T {
        let start_us = self.offset_us();
        let output = work.await;
        self.finished.push(Phase {
            name,
            start_us,
            end_us: self.offset_us(),
        });
        output
    }
}

/// The unit of all durations of an attempt whose figures are hidden. Callers can read them in the
/// trace, and the exact duration of scoring could disclose figures.
const HIDDEN_UNIT: Duration = Duration::from_millis(50);

impl Phases {
    /// Waits until the duration of the attempt is a multiple of [`HIDDEN_UNIT`], and rounds the
    /// start of each phase down and the end up to multiples of it.
    async fn hide_duration(&mut self) {
        let unit = i64::try_from(HIDDEN_UNIT.as_micros()).unwrap_or(i64::MAX);
        let rest = unit - self.offset_us().rem_euclid(unit);
        tokio::time::sleep(Duration::from_micros(rest.unsigned_abs())).await;
        for phase in &mut self.finished {
            phase.start_us = phase.start_us.div_euclid(unit) * unit;
            phase.end_us = (phase.end_us.div_euclid(unit) + 1) * unit;
        }
    }
}

/// Makes one attempt at a claimed job: finishes or requeues it, or stops if the job no longer
/// belongs to this attempt.
pub async fn attempt(context: &AttemptContext, claim: &Claim) {
    let mut phases = Phases {
        start: Instant::now(),
        finished: Vec::new(),
    };
    let started_at = Timestamp::now();
    metrics::histogram!(prometheus::JOB_WAIT_SECONDS)
        .record(seconds_between(claim.waited_since, claim.started_at));
    let progress = Arc::new(Progress::default());
    let outcome = tokio::select! {
        outcome = evaluate(context, claim, &mut phases, &progress) => outcome,
        () = lost_ownership(context, claim, &progress) => Outcome::Lost,
        () = tokio::time::sleep(ATTEMPT_TIMEOUT - DEADLINE_MARGIN) => Outcome::TimedOut,
    };
    progress.stop.store(true, Ordering::Relaxed);
    if let Outcome::Scored(scored) = &outcome
        && scored.scoring.policy.hides_figures()
    {
        phases.hide_duration().await;
    }
    let start_us = phases.offset_us();
    let written = write(context, claim, &outcome, &phases.finished).await;
    phases.finished.push(Phase {
        name: "persist",
        start_us,
        end_us: phases.offset_us(),
    });
    let seconds = phases.start.elapsed().as_secs_f64();
    let result = match (&outcome, written) {
        (Outcome::Lost, _) | (_, Ok(true)) => outcome.as_str(),
        (_, Ok(false)) => "fenced",
        (_, Err(_)) => "not_written",
    };
    metrics::counter!(prometheus::JOB_ATTEMPTS, "result" => result).increment(1);
    metrics::histogram!(prometheus::JOB_RUN_SECONDS).record(seconds);
    if result == "fenced" {
        metrics::counter!(prometheus::FENCED_WRITES).increment(1);
    }
    if let Some(outcome) = outcome.of_job(claim).filter(|_| result == outcome.as_str()) {
        metrics::counter!(prometheus::JOBS_FINISHED, "type" => "eval", "outcome" => outcome)
            .increment(1);
        metrics::histogram!(prometheus::JOB_SECONDS)
            .record(seconds_between(claim.created_at, claim.started_at) + seconds);
    }
    export_spans(context, claim, started_at, &phases.finished, result);
    let Claim {
        job_id,
        attempt,
        trace_id,
        ..
    } = claim;
    tracing::info!(%job_id, attempt, trace_id, result, seconds, "job");
}

/// Returns the seconds between two timestamps, or 0 if `to` is the earlier one.
fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    Duration::from_nanos(u64::try_from(to.unix_nanos() - from.unix_nanos()).unwrap_or(0))
        .as_secs_f64()
}

/// Exports the span of the attempt, and then its child spans, one for each phase.
fn export_spans(
    context: &AttemptContext,
    claim: &Claim,
    started_at: Timestamp,
    phases: &[Phase],
    result: &'static str,
) {
    let Some(parent) = claim.span_context() else {
        return;
    };
    let span_context = parent.child();
    context.spans.export(span_context.trace_id, || {
        let mut span = Span::for_job(
            MessagingOperation::Process,
            span_context,
            Some(parent.span_id),
            &claim.job_id,
            started_at,
            Timestamp::now(),
        );
        span.attributes
            .push(KeyValue::new("assay.org.id", claim.org_id.to_string()));
        span.attributes
            .push(KeyValue::new("assay.suite.id", claim.suite_id.to_string()));
        span.attributes.push(KeyValue::new(
            "assay.job.waited_seconds",
            seconds_between(claim.waited_since, claim.started_at),
        ));
        span.with_attempt(claim.attempt, result)
    });
    for Phase {
        name,
        start_us,
        end_us,
    } in phases
    {
        let child = span_context.child();
        context.spans.export(child.trace_id, || {
            Span::internal(
                child,
                span_context.span_id,
                name,
                started_at.plus_micros(*start_us),
                started_at.plus_micros(*end_us),
            )
        });
    }
}

/// The submission of a job.
enum Input {
    Inline(Bytes),
    Upload {
        format: ContentFormat,
        parts: Vec<PartObject>,
    },
}

/// Fetches inline predictions, which are small, or looks up the parts of an upload. `None` if the
/// input is missing.
async fn fetch_input(context: &AttemptContext, claim: &Claim) -> Result<Option<Input>> {
    if let Some(predictions) = &claim.predictions {
        return Ok(Some(Input::Inline(Bytes::copy_from_slice(predictions))));
    }
    match (&claim.input_key, &claim.upload_id) {
        (Some(input_key), _) => Ok(context.artifacts.get(input_key).await?.map(Input::Inline)),
        (None, Some(upload_id)) => {
            let (
                UploadForm {
                    content_type,
                    content_encoding,
                },
                parts,
            ) = within_response_timeout(work::upload(&context.db.get(), claim, upload_id)).await?;
            // The size and the hash were checked when the upload was completed.
            let format = ContentFormat {
                content_type,
                content_encoding,
                bytes_max: u64::MAX,
                compute_sha256: false,
            };
            Ok((!parts.is_empty()).then_some(Input::Upload { format, parts }))
        }
        (None, None) => Ok(None),
    }
}

/// Scores the submission, on the blocking thread pool unless it is small. `None` if the input is missing.
async fn score_input(
    context: &AttemptContext,
    answers: Arc<Answers>,
    input: Input,
    progress: Arc<Progress>,
) -> Result<Option<Result<Score, Failure>>> {
    let (format, parts) = match input {
        Input::Inline(bytes) => {
            let is_small = bytes.len() <= ROW_BYTES_MAX;
            let score = move || {
                score::score(
                    &answers.open,
                    answers.sealed.as_ref(),
                    answers.scoring.metric,
                    &bytes,
                    &progress,
                )
            };
            return Ok(Some(if is_small {
                score()
            } else {
                let scoring = tokio::task::spawn_blocking(score);
                scoring.await.map_err(Error::internal)?
            }));
        }
        Input::Upload { format, parts } => (format, parts),
    };
    let scoring = move |content: ContentReader<'_>| {
        let mut scorer = Scorer::new(&answers.open, answers.scoring.metric, &progress)
            .with_sealed(answers.sealed.as_ref());
        let check_stop = || {
            if progress.stop.load(Ordering::Relaxed) {
                ControlFlow::Break(Failure::Stopped)
            } else {
                ControlFlow::Continue(())
            }
        };
        match content.read(check_stop, &mut scorer) {
            ReadEnd::Complete => Ok(scorer.finish()),
            ReadEnd::Stopped(failure) => Ok(Err(failure)),
            ReadEnd::Invalid(error) => Err(error),
        }
    };
    match read_upload(&context.artifacts, &parts, format, scoring).await? {
        None => Ok(None),
        Some(ReadUpload {
            value: Ok(scored), ..
        }) => Ok(Some(scored)),
        Some(ReadUpload {
            value: Err(error), ..
        }) => Err(Error::internal(format!(
            "an upload changed after it was completed: {error:?}"
        ))),
    }
}

/// Fetches and scores the submission, and stores the item scores.
async fn evaluate(
    context: &AttemptContext,
    claim: &Claim,
    phases: &mut Phases,
    progress: &Arc<Progress>,
) -> Outcome {
    let input_missing = || {
        Outcome::Rejected(
            FailureCode::InputUnavailable,
            "The submission is no longer stored.".into(),
        )
    };
    let input = match phases
        .record("fetch input", fetch_input(context, claim))
        .await
    {
        Ok(Some(input)) => input,
        Ok(None) => return input_missing(),
        Err(error) => return Outcome::Failed(error.log_text()),
    };
    let answers = match phases
        .record(
            "load answers",
            context.answers.get(&claim.suite_id, &claim.suite_version),
        )
        .await
    {
        Ok(answers) => answers,
        Err(error) => return Outcome::Failed(error.log_text()),
    };
    let scoring = answers.scoring;
    match phases
        .record(
            "score",
            score_input(context, answers, input, Arc::clone(progress)),
        )
        .await
    {
        Ok(Some(Ok(score))) => {
            metrics::counter!(prometheus::ITEMS_SCORED).increment(score.n_submitted.unsigned_abs());
            let (mut scored, items) = split_score(context, claim, scoring, score);
            if let Some(items) = items {
                let stored = phases.record(
                    "store item scores",
                    store_item_scores(&context.artifacts, claim, items),
                );
                match stored.await {
                    Ok(place) => scored.item_scores = Some(place),
                    Err(error) => return Outcome::Failed(error.log_text()),
                }
            }
            Outcome::Scored(Box::new(scored))
        }
        Ok(Some(Err(Failure::InvalidPredictions(message)))) => {
            Outcome::Rejected(FailureCode::InvalidPredictions, message)
        }
        Ok(Some(Err(Failure::Stopped))) => Outcome::Lost,
        Ok(None) => input_missing(),
        Err(error) => Outcome::Failed(error.log_text()),
    }
}

/// Splits a score into the result and the item scores. The item scores are stored only if the
/// policy allows comparisons and [`stores_item_scores`] finds enough predictions.
fn split_score(
    context: &AttemptContext,
    claim: &Claim,
    scoring: Scoring,
    score: Score,
) -> (Scored, Option<ItemScores>) {
    let Score {
        n,
        n_submitted,
        n_unmatched,
        n_missing,
        figures,
        items,
        sealed,
    } = score;
    let result = EvalResult {
        hfm_sha: context.hfm_sha.clone(),
        metric: scoring.metric.to_string(),
        n,
        n_submitted,
        n_unmatched,
        n_missing,
        suite_id: claim.suite_id.to_string(),
        suite_version: claim.suite_version.clone(),
        value: 0.0,
        stderr: None,
        ci95: None,
        ci_method: None,
        metrics: [].into(),
        release: scoring.policy.to_string(),
        sealed: None,
    };
    let items = (scoring.policy.allows_comparisons() && stores_item_scores(n - n_missing, n))
        .then_some(items);
    (
        Scored {
            result,
            figures,
            sealed: sealed.map(SealedFigures::from),
            scoring,
            item_scores: None,
        },
        items,
    )
}

/// Encodes small item scores, which are stored with the result, and writes larger ones to the
/// artifact store.
async fn store_item_scores(
    artifacts: &Artifacts,
    claim: &Claim,
    items: ItemScores,
) -> Result<ItemScoresIn> {
    if items.encoded_len() <= ITEM_SCORES_ROW_BYTES_MAX {
        let mut bytes = Vec::with_capacity(ITEM_SCORES_ROW_BYTES_MAX as usize);
        items.write(|piece| bytes.extend_from_slice(piece));
        return Ok(ItemScoresIn::Row(bytes.into()));
    }
    let key = Artifacts::scores_key(&claim.org_id, &claim.job_id, claim.attempt);
    let mut writer = artifacts.writer(&key);
    // Sent in pieces, so that the encoded scores are never in memory as a whole.
    let (send, mut receive) = tokio::sync::mpsc::channel::<Bytes>(2);
    let pieces = tokio::task::spawn_blocking(move || {
        items.write(|piece| {
            for piece in piece.chunks(PIECE_BYTES) {
                // The receiver is dropped if the store fails, and then the writer returns the
                // error.
                let _ = send.blocking_send(Bytes::copy_from_slice(piece));
            }
        });
    });
    while let Some(piece) = receive.recv().await {
        writer.write(&piece).await?;
    }
    pieces.await.map_err(Error::internal)?;
    writer.finish().await?;
    Ok(ItemScoresIn::Object(key))
}

/// Writes the progress of the attempt every second. Returns when the job no longer belongs to this
/// attempt.
async fn lost_ownership(context: &AttemptContext, claim: &Claim, progress: &Progress) {
    loop {
        tokio::time::sleep(OWNERSHIP_CHECK_INTERVAL).await;
        let progress = (progress.done.load(Ordering::Relaxed) as f64
            / claim.n_submitted.max(1) as f64)
            .min(1.0);
        // An error of the database does not mean that the job was lost.
        if matches!(
            within_response_timeout(work::owns_job(&context.db.get(), claim, progress)).await,
            Ok(false)
        ) {
            return;
        }
    }
}

/// Writes the outcome, and retries if the database is unavailable. Returns `false` if the attempt
/// number was not the current one any more, so that nothing was written.
async fn write(
    context: &AttemptContext,
    claim: &Claim,
    outcome: &Outcome,
    phases: &[Phase],
) -> Result<bool> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let written =
            tokio::time::timeout(WRITE_TIMEOUT, write_once(context, claim, outcome, phases)).await;
        match written.unwrap_or_else(|late| Err(Error::unavailable(late))) {
            Err(error) if attempts < WRITE_ATTEMPTS => {
                tracing::warn!(
                    job_id = %claim.job_id,
                    trace_id = claim.trace_id,
                    error = error.log_text(),
                    "writing the result failed, retrying"
                );
                tokio::time::sleep(Duration::from_millis(250 << attempts)).await;
            }
            // The worker does not run the job any more, so the first renewal of its lease that is
            // more than 10 s after the claim orphans it.
            Err(error) => {
                tracing::error!(
                    job_id = %claim.job_id,
                    trace_id = claim.trace_id,
                    error = error.log_text(),
                    "writing the result failed"
                );
                return Err(error);
            }
            Ok(written) => return Ok(written),
        }
    }
}

/// Writes the outcome once.
async fn write_once(
    context: &AttemptContext,
    claim: &Claim,
    outcome: &Outcome,
    phases: &[Phase],
) -> Result<bool> {
    match outcome {
        Outcome::Scored(scored) => {
            let Scored {
                result,
                figures,
                sealed,
                scoring: Scoring { policy, ladder, .. },
                item_scores,
            } = &**scored;
            let result = result.clone();
            let figures = figures.clone();
            if let Some(ladder) = ladder {
                return allowance::succeed_on_ladder(
                    &context.db.get(),
                    claim,
                    *ladder,
                    *policy,
                    result,
                    figures,
                    phases,
                )
                .await;
            }
            let result = result.with_figures(policy.disclose(figures, None)?);
            match sealed {
                Some(sealed) => {
                    work::succeed_with_sealed(
                        &context.db.get(),
                        claim,
                        &result,
                        sealed,
                        item_scores.as_ref(),
                        phases,
                    )
                    .await
                }
                None => {
                    let attempt = SuccessfulAttempt {
                        job_id: claim.job_id.clone(),
                        attempt: claim.attempt,
                        result,
                        item_scores: item_scores.clone(),
                        phases: phases.to_vec(),
                    };
                    context.results.execute(attempt).await
                }
            }
        }
        Outcome::Rejected(code, message) => {
            work::fail(&context.db.get(), claim, *code, message, phases).await
        }
        Outcome::Failed(cause) => {
            tracing::error!(
                job_id = %claim.job_id,
                trace_id = claim.trace_id,
                attempt = claim.attempt,
                cause,
                "attempt failed"
            );
            work::requeue(
                &context.db.get(),
                claim,
                FailureCode::Internal,
                "Something went wrong on our side in the last attempt at the job.",
                phases,
            )
            .await
        }
        Outcome::TimedOut => {
            let message = format!(
                "The last attempt at the job did not finish within {} minutes.",
                ATTEMPT_TIMEOUT.as_secs() / 60
            );
            work::requeue(
                &context.db.get(),
                claim,
                FailureCode::Timeout,
                &message,
                phases,
            )
            .await
        }
        Outcome::Lost => Ok(false),
    }
}
