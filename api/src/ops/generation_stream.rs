//! The stream of `generate`: the events as soon as they are known, then the complete result.

use std::pin::pin;

use assay_core::model::permissions::{ModelRunner, TermsAccepted};
use assay_core::model::serving::{
    GeneratedEvent, GeneratedPart, Generations, Served, StreamedEvent,
};
use assay_core::model::serving_options::GenerateFields;
use assay_core::{Error, Result};
use assay_engine_client::EarlyEvent;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::serving::{Generation, ServeFields};
use super::serving_request::Started;
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;

/// A stream that has its first event.
pub struct GenerationStream {
    /// The version of the model.
    pub model_version: String,
    /// `true` if an earlier request with the same idempotency key was charged.
    pub replayed: bool,
    /// The events, and then the complete result. An error ends the stream.
    pub parts: BoxStream<'static, Result<GeneratedPart>>,
}

/// Continues each sequence, and returns the events as soon as they are known. The last part is the
/// result of [`generate`](super::serving::generate). An error is returned instead of the stream if no
/// event is known before it.
///
/// # Errors
/// As [`predict`](super::serving::predict). In the mode `beam`, the request must have one
/// continuation.
pub async fn stream_generate(
    app: &App,
    submitter: &TermsAccepted<ModelRunner>,
    fields: ServeFields<'_>,
    generate: GenerateFields,
) -> Result<GenerationStream> {
    let org_id = submitter.proof().caller().org_id().as_str();
    let open_stream = app.concurrency.generation_streams.acquire(org_id).await?;
    let (generation, started, permit) =
        Generation::start(app, submitter, fields, generate, true).await?;
    let generation = generation.into_owned();
    let model_version = generation.model_version().to_owned();
    let sequence_ids: Vec<String> = generation.sequence_ids().collect();
    let (first, has_first) = oneshot::channel();
    let (sender, received) = unbounded_channel();
    app.request_tasks.spawn({
        let app = app.clone();
        async move {
            let _permit = permit;
            let receiver_is_gone = sender.clone();
            tokio::select! {
                // The client has disconnected.
                () = receiver_is_gone.closed() => {}
                () = compute(&app, generation, started, first, &sender) => {}
            }
        }
    });
    let replayed = has_first.await.map_err(Error::internal)??;
    let parts = Parts {
        received,
        n_sent: vec![Vec::new(); sequence_ids.len()],
        sequence_ids,
        rest: None,
        _open_stream: open_stream,
    };
    Ok(GenerationStream {
        model_version,
        replayed,
        parts: stream::unfold(parts, Parts::next).boxed(),
    })
}

/// A message of the computation. Their queue has no limit, so that a slow client delays no engine:
/// the early events are part of the result, which is in memory as well.
enum Message {
    Early(EarlyEvent),
    Done(Served<Generations>),
}

/// Computes the continuations. `first` gets whether an earlier request was charged, when the first
/// event is known, or the error before it.
async fn compute(
    app: &App,
    generation: Generation<'static>,
    mut started: Started,
    first: oneshot::Sender<Result<bool>>,
    messages: &UnboundedSender<Result<Message>>,
) {
    let mut first = Some(first);
    let (early, mut events) = unbounded_channel();
    let computed = {
        let call = started.call;
        let mut computing = pin!(generation.compute(app, call, Some(&early)));
        loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => {
                    if let Some(first) = first.take() {
                        let kept = started.keep_charge().await;
                        let is_charged = kept.is_ok();
                        let _ = first.send(kept);
                        if !is_charged {
                            return;
                        }
                    }
                    let _ = messages.send(Ok(Message::Early(event)));
                }
                computed = &mut computing => break computed,
            }
        }
    };
    // Events that are still in the queue are part of the result as well.
    let result = generation.finish(started, computed).await;
    // Without a receiver, the client has disconnected.
    let _ = match (result, first) {
        (Ok(served), Some(first)) => {
            let _ = first.send(Ok(served.replayed));
            messages.send(Ok(Message::Done(served)))
        }
        (Ok(served), None) => messages.send(Ok(Message::Done(served))),
        (Err(error), Some(first)) => {
            let _ = first.send(Err(error));
            return;
        }
        (Err(error), None) => messages.send(Err(error)),
    };
}

/// The state of the stream.
struct Parts {
    received: UnboundedReceiver<Result<Message>>,
    sequence_ids: Vec<String>,
    /// The number of events sent, by the indexes of the sequence and of the continuation.
    n_sent: Vec<Vec<usize>>,
    /// The result, and the index of the sequence that is sent.
    rest: Option<(Served<Generations>, usize)>,
    /// Held until the client has read everything, because the result is in memory until then.
    _open_stream: ConcurrencyPermit,
}

impl Parts {
    /// Returns the next part and the state after it, or `None` after the end.
    async fn next(mut self) -> Option<(Result<GeneratedPart>, Self)> {
        loop {
            if let Some((served, sequence)) = self.rest.take() {
                let Some(data) = served.result.data.get(sequence) else {
                    self.received.close();
                    return Some((Ok(GeneratedPart::Done(served)), self));
                };
                let mut unsent = data.continuations.iter().enumerate();
                let unsent = unsent.find_map(|(continuation, generated)| {
                    let event = generated.events.get(self.n_sent(sequence, continuation))?;
                    Some((continuation, event.clone()))
                });
                let Some((continuation, event)) = unsent else {
                    self.rest = Some((served, sequence + 1));
                    continue;
                };
                self.rest = Some((served, sequence));
                return Some((Ok(self.event(sequence, continuation, event)), self));
            }
            match self.received.recv().await? {
                Ok(Message::Early(event)) => {
                    let EarlyEvent {
                        sequence,
                        continuation,
                        item_id,
                    } = event;
                    let event = GeneratedEvent {
                        item_id,
                        r#type: None,
                    };
                    return Some((Ok(self.event(sequence, continuation, event)), self));
                }
                Ok(Message::Done(served)) => self.rest = Some((served, 0)),
                Err(error) => return Some((Err(error), self)),
            }
        }
    }

    fn n_sent(&self, sequence: usize, continuation: usize) -> usize {
        let counts = self.n_sent.get(sequence);
        let n_sent = counts.and_then(|counts| counts.get(continuation));
        n_sent.copied().unwrap_or(0)
    }

    fn event(
        &mut self,
        sequence: usize,
        continuation: usize,
        event: GeneratedEvent,
    ) -> GeneratedPart {
        if let Some(of_sequence) = self.n_sent.get_mut(sequence) {
            let length = of_sequence.len().max(continuation + 1);
            of_sequence.resize(length, 0);
            of_sequence[continuation] += 1;
        }
        let sequence_id = self.sequence_ids.get(sequence);
        GeneratedPart::Event(StreamedEvent {
            sequence_id: sequence_id.cloned().unwrap_or_default(),
            continuation: u32::try_from(continuation).unwrap_or(u32::MAX),
            event,
        })
    }
}
