//! The fields of encoded `CreateEvalRequest` messages.

use std::collections::BTreeMap;

use prost::encoding::{DecodeContext, decode_key, skip_field};

use super::transcode::{
    CreateReader, LargeFields, Unreadable, comma, delimited, double, text, write, write_text,
};

/// Transcodes the predictions of an encoded `CreateEvalRequest`. A prediction without a value
/// becomes an object without one, and fails the same validation as in REST.
pub type CreateEvalReader = CreateReader<CreateEvalFields>;

/// The fields of a `CreateEvalRequest`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CreateEvalFields {
    /// The id of the suite.
    pub suite_id: String,
    /// The predictions as a JSON array. `None` if the message has none: an encoded message does not
    /// distinguish an empty list from an absent one.
    pub predictions: Option<Vec<u8>>,
    /// The reference to an upload.
    pub input_ref: Option<String>,
    /// The caller's name for the job.
    pub label: Option<String>,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The version of the suite that the predictions were made for.
    pub suite_version: Option<String>,
    /// The caller's pairs of texts.
    pub metadata: BTreeMap<String, String>,
}

impl LargeFields for CreateEvalFields {
    fn field(
        &mut self,
        tag: u32,
        wire_type: prost::encoding::WireType,
        rest: &mut &[u8],
        json: &mut Vec<u8>,
    ) -> Result<bool, Unreadable> {
        match tag {
            1 => self.suite_id = text(rest, wire_type)?.to_owned(),
            2 => {
                json.push(if json.is_empty() { b'[' } else { b',' });
                write_prediction(json, delimited(rest, wire_type)?)?;
            }
            3 => self.input_ref = Some(text(rest, wire_type)?.to_owned()),
            4 => self.label = Some(text(rest, wire_type)?.to_owned()),
            5 => self.idempotency_key = Some(text(rest, wire_type)?.to_owned()),
            6 => self.suite_version = Some(text(rest, wire_type)?.to_owned()),
            7 => {
                let (key, value) = read_pair(delimited(rest, wire_type)?)?;
                self.metadata.insert(key, value);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_json(&mut self, json: Vec<u8>) {
        self.predictions = Some(json);
    }
}

/// Reads an entry of a map of strings. An absent key or value is empty, as protobuf requires.
fn read_pair(mut message: &[u8]) -> Result<(String, String), Unreadable> {
    let (mut key, mut value) = (String::new(), String::new());
    while !message.is_empty() {
        match decode_key(&mut message)? {
            (1, wire_type) => text(&mut message, wire_type)?.clone_into(&mut key),
            (2, wire_type) => text(&mut message, wire_type)?.clone_into(&mut value),
            (tag, wire_type) => skip_field(wire_type, tag, &mut message, DecodeContext::default())?,
        }
    }
    Ok((key, value))
}

/// Writes a `Prediction` as JSON. As protobuf requires, the last one of a repeated string counts,
/// and repeated messages are merged.
fn write_prediction(json: &mut Vec<u8>, message: &[u8]) -> Result<(), Unreadable> {
    let (mut item_id, mut value, mut more): (&[u8], Option<&[u8]>, Vec<u8>) =
        (b"", None, Vec::new());
    let mut rest = message;
    while !rest.is_empty() {
        match decode_key(&mut rest)? {
            (1, wire_type) => {
                // An earlier one is not written, and must be text nevertheless.
                std::str::from_utf8(item_id)?;
                item_id = delimited(&mut rest, wire_type)?;
            }
            (2, wire_type) => {
                let content = delimited(&mut rest, wire_type)?;
                match value {
                    None => value = Some(content),
                    // Valid protobuf, although no known client writes it.
                    Some(first) => {
                        if more.is_empty() {
                            more.extend_from_slice(first);
                        }
                        more.extend_from_slice(content);
                    }
                }
            }
            (tag, wire_type) => skip_field(wire_type, tag, &mut rest, DecodeContext::default())?,
        }
    }
    json.extend_from_slice(b"{\"item_id\":");
    write_text(json, item_id)?;
    if let Some(value) = value {
        write_value(json, if more.is_empty() { value } else { &more })?;
    }
    json.push(b'}');
    Ok(())
}

/// Writes a `PredictionValue` as JSON. The last alternative of the oneof counts, merged with its
/// directly preceding repetitions.
fn write_value(json: &mut Vec<u8>, message: &[u8]) -> Result<(), Unreadable> {
    let begin = json.len();
    let mut last = 0;
    let mut is_first = true;
    let mut rest = message;
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest)?;
        if !(1..=5).contains(&tag) {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            continue;
        }
        // A repeated message is merged into the JSON that is there; any other value replaces it.
        if tag != last || matches!(tag, 2 | 3) {
            json.truncate(begin);
            json.extend_from_slice(b",\"prediction\":");
            json.extend_from_slice(match tag {
                1 => b"[",
                4 | 5 => b"{",
                _ => b"",
            });
            (last, is_first) = (tag, true);
        }
        match tag {
            1 => write_texts(json, delimited(&mut rest, wire_type)?, &mut is_first)?,
            2 => write_text(json, delimited(&mut rest, wire_type)?)?,
            // NaN and infinities become null, which validation rejects.
            3 => write(json, double(&mut rest, wire_type)?)?,
            _ => write_entries(json, delimited(&mut rest, wire_type)?, &mut is_first)?,
        }
    }
    json.extend_from_slice(match last {
        1 => b"]",
        4 | 5 => b"}",
        _ => b"",
    });
    Ok(())
}

/// Writes the ids of a `Ranking` as elements of an array.
fn write_texts(
    json: &mut Vec<u8>,
    mut message: &[u8],
    is_first: &mut bool,
) -> Result<(), Unreadable> {
    while !message.is_empty() {
        match decode_key(&mut message)? {
            (1, wire_type) => {
                comma(json, is_first);
                write_text(json, delimited(&mut message, wire_type)?)?;
            }
            (tag, wire_type) => skip_field(wire_type, tag, &mut message, DecodeContext::default())?,
        }
    }
    Ok(())
}

/// Writes the entries of `Probabilities` or `Quantiles` as members of an object. A repeated label or
/// level is written twice, which validation rejects.
fn write_entries(
    json: &mut Vec<u8>,
    mut message: &[u8],
    is_first: &mut bool,
) -> Result<(), Unreadable> {
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message)?;
        if tag != 1 {
            skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
            continue;
        }
        let mut entry = delimited(&mut message, wire_type)?;
        let mut key = "";
        let mut number = 0.0;
        while !entry.is_empty() {
            match decode_key(&mut entry)? {
                (1, wire_type) => key = text(&mut entry, wire_type)?,
                (2, wire_type) => number = double(&mut entry, wire_type)?,
                (tag, wire_type) => {
                    skip_field(wire_type, tag, &mut entry, DecodeContext::default())?;
                }
            }
        }
        comma(json, is_first);
        write_text(json, key.as_bytes())?;
        json.push(b':');
        write(json, number)?;
    }
    Ok(())
}
