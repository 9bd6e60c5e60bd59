//! An eval's work: fetch the submission and score it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use assay_core::model::job::{EvalResult, FailureCode, stores_item_scores};
use assay_core::model::receipt::NewReceipt;
use assay_core::model::suite::NamedVersion;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::prometheus;
use assay_core::runtime::upload_reader::{ContentReader, ReadUpload, read_upload};
use assay_core::store::item_scores::{ITEM_SCORES_ROW_BYTES_MAX, ItemScoresIn};
use assay_core::store::new_job::ROW_BYTES_MAX;
use assay_core::store::work::Claim;
use assay_core::{Error, Result};
use assay_eval::content::ReadEnd;
use assay_eval::item_scores::ItemScores;
use assay_eval::prediction::{CellForm, HashedPredictions};
use assay_eval::score::{Failure, Progress, Score, Scorer, score_and_hash};
use assay_eval::{DisclosurePolicy, Scoring};
use bytes::Bytes;

use crate::answer_cache::Answers;
use crate::context::AttemptContext;
use crate::input::{Input, InputPlace, fetch_input};
use crate::outcome::{Outcome, Scored};
use crate::phases::Phases;

/// Largest item-score piece that is written at once, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// A score, and the SHA-256 of the predictions' normal form.
pub type ScoredInput = (Score, [u8; 32]);

/// The slices whose figures are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoredSlices {
    /// Those that the result of a job discloses: none if the policy is a ladder. So the duration of the
    /// job discloses nothing about them.
    OfJob,
    /// All, for the board.
    All,
}

fn scorer<'a>(answers: &'a Answers, progress: &'a Progress, slices: ScoredSlices) -> Scorer<'a> {
    let Scoring { metric, policy, .. } = answers.scoring;
    let scorer = Scorer::new(&answers.open, metric, progress).with_sealed(answers.sealed.as_ref());
    match (slices, policy) {
        (ScoredSlices::OfJob, DisclosurePolicy::Ladder(_)) => scorer.without_slices(),
        _ => scorer,
    }
}

/// Scores the submission, on the blocking thread pool unless it is small. `None` if the input is missing.
pub async fn score_input(
    context: &AttemptContext,
    answers: Arc<Answers>,
    input: Input,
    progress: Arc<Progress>,
    slices: ScoredSlices,
) -> Result<Option<Result<ScoredInput, Failure>>> {
    let (format, parts) = match input {
        Input::Inline(bytes) => {
            let is_small = bytes.len() <= ROW_BYTES_MAX;
            let score = move || score_and_hash(scorer(&answers, &progress, slices), &bytes);
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
        let mut scorer = HashedPredictions::new(scorer(&answers, &progress, slices));
        let check_stop = || {
            if progress.stop.load(Ordering::Relaxed) {
                ControlFlow::Break(Failure::Stopped)
            } else {
                ControlFlow::Continue(())
            }
        };
        let cells = CellForm::of(answers.scoring.metric);
        match content.read(cells, check_stop, &mut scorer) {
            ReadEnd::Complete => {
                let (scorer, predictions_sha256) = scorer.finish();
                Ok(scorer.finish().map(|score| (score, predictions_sha256)))
            }
            ReadEnd::Stopped(failure) => Ok(Err(failure)),
            ReadEnd::Invalid(error) => Err(error),
        }
    };
    match read_upload(&context.artifacts, &parts, format, false, scoring).await? {
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
pub async fn evaluate(
    context: &AttemptContext,
    claim: &Claim,
    suite: &NamedVersion,
    phases: &mut Phases,
    progress: &Arc<Progress>,
) -> Outcome {
    let fetched = fetch_input(context, &claim.org_id, InputPlace::of(claim));
    let input = match phases.record("fetch input", fetched).await {
        Ok(Some(input)) => input,
        Ok(None) => return Outcome::input_missing(),
        Err(error) => return Outcome::Failed(error.log_text()),
    };
    let answers = match phases
        .record(
            "load answers",
            context.answers.get(&suite.suite_id, &suite.version),
        )
        .await
    {
        Ok(answers) => answers,
        Err(error) => return Outcome::from_error(&error),
    };
    let scoring = answers.scoring;
    match phases
        .record(
            "score",
            score_input(
                context,
                answers,
                input,
                Arc::clone(progress),
                ScoredSlices::OfJob,
            ),
        )
        .await
    {
        Ok(Some(Ok((score, predictions_sha256)))) => {
            metrics::counter!(prometheus::ITEMS_SCORED).increment(score.n_submitted.unsigned_abs());
            let receipt = match NewReceipt::new(predictions_sha256, claim.holders.clone()) {
                Ok(receipt) => receipt,
                Err(error) => return Outcome::Failed(error.log_text()),
            };
            let (mut scored, items) =
                split_score(context, suite, scoring, score, receipt, claim.by_publisher);
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
        Ok(None) => Outcome::input_missing(),
        Err(error) => Outcome::Failed(error.log_text()),
    }
}

/// Splits a score into the result and the item scores. The item scores are stored only if the
/// policy allows comparisons and [`stores_item_scores`] finds enough predictions.
fn split_score(
    context: &AttemptContext,
    suite: &NamedVersion,
    scoring: Scoring,
    score: Score,
    receipt: NewReceipt,
    by_publisher: Option<bool>,
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
        suite_id: suite.suite_id.to_string(),
        suite_version: suite.version.clone(),
        value: 0.0,
        stderr: None,
        ci95: None,
        ci_method: None,
        metrics: [].into(),
        release: scoring.policy.to_string(),
        sealed: None,
        n_clusters: None,
        design_effect: None,
        slices: Vec::new(),
        ceiling: None,
        share_of_ceiling: None,
        skill: None,
        by_publisher,
    };
    let items = (scoring.policy.allows_comparisons() && stores_item_scores(n - n_missing, n))
        .then_some(items);
    (
        Scored {
            result,
            figures,
            sealed,
            scoring,
            item_scores: None,
            receipt,
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
