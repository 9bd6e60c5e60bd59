//! Sequences of requests, and messages of `ServingService` whose fields differ from those of their resource.

use std::borrow::Cow;

use assay_core::Timestamp;
use assay_core::model::sequence::{Event, Sequence};
use assay_core::model::serving::{
    EmbedData, Embeddings, GeneratedPart, Generations, PredictData, Predictions, Served,
};

use crate::v1;
use crate::v1::stream_generate_response::Part;

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

impl From<Served<Predictions>> for v1::PredictResponse {
    fn from(served: Served<Predictions>) -> Self {
        Self {
            engine_time_ms: served.engine_time.as_secs_f64() * 1000.0,
            idempotency_replayed: served.replayed,
            predictions: Some(served.result.into()),
        }
    }
}

impl From<PredictData> for v1::PredictData {
    fn from(data: PredictData) -> Self {
        let PredictData {
            sequence_id,
            prediction,
            scores,
            exact,
            n_events,
            n_used,
            n_unknown,
            cold,
        } = data;
        let scored = |(item_id, score)| v1::Scored { item_id, score };
        Self {
            sequence_id,
            prediction: prediction.into_iter().zip(scores).map(scored).collect(),
            exact,
            n_events,
            n_used,
            n_unknown,
            cold,
        }
    }
}

impl From<Served<Generations>> for v1::GenerateResponse {
    fn from(served: Served<Generations>) -> Self {
        Self {
            engine_time_ms: served.engine_time.as_secs_f64() * 1000.0,
            idempotency_replayed: served.replayed,
            generations: Some(served.result.into()),
        }
    }
}

impl From<GeneratedPart> for v1::StreamGenerateResponse {
    fn from(part: GeneratedPart) -> Self {
        let part = match part {
            GeneratedPart::Event(event) => Part::Event(event.into()),
            GeneratedPart::Done(served) => Part::Done(served.into()),
        };
        Self { part: Some(part) }
    }
}

impl From<Served<Embeddings>> for v1::EmbedResponse {
    fn from(served: Served<Embeddings>) -> Self {
        Self {
            engine_time_ms: served.engine_time.as_secs_f64() * 1000.0,
            idempotency_replayed: served.replayed,
            embeddings: Some(served.result.into()),
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
