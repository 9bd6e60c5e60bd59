//! One attempt at one job: do its work, write the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use assay_core::model::error_details::Endpoint;
use assay_core::model::job::{FailureCode, JobType};
use assay_core::model::prediction::{PredictResult, PredictionUsage};
use assay_core::runtime::prometheus;
use assay_core::runtime::trace_export::{KeyValue, MessagingOperation, Span};
use assay_core::store::leases::ATTEMPT_TIMEOUT;
use assay_core::store::work::{self, Claim, ClaimedTask, Phase, SuccessfulAttempt};
use assay_core::store::{allowance, dependent_evals, within_response_timeout};
use assay_core::{BestEffort as _, Error, Result, Timestamp};
use assay_eval::Scoring;
use assay_eval::score::Progress;

use crate::context::AttemptContext;
use crate::evaluation::evaluate;
use crate::outcome::{Outcome, Predicted, PredictedCounts, Scored};
use crate::phases::Phases;
use crate::prediction::predict;

/// Time between two checks that the job still belongs to this attempt. Each check also writes the
/// progress.
const OWNERSHIP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time by which an attempt times out before the sweep would reclaim the job.
const DEADLINE_MARGIN: Duration = Duration::from_secs(5);

/// Times that the result is written if the database is unavailable.
const WRITE_ATTEMPTS: u32 = 4;

/// Timeout for one write. It is longer than other statements' timeouts, because attempts at suites
/// with the same ladder write one after the other.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Makes one attempt at a claimed job: finishes or requeues it, or stops if the job no longer
/// belongs to this attempt.
pub async fn attempt(context: &AttemptContext, claim: &Claim) {
    let mut phases = Phases::start();
    let started_at = Timestamp::now();
    metrics::histogram!(prometheus::JOB_WAIT_SECONDS)
        .record(seconds_between(claim.waited_since, claim.started_at));
    let progress = Arc::new(Progress::default());
    let work = async {
        match &claim.task {
            _ if claim.is_suite_removed => Outcome::suite_removed(),
            ClaimedTask::Eval(suite) => {
                evaluate(context, claim, suite, &mut phases, &progress).await
            }
            ClaimedTask::Predict(prediction) => {
                predict(context, claim, prediction, &mut phases, &progress).await
            }
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
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
    if let Some(outcome) = outcome
        .for_claim(claim)
        .filter(|_| result == outcome.as_str())
    {
        count_finished(context, claim, outcome).await;
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
    let r#type = claim.job_type().as_str();
    tracing::info!(%job_id, r#type, attempt, trace_id, result, seconds, "job");
}

/// Counts a finished job, and the eval that failed with it.
async fn count_finished(context: &AttemptContext, claim: &Claim, outcome: &'static str) {
    prometheus::count_finished_job(claim.job_type(), outcome);
    let has_eval =
        matches!(&claim.task, ClaimedTask::Predict(prediction) if prediction.eval_job_id.is_some());
    if has_eval && outcome != "succeeded" {
        let (db, ids) = (context.db.get(), [claim.job_id.as_str()]);
        let ended = within_response_timeout(dependent_evals::ended_by(&db, &ids)).await;
        ended
            .map(|ended| {
                for _ in ended {
                    let code = FailureCode::InputUnavailable;
                    prometheus::count_finished_job(JobType::Eval, code.as_str());
                }
            })
            .best_effort("counting a failed eval");
    }
}

/// Returns the seconds between two timestamps, or 0 if `to` is the earlier one.
fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    Duration::from_nanos(u64::try_from(to.unix_nanos() - from.unix_nanos()).unwrap_or(0))
        .as_secs_f64()
}

/// Exports the attempt's span, and then its child spans, one for each phase.
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
        let (suite, model) = match &claim.task {
            ClaimedTask::Eval(suite) => (Some(suite), None),
            ClaimedTask::Predict(prediction) => {
                (prediction.suite.as_ref(), Some(&prediction.model))
            }
        };
        span.attributes
            .extend(suite.map(|suite| KeyValue::new("assay.suite.id", suite.suite_id.to_string())));
        span.attributes
            .extend(model.map(|model| KeyValue::new("assay.model.id", model.id.clone())));
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

/// Writes the attempt's progress every second. Returns when the job no longer belongs to this
/// attempt.
async fn lost_ownership(context: &AttemptContext, claim: &Claim, progress: &Progress) {
    loop {
        tokio::time::sleep(OWNERSHIP_CHECK_INTERVAL).await;
        let progress = (progress.done.load(Ordering::Relaxed) as f64
            / claim.n_submitted.max(1) as f64)
            .min(1.0);
        // A database error does not mean that the job was lost.
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
                receipt,
            } = &**scored;
            let figures = figures.clone();
            let mut attempt = SuccessfulAttempt {
                job_id: claim.job_id.clone(),
                attempt: claim.attempt,
                result: result.clone(),
                item_scores: item_scores.clone(),
                phases: phases.to_vec(),
                receipt: receipt.clone(),
            };
            let db = context.db.get();
            if let Some(ladder) = ladder {
                return allowance::succeed_on_ladder(
                    &db, claim, *ladder, *policy, figures, attempt,
                )
                .await;
            }
            attempt.result = attempt.result.with_figures(policy.disclose(figures, None)?);
            match sealed {
                Some(sealed) => work::succeed_with_sealed(&db, claim, attempt, sealed).await,
                None => context.results.execute(attempt).await,
            }
        }
        Outcome::Predicted(predicted) => write_prediction(context, claim, predicted, phases).await,
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

/// Writes a prediction job's result.
async fn write_prediction(
    context: &AttemptContext,
    claim: &Claim,
    predicted: &Predicted,
    phases: &[Phase],
) -> Result<bool> {
    let ClaimedTask::Predict(prediction) = &claim.task else {
        return Err(Error::internal("an eval has no output"));
    };
    let Predicted {
        output,
        output_bytes,
        output_sha256,
        counts:
            PredictedCounts {
                n,
                n_failed,
                n_truncated,
                n_unknown,
                n_cold,
            },
    } = predicted;
    let result = |expires_at| PredictResult {
        model_id: prediction.model.id.clone(),
        model_version: prediction.model.version.clone(),
        operation: Endpoint::Predict,
        engine: prediction.model.engine.clone(),
        hfm_sha: context.hfm_sha.clone(),
        n: *n,
        n_failed: *n_failed,
        n_truncated: *n_truncated,
        n_unknown: *n_unknown,
        n_cold: *n_cold,
        usage: PredictionUsage {
            predict_items: n - n_failed,
        },
        output_ref: prediction.output_upload_id.to_string(),
        output_bytes: *output_bytes,
        output_sha256: output_sha256.clone(),
        expires_at,
        eval_job_id: prediction.eval_job_id.as_ref().map(ToString::to_string),
    };
    work::succeed_prediction(&context.db.get(), claim, output, result, phases).await
}
