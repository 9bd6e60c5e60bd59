//! The stream of `generate`: the events as soon as they are known, then the complete result.

use std::collections::HashMap;
use std::pin::pin;

use assay_core::model::serving::{GeneratedPart, Generations, StreamedEvent};
use assay_core::{Error, Result};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::serving::{Generation, Started};
use crate::app::App;

/// A stream that has its first event.
pub struct GenerationStream {
    /// The version of the model.
    pub model_version: String,
    /// `true` if an earlier request with the same idempotency key was charged.
    pub replayed: bool,
    /// The events, and then the complete result. An error ends the stream.
    pub parts: BoxStream<'static, Result<GeneratedPart>>,
}

/// A message from the computation. Its queue has no limit, so a slow client keeps no engine busy; a
/// request has at most 32,000 events.
enum Message {
    /// The first event is known. Carries whether an earlier request was charged.
    Started {
        replayed: bool,
    },
    Part(GeneratedPart),
}

/// Starts the computation, and waits for its first event.
///
/// # Errors
/// That of the computation, if no event is known before it.
pub(super) async fn start(
    app: &App,
    generation: Generation<'static>,
    started: Started,
) -> Result<GenerationStream> {
    let model_version = generation.model_version().to_owned();
    let (messages, mut received) = unbounded_channel();
    app.request_tasks.spawn({
        let app = app.clone();
        async move {
            let is_closed = messages.clone();
            tokio::select! {
                // The client has disconnected.
                () = is_closed.closed() => {}
                computed = compute(&app, generation, started, &messages) => {
                    if let Err(error) = computed {
                        let _ = messages.send(Err(error));
                    }
                }
            }
        }
    });
    match received.recv().await {
        Some(Ok(Message::Started { replayed })) => Ok(GenerationStream {
            model_version,
            replayed,
            parts: parts(received),
        }),
        Some(Err(error)) => Err(error),
        Some(Ok(Message::Part(_))) | None => Err(Error::internal("a generation did not start")),
    }
}

fn parts(
    received: UnboundedReceiver<Result<Message>>,
) -> BoxStream<'static, Result<GeneratedPart>> {
    stream::unfold(received, |mut received| async move {
        let part = match received.recv().await? {
            Ok(Message::Part(part)) => Ok(part),
            Ok(Message::Started { .. }) => Err(Error::internal("a generation started twice")),
            Err(error) => Err(error),
        };
        Some((part, received))
    })
    .boxed()
}

async fn compute(
    app: &App,
    generation: Generation<'static>,
    mut started: Started,
    messages: &UnboundedSender<Result<Message>>,
) -> Result<()> {
    let (early, mut events) = unbounded_channel();
    let mut sender = Sender {
        messages,
        has_started: false,
        n_sent: HashMap::new(),
    };
    let computed = {
        let call = started.call;
        let mut computing = pin!(generation.compute(app, call, Some(&early)));
        loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => {
                    sender.start(started.keep_charge().await?);
                    sender.event(generation.streamed(event));
                }
                computed = &mut computing => break computed,
            }
        }
    };
    while let Ok(event) = events.try_recv() {
        sender.start(started.keep_charge().await?);
        sender.event(generation.streamed(event));
    }
    let served = generation.finish(started, computed).await?;
    sender.start(served.replayed);
    sender.rest(&served.result);
    sender.part(GeneratedPart::Done(served));
    Ok(())
}

struct Sender<'a> {
    messages: &'a UnboundedSender<Result<Message>>,
    has_started: bool,
    /// The number of events sent of each continuation of a sequence.
    n_sent: HashMap<(String, u32), usize>,
}

impl Sender<'_> {
    /// Sends the first message, unless it is sent.
    fn start(&mut self, replayed: bool) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.send(Message::Started { replayed });
        }
    }

    fn event(&mut self, event: StreamedEvent) {
        let key = (event.sequence_id.clone(), event.continuation);
        *self.n_sent.entry(key).or_default() += 1;
        self.part(GeneratedPart::Event(event));
    }

    /// Sends the events that were not known before the result.
    fn rest(&mut self, result: &Generations) {
        for data in &result.data {
            for (continuation, generated) in (0..).zip(&data.continuations) {
                let key = (data.sequence_id.clone(), continuation);
                let n_sent = self.n_sent.get(&key).copied().unwrap_or(0);
                for event in generated.events.iter().skip(n_sent) {
                    self.part(GeneratedPart::Event(StreamedEvent {
                        sequence_id: data.sequence_id.clone(),
                        continuation,
                        event: event.clone(),
                    }));
                }
            }
        }
    }

    fn part(&self, part: GeneratedPart) {
        self.send(Message::Part(part));
    }

    fn send(&self, message: Message) {
        // Without a receiver, the computation is cancelled at its next wait.
        let _ = self.messages.send(Ok(message));
    }
}
