//! Messages of `ServingService`.

use std::borrow::Cow;

use assay_core::Timestamp;
use assay_core::model::sequence::{Event, Sequence};
use assay_core::model::serving::{
    Continuation, EmbedData, EmbedResponse, EmbedUsage, GenerateData, GenerateResponse,
    GenerateUsage, GeneratedEvent, PredictData, PredictResponse, PredictUsage, Seed, Served,
};

use crate::v1;

/// The path of a field with a timestamp that does not exist, such as
/// `sequences[0].events[2].ts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTimestamp(pub String);

/// Returns the sequences of a message. Without options, all items of the catalog are ranked.
///
/// # Errors
/// If the time of an event is not from the years 1 to 9999.
pub fn sequences(messages: Vec<v1::Sequence>) -> Result<Vec<Sequence<'static>>, InvalidTimestamp> {
    let sequences = messages.into_iter().enumerate();
    sequences
        .map(|(index, message)| sequence(index, message))
        .collect()
}

fn sequence(index: usize, message: v1::Sequence) -> Result<Sequence<'static>, InvalidTimestamp> {
    let v1::Sequence {
        sequence_id,
        events,
        options,
    } = message;
    let events = events.into_iter().enumerate().map(|(at, event)| {
        let v1::SequenceEvent {
            item_id,
            r#type,
            ts,
        } = event;
        let invalid = || InvalidTimestamp(format!("sequences[{index}].events[{at}].ts"));
        let ts = ts.map(|ts| {
            let micros = ts.seconds.checked_mul(1_000_000)?;
            let nanos = (0..1_000_000_000).contains(&ts.nanos).then_some(ts.nanos)?;
            Timestamp::from_unix_micros(micros.checked_add(i64::from(nanos / 1000))?)
        });
        Ok(Event {
            item_id: Cow::Owned(item_id),
            r#type: r#type.map(Cow::Owned),
            ts: ts.map(|ts| ts.ok_or_else(invalid)).transpose()?,
        })
    });
    Ok(Sequence {
        sequence_id: Cow::Owned(sequence_id),
        events: events.collect::<Result<_, _>>()?,
        options: (!options.is_empty()).then(|| options.into_iter().map(Cow::Owned).collect()),
    })
}

fn milliseconds<T>(served: &Served<T>) -> f64 {
    served.engine_time.as_secs_f64() * 1000.0
}

impl From<Served<PredictResponse>> for v1::PredictResponse {
    fn from(served: Served<PredictResponse>) -> Self {
        let engine_time_ms = milliseconds(&served);
        let PredictResponse {
            model_id,
            model_version,
            operation,
            data,
            usage: PredictUsage { predict_items },
        } = served.response;
        Self {
            model_id,
            model_version,
            operation: operation.to_string(),
            data: data.into_iter().map(Into::into).collect(),
            usage: Some(v1::PredictUsage { predict_items }),
            engine_time_ms,
            idempotency_replayed: served.replayed,
        }
    }
}

impl From<PredictData> for v1::PredictData {
    fn from(data: PredictData) -> Self {
        let PredictData {
            sequence_id,
            prediction,
            scores,
            n_events,
            n_used,
            n_unknown,
            cold,
        } = data;
        let scored = |(item_id, score)| v1::Scored { item_id, score };
        Self {
            sequence_id,
            prediction: prediction.into_iter().zip(scores).map(scored).collect(),
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl From<Served<GenerateResponse>> for v1::GenerateResponse {
    fn from(served: Served<GenerateResponse>) -> Self {
        let engine_time_ms = milliseconds(&served);
        let GenerateResponse {
            model_id,
            model_version,
            operation,
            seed,
            data,
            usage: GenerateUsage { generated_events },
        } = served.response;
        Self {
            model_id,
            model_version,
            operation: operation.to_string(),
            seed: seed.map(|Seed(seed)| seed),
            data: data.into_iter().map(Into::into).collect(),
            usage: Some(v1::GenerateUsage { generated_events }),
            engine_time_ms,
            idempotency_replayed: served.replayed,
        }
    }
}

impl From<GenerateData> for v1::GenerateData {
    fn from(data: GenerateData) -> Self {
        let GenerateData {
            sequence_id,
            continuations,
            n_events,
            n_used,
            n_unknown,
            cold,
        } = data;
        Self {
            sequence_id,
            continuations: continuations.into_iter().map(Into::into).collect(),
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl From<Continuation> for v1::Continuation {
    fn from(continuation: Continuation) -> Self {
        let Continuation { events, score } = continuation;
        let event = |GeneratedEvent { item_id, r#type }| v1::GeneratedEvent { item_id, r#type };
        Self {
            events: events.into_iter().map(event).collect(),
            score,
        }
    }
}

impl From<Served<EmbedResponse>> for v1::EmbedResponse {
    fn from(served: Served<EmbedResponse>) -> Self {
        let engine_time_ms = milliseconds(&served);
        let EmbedResponse {
            model_id,
            model_version,
            operation,
            dim,
            data,
            usage: EmbedUsage { embeddings },
        } = served.response;
        Self {
            model_id,
            model_version,
            operation: operation.to_string(),
            dim,
            data: data.into_iter().map(Into::into).collect(),
            usage: Some(v1::EmbedUsage { embeddings }),
            engine_time_ms,
            idempotency_replayed: served.replayed,
        }
    }
}

impl From<EmbedData> for v1::EmbedData {
    fn from(data: EmbedData) -> Self {
        let EmbedData {
            sequence_id,
            embedding,
            n_events,
            n_used,
            n_unknown,
            cold,
        } = data;
        Self {
            sequence_id,
            // The encoding is one of JSON.
            embedding: embedding.vector,
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}
