//! One attempt at one job: fetch the submission, score it, write what came of it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use assay_core::model::job::{
    ATTEMPTS_MAX, EvalResult, FailureCode, SealedFigures, stores_item_scores,
};
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{KeyValue, MessagingOperation, Span, Spans};
use assay_core::runtime::upload_reader::{
    Content, Decoded, Ended, Found, PartObject, read_through,
};
use assay_core::store::work::{self, Claim, Phase, UploadForm};
use assay_core::store::{PgPool, allowance, within_response_timeout};
use assay_core::{Error, Result, Timestamp};
use assay_eval::Scoring;
use assay_eval::item_scores::ItemScores;
use assay_eval::score::Figures;
use assay_eval::score::{self, Failure, Prefetch, Progress, Score, Scorer};
use bytes::Bytes;

use crate::answer_cache::{AnswerCache, Answers};

/// How often an attempt looks whether the job is still its own.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A live attempt ends itself a little before the sweep would end it.
const DEADLINE_MARGIN: Duration = Duration::from_secs(5);

/// How often, and after which pauses, an end is written again when the database does not answer.
const WRITE_ATTEMPTS: u32 = 4;

/// How long one try may take: many attempts at one ladder write one after the other. A later response does not come.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// How much of the scores is written at once.
const PIECE: usize = 256 * 1024;

/// What attempts need.
pub struct AttemptContext {
    /// PostgreSQL, as the role that reads answers.
    pub db: PgPool,
    /// Where submissions are kept.
    pub artifacts: Artifacts,
    /// Answers.
    pub answers: AnswerCache,
    /// Build of the scoring library.
    pub hfm_sha: String,
    /// Where operators are told what an attempt did.
    pub spans: Spans,
}

/// What came of an attempt.
enum Outcome {
    Scored(Box<Scored>),
    /// The data is at fault: another try would find the same.
    Refused(FailureCode, String),
    /// The fault is ours: another try may get past it.
    Broken(String),
    Late,
    /// The job is not ours any more: cancelled, or taken back.
    Lost,
}

/// A job's score, and how it is disclosed.
struct Scored {
    /// Everything but the figures.
    result: EvalResult,
    figures: Figures,
    sealed: Option<SealedFigures>,
    scoring: Scoring,
    /// Where the scores of the items are stored, if they are.
    scores_key: Option<String>,
}

impl Outcome {
    /// How the attempt ended.
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Scored(_) => "succeeded",
            Self::Refused(..) => "failed",
            Self::Broken(_) => "requeued",
            Self::Late => "timeout",
            Self::Lost => "lost",
        }
    }

    /// How the job ended, if it did with this attempt.
    fn of_job(&self, claim: &Claim) -> Option<&'static str> {
        let last = claim.attempt >= ATTEMPTS_MAX;
        match self {
            Self::Scored(_) => Some("succeeded"),
            Self::Refused(code, _) => Some(code.as_str()),
            Self::Broken(_) => last.then_some(FailureCode::Internal.as_str()),
            Self::Late => last.then_some(FailureCode::Timeout.as_str()),
            Self::Lost => None,
        }
    }
}

/// What an attempt did, as offsets from its beginning.
struct Phases {
    began: Instant,
    done: Vec<Phase>,
}

impl Phases {
    fn offset(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    async fn during<T>(&mut self, name: &'static str, work: impl Future<Output = T>) -> T {
        let start_us = self.offset();
        let done = work.await;
        self.done.push(Phase {
            name,
            start_us,
            end_us: self.offset(),
        });
        done
    }
}

/// The unit of all times of an attempt whose figures are held back: they end up in the trace that the caller reads.
const HIDDEN_UNIT: Duration = Duration::from_millis(50);

impl Phases {
    /// Waits until the attempt has lasted a multiple of [`HIDDEN_UNIT`], and rounds what the phases say up to it.
    async fn hide_duration(&mut self) {
        let unit = i64::try_from(HIDDEN_UNIT.as_micros()).unwrap_or(i64::MAX);
        let rest = unit - self.offset().rem_euclid(unit);
        tokio::time::sleep(Duration::from_micros(rest.unsigned_abs())).await;
        for phase in &mut self.done {
            phase.start_us = phase.start_us.div_euclid(unit) * unit;
            phase.end_us = (phase.end_us.div_euclid(unit) + 1) * unit;
        }
    }
}

/// Carries a claimed job to its end, or puts it back, or finds that it is not ours any more.
pub async fn attempt(context: &AttemptContext, claim: &Claim) {
    let mut phases = Phases {
        began: Instant::now(),
        done: Vec::new(),
    };
    let began = Timestamp::now();
    metrics::histogram!(prometheus::JOB_WAIT_SECONDS)
        .record(seconds_between(claim.waited_since, claim.started_at));
    let progress = Arc::new(Progress::default());
    let outcome = tokio::select! {
        outcome = evaluate(context, claim, &mut phases, &progress) => outcome,
        () = lost_ownership(context, claim, &progress) => Outcome::Lost,
        () = tokio::time::sleep(work::DEADLINE - DEADLINE_MARGIN) => Outcome::Late,
    };
    progress.stop.store(true, Ordering::Relaxed);
    if let Outcome::Scored(scored) = &outcome
        && scored.scoring.policy.hides_figures()
    {
        phases.hide_duration().await;
    }
    let start_us = phases.offset();
    let written = write(context, claim, &outcome, &phases.done).await;
    phases.done.push(Phase {
        name: "persist",
        start_us,
        end_us: phases.offset(),
    });
    let seconds = phases.began.elapsed().as_secs_f64();
    let told = match (&outcome, written) {
        (Outcome::Lost, _) | (_, Ok(true)) => outcome.as_str(),
        (_, Ok(false)) => "fenced",
        (_, Err(_)) => "not_written",
    };
    metrics::counter!(prometheus::JOB_ATTEMPTS, "result" => told).increment(1);
    metrics::histogram!(prometheus::JOB_RUN_SECONDS).record(seconds);
    if told == "fenced" {
        metrics::counter!(prometheus::FENCED_WRITES).increment(1);
    }
    if let Some(outcome) = outcome.of_job(claim).filter(|_| told == outcome.as_str()) {
        metrics::counter!(prometheus::JOBS_FINISHED, "type" => "eval", "outcome" => outcome)
            .increment(1);
        metrics::histogram!(prometheus::JOB_SECONDS)
            .record(seconds_between(claim.created_at, claim.started_at) + seconds);
    }
    export_spans(context, claim, began, &phases.done, told);
    let Claim {
        job_id,
        attempt,
        trace_id,
        ..
    } = claim;
    tracing::info!(%job_id, attempt, trace_id, outcome = told, seconds, "job");
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    Duration::from_nanos(u64::try_from(to.unix_nanos() - from.unix_nanos()).unwrap_or(0))
        .as_secs_f64()
}

/// Tells operators what the attempt did, the whole before its parts.
fn export_spans(
    context: &AttemptContext,
    claim: &Claim,
    began: Timestamp,
    phases: &[Phase],
    result: &'static str,
) {
    let Some(sent) = claim.span_context() else {
        return;
    };
    let span_context = sent.child();
    context.spans.export(span_context.trace_id, || {
        let mut span = Span::for_job(
            MessagingOperation::Process,
            span_context,
            Some(sent.span_id),
            &claim.job_id,
            began,
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
        let part = span_context.child();
        context.spans.export(part.trace_id, || {
            Span::internal(
                part,
                span_context.span_id,
                name,
                began.plus_micros(*start_us),
                began.plus_micros(*end_us),
            )
        });
    }
}

/// What an attempt scores.
enum Input {
    Inline(Bytes),
    Upload {
        content: Content,
        parts: Vec<PartObject>,
    },
}

/// Fetches what came inline, which is small, and looks up what was uploaded, which is not.
async fn input(context: &AttemptContext, claim: &Claim) -> Result<Option<Input>> {
    match (&claim.input_key, &claim.upload_id) {
        (Some(input_key), _) => Ok(context.artifacts.get(input_key).await?.map(Input::Inline)),
        (None, Some(upload_id)) => {
            let (
                UploadForm {
                    content_type,
                    content_encoding,
                },
                parts,
            ) = within_response_timeout(work::upload(&context.db, claim, upload_id)).await?;
            // What was checked when the upload was completed is not checked again.
            let content = Content {
                content_type,
                content_encoding,
                bytes_max: u64::MAX,
                hashed: false,
            };
            Ok((!parts.is_empty()).then_some(Input::Upload { content, parts }))
        }
        (None, None) => Ok(None),
    }
}

/// Scores on a thread where waiting harms nobody. `None`: the input is not there.
async fn score_input(
    context: &AttemptContext,
    answers: Arc<Answers>,
    input: Input,
    progress: Arc<Progress>,
) -> Result<Option<Result<Score, Failure>>> {
    let (content, parts) = match input {
        Input::Inline(bytes) => {
            let scoring = tokio::task::spawn_blocking(move || {
                score::score(
                    &answers.open,
                    answers.sealed.as_ref(),
                    answers.scoring.metric,
                    &bytes,
                    &progress,
                )
            });
            return Ok(Some(scoring.await.map_err(Error::internal)?));
        }
        Input::Upload { content, parts } => (content, parts),
    };
    let scoring = move |content: Decoded<'_>| {
        let prefetch = Prefetch::default();
        let tally = Scorer::new(&answers.open, answers.scoring.metric, &progress, &prefetch);
        let mut tally = tally.with_sealed(answers.sealed.as_ref());
        let pause = || {
            if progress.stop.load(Ordering::Relaxed) {
                ControlFlow::Break(Failure::Stopped)
            } else {
                ControlFlow::Continue(())
            }
        };
        match content.predictions_ahead(
            pause,
            &mut |item_ids| prefetch.load(&answers.open, item_ids),
            &mut |next| tally.add(next),
        ) {
            Ended::Whole => Ok(tally.finish()),
            Ended::Stopped(failure) => Ok(Err(failure)),
            Ended::Fault(fault) => Err(fault),
        }
    };
    match read_through(&context.artifacts, &parts, content, scoring).await? {
        None => Ok(None),
        Some(Found {
            value: Ok(scored), ..
        }) => Ok(Some(scored)),
        Some(Found {
            value: Err(fault), ..
        }) => Err(Error::internal(format!(
            "an upload is not what it was: {fault:?}"
        ))),
    }
}

async fn evaluate(
    context: &AttemptContext,
    claim: &Claim,
    phases: &mut Phases,
    progress: &Arc<Progress>,
) -> Outcome {
    let gone = || {
        Outcome::Refused(
            FailureCode::InputUnavailable,
            "The submission is not there any more.".into(),
        )
    };
    let input = match phases.during("fetch input", input(context, claim)).await {
        Ok(Some(input)) => input,
        Ok(None) => return gone(),
        Err(error) => return Outcome::Broken(error.to_string()),
    };
    let answers = match phases
        .during(
            "load answers",
            context.answers.get(&claim.suite_id, &claim.suite_version),
        )
        .await
    {
        Ok(answers) => answers,
        Err(error) => return Outcome::Broken(error.to_string()),
    };
    let scoring = answers.scoring;
    match phases
        .during(
            "score",
            score_input(context, answers, input, Arc::clone(progress)),
        )
        .await
    {
        Ok(Some(Ok(score))) => {
            metrics::counter!(prometheus::ITEMS_SCORED).increment(score.n_submitted.unsigned_abs());
            let (scored, items) = scored(context, claim, scoring, score);
            if let (Some(scores_key), Some(items)) = (&scored.scores_key, items)
                && let Err(error) = phases
                    .during(
                        "store item scores",
                        store_item_scores(&context.artifacts, scores_key, items),
                    )
                    .await
            {
                return Outcome::Broken(error.to_string());
            }
            Outcome::Scored(Box::new(scored))
        }
        Ok(Some(Err(Failure::InvalidPredictions(message)))) => {
            Outcome::Refused(FailureCode::InvalidPredictions, message)
        }
        Ok(Some(Err(Failure::Stopped))) => Outcome::Lost,
        Ok(None) => gone(),
        Err(error) => Outcome::Broken(error.to_string()),
    }
}

/// The parts of a score, and the scores of its items if they are to be stored: where a comparison may use them, and the
/// submission pays for them.
fn scored(
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
    let scores_key = items
        .is_some()
        .then(|| Artifacts::scores_key(&claim.org_id, &claim.job_id, claim.attempt));
    (
        Scored {
            result,
            figures,
            sealed: sealed.map(SealedFigures::from),
            scoring,
            scores_key,
        },
        items,
    )
}

/// Keeps what a comparison of two jobs needs of each item.
async fn store_item_scores(artifacts: &Artifacts, key: &str, items: ItemScores) -> Result<()> {
    let mut writer = artifacts.writer(key);
    // Pieces of no more than a part, so that what is written is not all in memory twice.
    let (send, mut receive) = tokio::sync::mpsc::channel::<Bytes>(2);
    let pieces = tokio::task::spawn_blocking(move || {
        items.write(|piece| {
            for piece in piece.chunks(PIECE) {
                // Nobody takes them when the store is away; then the writer has said so.
                let _ = send.blocking_send(Bytes::copy_from_slice(piece));
            }
        });
    });
    while let Some(piece) = receive.recv().await {
        writer.write(&piece).await?;
    }
    pieces.await.map_err(Error::internal)?;
    writer.finish().await
}

/// Returns when the job is not this attempt's any more. Until then, notes its progress.
async fn lost_ownership(context: &AttemptContext, claim: &Claim, progress: &Progress) {
    loop {
        tokio::time::sleep(OWNERSHIP_CHECK_INTERVAL).await;
        let progress = (progress.done.load(Ordering::Relaxed) as f64
            / claim.n_submitted.max(1) as f64)
            .min(1.0);
        // That the database does not answer says nothing about the job.
        if matches!(
            within_response_timeout(work::owns_job(&context.db, claim, progress)).await,
            Ok(false)
        ) {
            return;
        }
    }
}

/// Writes the end, again when the database does not answer. `false`: the attempt was fenced out, and nothing was written.
async fn write(
    context: &AttemptContext,
    claim: &Claim,
    outcome: &Outcome,
    phases: &[Phase],
) -> Result<bool> {
    let mut tries = 0;
    loop {
        tries += 1;
        let written =
            tokio::time::timeout(WRITE_TIMEOUT, write_once(context, claim, outcome, phases)).await;
        match written.unwrap_or_else(|late| Err(Error::unavailable(late))) {
            Err(error) if tries < WRITE_ATTEMPTS => {
                tracing::warn!(job_id = %claim.job_id, trace_id = claim.trace_id, %error, "the end of a job could not be written; trying again");
                tokio::time::sleep(Duration::from_millis(250 << tries)).await;
            }
            // What is given up here is not held any more, and so is put back to wait by the next renewal of the lease.
            Err(error) => {
                tracing::error!(job_id = %claim.job_id, trace_id = claim.trace_id, %error, "the end of a job could not be written");
                return Err(error);
            }
            Ok(written) => return Ok(written),
        }
    }
}

async fn write_once(
    context: &AttemptContext,
    claim: &Claim,
    outcome: &Outcome,
    phases: &[Phase],
) -> Result<bool> {
    let late = "The job took longer than fifteen minutes.";
    match outcome {
        Outcome::Scored(scored) => {
            let Scored {
                result,
                figures,
                sealed,
                scoring: Scoring { policy, ladder, .. },
                scores_key,
            } = &**scored;
            let (result, figures, scores_key) =
                (result.clone(), figures.clone(), scores_key.as_deref());
            if let Some(ladder) = ladder {
                return allowance::succeed_on_ladder(
                    &context.db,
                    claim,
                    *ladder,
                    *policy,
                    result,
                    figures,
                    phases,
                )
                .await;
            }
            let result = result.with(policy.disclose(figures, None)?);
            match sealed {
                Some(sealed) => {
                    work::succeed_with_sealed(
                        &context.db,
                        claim,
                        &result,
                        sealed,
                        scores_key,
                        phases,
                    )
                    .await
                }
                None => work::succeed(&context.db, claim, &result, scores_key, phases).await,
            }
        }
        Outcome::Refused(code, message) => {
            work::fail(&context.db, claim, *code, message, phases).await
        }
        Outcome::Broken(cause) => {
            tracing::error!(job_id = %claim.job_id, trace_id = claim.trace_id, attempt = claim.attempt, cause, "an attempt broke");
            work::requeue(
                &context.db,
                claim,
                FailureCode::Internal,
                "Something went wrong on our side in each of the job's tries.",
                phases,
            )
            .await
        }
        Outcome::Late => {
            work::requeue(&context.db, claim, FailureCode::Timeout, late, phases).await
        }
        Outcome::Lost => Ok(false),
    }
}
