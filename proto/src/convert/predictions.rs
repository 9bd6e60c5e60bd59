//! The fields of encoded `CreatePredictionRequest` messages.

use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::transcode::{CreateReader, LargeFields, Unreadable, comma, delimited, text, write_text};
use crate::v1;

/// Transcodes the sequences of an encoded `CreatePredictionRequest`.
pub type CreatePredictionReader = CreateReader<CreatePredictionFields>;

/// The fields of a `CreatePredictionRequest`.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct CreatePredictionFields {
    /// The id of the model.
    pub model_id: String,
    /// The version of the model.
    pub model_version: Option<String>,
    /// The operation.
    pub operation: Option<String>,
    /// The sequences as a JSON array. `None` if the message has none: an encoded message does not
    /// distinguish an empty list from an absent one.
    pub sequences: Option<Vec<u8>>,
    /// The reference to an upload.
    pub input_ref: Option<String>,
    /// The id of a suite.
    pub suite_id: Option<String>,
    /// The options of the operation.
    pub parameters: v1::PredictionParameters,
    /// `true` to evaluate the output.
    pub evaluate: Option<bool>,
    /// The caller's name for the job.
    pub label: Option<String>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
}

impl LargeFields for CreatePredictionFields {
    fn field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        rest: &mut &[u8],
        json: &mut Vec<u8>,
    ) -> Result<bool, Unreadable> {
        let string = |rest: &mut &[u8]| Ok::<_, Unreadable>(text(rest, wire_type)?.to_owned());
        match tag {
            1 => self.model_id = string(rest)?,
            2 => self.model_version = Some(string(rest)?),
            3 => self.operation = Some(string(rest)?),
            4 => {
                json.push(if json.is_empty() { b'[' } else { b',' });
                write_sequence(json, delimited(rest, wire_type)?)?;
            }
            5 => self.input_ref = Some(string(rest)?),
            6 => self.suite_id = Some(string(rest)?),
            7 => self.parameters.merge(delimited(rest, wire_type)?)?,
            8 if wire_type == WireType::Varint => self.evaluate = Some(decode_varint(rest)? != 0),
            9 => self.label = Some(string(rest)?),
            10 => self.idempotency_key = Some(string(rest)?),
            8 => return Err(Unreadable::Malformed),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_json(&mut self, json: Vec<u8>) {
        self.sequences = Some(json);
    }
}

/// Writes a `Sequence` as JSON. As protobuf requires, the last one of a repeated string counts.
fn write_sequence(json: &mut Vec<u8>, mut message: &[u8]) -> Result<(), Unreadable> {
    let mut sequence_id = "";
    let mut options = Vec::new();
    let mut is_first = true;
    json.extend_from_slice(b"{\"events\":[");
    while !message.is_empty() {
        match decode_key(&mut message)? {
            (1, wire_type) => sequence_id = text(&mut message, wire_type)?,
            (2, wire_type) => {
                comma(json, &mut is_first);
                write_event(json, delimited(&mut message, wire_type)?)?;
            }
            (3, wire_type) => {
                options.push(if options.is_empty() { b'[' } else { b',' });
                write_text(&mut options, delimited(&mut message, wire_type)?)?;
            }
            (tag, wire_type) => skip_field(wire_type, tag, &mut message, DecodeContext::default())?,
        }
    }
    json.extend_from_slice(b"],\"sequence_id\":");
    write_text(json, sequence_id.as_bytes())?;
    if !options.is_empty() {
        json.extend_from_slice(b",\"options\":");
        json.extend_from_slice(&options);
        json.push(b']');
    }
    json.push(b'}');
    Ok(())
}

/// Writes a `SequenceEvent` as JSON.
fn write_event(json: &mut Vec<u8>, mut message: &[u8]) -> Result<(), Unreadable> {
    let mut item_id = "";
    let mut r#type = None;
    let mut ts = None::<prost_types::Timestamp>;
    while !message.is_empty() {
        match decode_key(&mut message)? {
            (1, wire_type) => item_id = text(&mut message, wire_type)?,
            (2, wire_type) => r#type = Some(text(&mut message, wire_type)?),
            (3, wire_type) => ts
                .get_or_insert_default()
                .merge(delimited(&mut message, wire_type)?)?,
            (tag, wire_type) => skip_field(wire_type, tag, &mut message, DecodeContext::default())?,
        }
    }
    json.extend_from_slice(b"{\"item_id\":");
    write_text(json, item_id.as_bytes())?;
    if let Some(r#type) = r#type {
        json.extend_from_slice(b",\"type\":");
        write_text(json, r#type.as_bytes())?;
    }
    if let Some(ts) = ts {
        json.extend_from_slice(b",\"ts\":");
        // A time outside of the years 1 to 9999 is not RFC 3339, and fails validation.
        write_text(json, ts.to_string().as_bytes())?;
    }
    json.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &v1::CreatePredictionRequest) -> CreatePredictionFields {
        let mut reader = CreatePredictionReader::new(message.encode_to_vec().into(), usize::MAX);
        reader.step(usize::MAX).unwrap();
        reader.finish()
    }

    #[test]
    fn sequences_become_json() {
        let event = |item_id: &str, r#type: Option<&str>, seconds: Option<i64>| v1::SequenceEvent {
            item_id: item_id.into(),
            r#type: r#type.map(Into::into),
            ts: seconds.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }),
        };
        let message = v1::CreatePredictionRequest {
            model_id: "m".into(),
            sequences: vec![
                v1::Sequence {
                    sequence_id: "a\"".into(),
                    events: vec![event("x", None, None), event("ä", Some("buy"), Some(0))],
                    options: vec!["x".into(), "y".into()],
                },
                v1::Sequence::default(),
            ],
            parameters: Some(v1::PredictionParameters {
                top_k: Some(7),
                ..v1::PredictionParameters::default()
            }),
            evaluate: Some(true),
            idempotency_key: Some("k".into()),
            ..v1::CreatePredictionRequest::default()
        };
        let fields = read(&message);
        let json = String::from_utf8(fields.sequences.clone().unwrap()).unwrap();
        let expected = r#"[{"events":[{"item_id":"x"},{"item_id":"ä","type":"buy","ts":"1970-01-01T00:00:00Z"}],"sequence_id":"a\"","options":["x","y"]},{"events":[],"sequence_id":""}]"#;
        assert_eq!(json, expected);
        assert_eq!(
            (
                fields.model_id.as_str(),
                fields.parameters.top_k,
                fields.evaluate
            ),
            ("m", Some(7), Some(true))
        );
        assert_eq!(fields.idempotency_key.as_deref(), Some("k"));
        assert_eq!(
            read(&v1::CreatePredictionRequest::default()),
            CreatePredictionFields::default()
        );
    }

    #[test]
    fn malformed_message_is_rejected() {
        for message in [
            &b"\x22\x05\x0a"[..],
            b"\x0a\x01\xff",
            b"\x42\x00",
            b"\x22\x02\x08\x01",
        ] {
            let mut reader = CreatePredictionReader::new(message.to_vec().into(), 100);
            assert_eq!(reader.step(100), Err(Unreadable::Malformed), "{message:?}");
        }
        let long = v1::CreatePredictionRequest {
            sequences: vec![v1::Sequence::default(); 100],
            ..v1::CreatePredictionRequest::default()
        };
        let mut reader = CreatePredictionReader::new(long.encode_to_vec().into(), 100);
        assert_eq!(reader.step(usize::MAX), Err(Unreadable::TooLarge));
    }
}
