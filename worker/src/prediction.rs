//! A prediction job's work: read the sequences, let an engine rank items for them, and write the
//! output.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use assay_core::model::prediction::{CHUNK_DEADLINE, OutputId};
use assay_core::model::sequence::Sequence;
use assay_core::model::serving::{EventCounts, Ranking, Refusal};
use assay_core::store::work::{Claim, ClaimedPrediction};
use assay_core::{Code, Error, Result};
use assay_engine_client::{CallOptions, Computed, Engines, Priority};
use assay_eval::score::Progress;
use assay_eval::suite::SequencePaths;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::context::AttemptContext;
use crate::outcome::{Outcome, Predicted, PredictedCounts};
use crate::output::{FinishedOutput, OutputWriter};
use crate::phases::Phases;
use crate::sequence_source::{Chunk, SequenceSource};

/// The waits before a chunk is sent again because its engine is unavailable: an engine that is
/// restarted, or saturated for a short time, costs no attempt.
const CHUNK_RETRY_DELAYS: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Chunks that are read before the engine needs them.
const CHUNKS_AHEAD: usize = 1;

/// Ranks items for all sequences in a job, and writes the output.
pub async fn predict(
    context: &AttemptContext,
    claim: &Claim,
    prediction: &ClaimedPrediction,
    phases: &mut Phases,
    progress: &Arc<Progress>,
) -> Outcome {
    let source = match phases
        .record(
            "fetch input",
            SequenceSource::open(context, claim, prediction),
        )
        .await
    {
        Ok(Some(source)) => source,
        Ok(None) => return Outcome::input_missing(),
        Err(error) => return Outcome::Failed(error.log_text()),
    };
    let mut job = Job {
        context,
        prediction,
        paths: source.paths(),
        id: match source {
            SequenceSource::Suite(..) => OutputId::Item,
            SequenceSource::Input(_) => OutputId::Sequence,
        },
        seen: source.can_repeat_ids().then(HashSet::new),
        counts: PredictedCounts::default(),
        output: OutputWriter::new(
            &context.artifacts,
            &claim.org_id,
            &prediction.output_upload_id,
            claim.attempt,
        ),
    };
    let (send, receive) = mpsc::channel(CHUNKS_AHEAD);
    let work = async {
        // The reader ends early when the job fails, because the receiver is dropped.
        let (sent, predicted) = tokio::join!(
            source.send(context, send),
            job.predict_all(receive, progress)
        );
        predicted.and(sent)
    };
    if let Err(error) = phases.record("predict", work).await {
        return Outcome::from_error(&error);
    }
    let counts = job.counts;
    if counts.n != claim.n_submitted {
        return Outcome::Failed(format!(
            "{} of {} sequences were read",
            counts.n, claim.n_submitted
        ));
    }
    match phases.record("finish output", job.output.finish()).await {
        Ok(FinishedOutput {
            output,
            bytes,
            sha256,
        }) => Outcome::Predicted(Box::new(Predicted {
            output,
            output_bytes: bytes,
            output_sha256: sha256,
            counts,
        })),
        Err(error) => Outcome::Failed(error.log_text()),
    }
}

/// A prediction job's state.
struct Job<'a> {
    context: &'a AttemptContext,
    prediction: &'a ClaimedPrediction,
    paths: Option<&'a SequencePaths>,
    id: OutputId,
    /// The ids' hashes so far, if one can occur more than once.
    seen: Option<HashSet<[u8; 16]>>,
    counts: PredictedCounts,
    output: OutputWriter<'a>,
}

/// The reason why a sequence has no prediction, for its output line.
type Reason = String;

impl Job<'_> {
    /// Predicts chunks until all are received.
    async fn predict_all(
        &mut self,
        mut chunks: mpsc::Receiver<Chunk>,
        progress: &Progress,
    ) -> Result<()> {
        while let Some(chunk) = chunks.recv().await {
            self.predict_chunk(&chunk).await?;
            let done = self.counts.n.unsigned_abs();
            progress.done.store(done, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn predict_chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let mut valid = Vec::with_capacity(chunk.elements.len());
        let mut refused = Vec::new();
        for (index, element) in chunk.elements.iter().enumerate() {
            let sequence = element.read(self.paths)?;
            match self.refusal(&sequence) {
                None => valid.push((index, sequence)),
                Some(reason) => refused.push((index, sequence, reason)),
            }
        }
        let (indexes, sequences): (Vec<usize>, Vec<Sequence<'_>>) = valid.into_iter().unzip();
        let rankings = match sequences.is_empty() {
            true => Vec::new(),
            false => call(&self.context.engines, self.prediction, &sequences).await?,
        };
        let mut lines: Vec<(usize, Sequence<'_>, Result<Ranking, Reason>)> = Vec::new();
        for ((index, sequence), ranking) in indexes.into_iter().zip(sequences).zip(rankings) {
            let ranking = ranking.map_err(|refusal| reason_of(&sequence, refusal));
            lines.push((index, sequence, ranking));
        }
        lines.extend(
            refused
                .into_iter()
                .map(|(index, sequence, reason)| (index, sequence, Err(reason))),
        );
        lines.sort_unstable_by_key(|(index, ..)| *index);
        let mut text = Vec::new();
        for (_, sequence, ranking) in &lines {
            self.count(sequence, ranking.as_ref().ok());
            let item_ids = ranking.as_ref().ok().map(|ranking| &*ranking.item_ids);
            self.output.add_to_digest(&sequence.sequence_id, item_ids);
            let ranking = ranking.as_ref().map_err(String::as_str);
            self.id
                .write_line(sequence, ranking, &mut text)
                .map_err(Error::internal)?;
        }
        self.output.write(&text).await
    }

    /// Returns the reason why a sequence is not sent to the engine, if there is one.
    fn refusal(&mut self, sequence: &Sequence<'_>) -> Option<Reason> {
        let model = &self.prediction.model;
        if let Some(seen) = &mut self.seen {
            let digest: [u8; 32] = Sha256::digest(sequence.sequence_id.as_bytes()).into();
            let mut hash = [0; 16];
            hash.copy_from_slice(&digest[..16]);
            if !seen.insert(hash) {
                return Some("sequence_id: an earlier line has the same id".into());
            }
        }
        match &sequence.options {
            Some(_) if !model.ranks_options() => {
                Some("options: the model does not rank options; leave them out".into())
            }
            None if !model.returns_items => Some(
                "options: this field is required, because no tokenizer is fitted and the model \
                 cannot return items of a catalog"
                    .into(),
            ),
            _ => None,
        }
    }

    fn count(&mut self, sequence: &Sequence<'_>, ranking: Option<&Ranking>) {
        let counts = &mut self.counts;
        counts.n += 1;
        let Some(Ranking {
            counts: EventCounts { n_used, n_unknown },
            ..
        }) = ranking
        else {
            counts.n_failed += 1;
            return;
        };
        let n_known = sequence.events.len().saturating_sub(*n_unknown as usize);
        counts.n_truncated += i64::from((*n_used as usize) < n_known);
        counts.n_unknown += i64::from(*n_unknown);
        counts.n_cold += i64::from(*n_used == 0);
    }
}

/// Calls the engine, again after a wait while it is unavailable.
async fn call(
    engines: &Engines,
    prediction: &ClaimedPrediction,
    sequences: &[Sequence<'_>],
) -> Result<Vec<Result<Ranking, Refusal>>> {
    let ClaimedPrediction { model, options, .. } = prediction;
    let call = CallOptions {
        priority: Priority::Job,
        deadline: CHUNK_DEADLINE,
    };
    let mut delays = CHUNK_RETRY_DELAYS.into_iter();
    loop {
        let computed = engines.predict(model, sequences, options, call);
        match (computed.await, delays.next()) {
            (Ok(Computed { results, .. }), _) if results.len() == sequences.len() => {
                return Ok(results);
            }
            (Ok(_), _) => return Err(Error::internal("an engine left sequences out")),
            (Err(error), Some(delay)) if error.code == Code::Unavailable => {
                tracing::warn!(
                    engine = model.engine,
                    error = error.log_text(),
                    "engine unavailable, chunk is sent again"
                );
                tokio::time::sleep(delay).await;
            }
            (Err(error), _) => return Err(error),
        }
    }
}

/// Returns the engine's reason for a refusal.
fn reason_of(sequence: &Sequence<'_>, refusal: Refusal) -> Reason {
    let error = refusal.field_error(sequence, "");
    let event = match refusal {
        Refusal::UnknownItem { event: Some(event) } => sequence.events.get(event as usize),
        _ => None,
    };
    match event {
        // The events may have been sorted, so a position would not be the caller's.
        Some(event) => format!("events: {:?}: {}", event.item_id, error.message),
        None => format!("{}: {}", error.field, error.message),
    }
}
