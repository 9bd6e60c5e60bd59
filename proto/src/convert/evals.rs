//! The reader of encoded `CreateEvalRequest` messages. A message of 5 MiB contains up to 2.6
//! million predictions. Their structs would take 48 times as much memory; as JSON, written one
//! after the other, they take no more than their strings.

use bytes::{Buf as _, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The reason why an encoded submission cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The bytes are not an encoded `CreateEvalRequest`.
    Malformed,
    /// The JSON of the predictions reaches its maximum size.
    TooLarge,
}

impl<E: std::error::Error> From<E> for Unreadable {
    fn from(_: E) -> Self {
        Self::Malformed
    }
}

/// Transcodes the predictions of an encoded `CreateEvalRequest`, step by step, to the JSON array
/// that REST accepts. Both protocols therefore check, store and score the same form. A prediction
/// without a value becomes an object without one, and fails the same validation as in REST.
#[derive(Debug, Default)]
pub struct CreateEvalReader {
    /// The bytes that are not read yet.
    rest: Bytes,
    json: Vec<u8>,
    json_max: usize,
    fields: CreateEvalFields,
}

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
}

impl CreateEvalReader {
    /// Creates a reader of `message`. The JSON of its predictions must have fewer than `json_max`
    /// bytes.
    pub fn new(message: Bytes, json_max: usize) -> Self {
        Self {
            // The JSON of ids is a little longer than their messages. The system provides the memory
            // as it is written.
            json: Vec::with_capacity(message.len() / 4 * 5),
            rest: message,
            json_max,
            ..Self::default()
        }
    }

    /// Reads until at least `bytes` more bytes of JSON are written, or to the end of the message.
    /// Returns the number of bytes written, which is less than `bytes` only at the end.
    pub fn step(&mut self, bytes: usize) -> Result<usize, Unreadable> {
        let before = self.json.len();
        // Reads from a slice: a `Bytes` would update its reference count for every string.
        let message = self.rest.clone();
        let mut at = 0;
        while at < message.len() && self.json.len() - before < bytes {
            let mut rest = &message[at..];
            self.field(&mut rest)?;
            at = message.len() - rest.len();
        }
        self.rest.advance(at);
        Ok(self.json.len() - before)
    }

    /// Returns the fields. Call it after a [`step`](Self::step) that reached the end of the
    /// message.
    pub fn finish(mut self) -> CreateEvalFields {
        if !self.json.is_empty() {
            self.json.push(b']');
            self.fields.predictions = Some(self.json);
        }
        self.fields
    }

    fn field(&mut self, rest: &mut &[u8]) -> Result<(), Unreadable> {
        let (tag, wire_type) = decode_key(rest)?;
        match tag {
            1 => self.fields.suite_id = text(rest, wire_type)?.to_owned(),
            2 => {
                self.json
                    .push(if self.json.is_empty() { b'[' } else { b',' });
                write_prediction(&mut self.json, delimited(rest, wire_type)?)?;
                if self.json.len() >= self.json_max {
                    return Err(Unreadable::TooLarge);
                }
            }
            3 => self.fields.input_ref = Some(text(rest, wire_type)?.to_owned()),
            4 => self.fields.label = Some(text(rest, wire_type)?.to_owned()),
            5 => self.fields.idempotency_key = Some(text(rest, wire_type)?.to_owned()),
            _ => skip_field(wire_type, tag, rest, DecodeContext::default())?,
        }
        Ok(())
    }
}

/// Reads the content of a length-delimited field, and advances `rest` past it.
fn delimited<'m>(rest: &mut &'m [u8], wire_type: WireType) -> Result<&'m [u8], Unreadable> {
    if wire_type != WireType::LengthDelimited {
        return Err(Unreadable::Malformed);
    }
    let length = usize::try_from(decode_varint(rest)?)?;
    let (content, behind) = rest.split_at_checked(length).ok_or(Unreadable::Malformed)?;
    *rest = behind;
    Ok(content)
}

fn text<'m>(rest: &mut &'m [u8], wire_type: WireType) -> Result<&'m str, Unreadable> {
    Ok(std::str::from_utf8(delimited(rest, wire_type)?)?)
}

fn double(rest: &mut &[u8], wire_type: WireType) -> Result<f64, Unreadable> {
    if wire_type != WireType::SixtyFourBit {
        return Err(Unreadable::Malformed);
    }
    Ok(rest.try_get_f64_le()?)
}

fn write(json: &mut Vec<u8>, value: impl serde::Serialize) -> Result<(), Unreadable> {
    Ok(serde_json::to_writer(json, &value)?)
}

/// Writes a JSON string.
fn write_text(json: &mut Vec<u8>, text: &[u8]) -> Result<(), Unreadable> {
    if !is_plain_ascii(text) {
        return write(json, std::str::from_utf8(text)?);
    }
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text);
    json.push(b'"');
    Ok(())
}

/// Returns `true` if the bytes are ASCII characters that a JSON string contains without escapes, as
/// almost all ids are. This is faster than the check for UTF-8.
fn is_plain_ascii(text: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Sets the highest bit of a byte that is below `limit`, which is at most 0x80. A borrow may set
    // further bits, but only after a match.
    let below = |word: u64, limit: u64| word.wrapping_sub(LOW * limit) & !word;
    let excluded = |word: u64| {
        let escaped = below(word ^ (LOW * 0x22), 1) | below(word ^ (LOW * 0x5c), 1);
        (word | below(word, 0x20) | escaped) & HIGH
    };
    let (words, rest) = text.as_chunks::<8>();
    let mut last = [b'-'; 8];
    last[..rest.len()].copy_from_slice(rest);
    let all = words.iter().chain([&last]);
    all.fold(0, |found, word| found | excluded(u64::from_le_bytes(*word))) == 0
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
        if !(1..=4).contains(&tag) {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            continue;
        }
        // A repeated message is merged into the JSON that is there; any other value replaces it.
        if tag != last || matches!(tag, 2 | 3) {
            json.truncate(begin);
            json.extend_from_slice(b",\"prediction\":");
            json.extend_from_slice(match tag {
                1 => b"[",
                4 => b"{",
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
        4 => b"}",
        _ => b"",
    });
    Ok(())
}

fn comma(json: &mut Vec<u8>, is_first: &mut bool) {
    if !std::mem::take(is_first) {
        json.push(b',');
    }
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

/// Writes the entries of `Probabilities` as members of an object. A repeated label is written
/// twice, which validation rejects.
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
        let mut label = "";
        let mut share = 0.0;
        while !entry.is_empty() {
            match decode_key(&mut entry)? {
                (1, wire_type) => label = text(&mut entry, wire_type)?,
                (2, wire_type) => share = double(&mut entry, wire_type)?,
                (tag, wire_type) => {
                    skip_field(wire_type, tag, &mut entry, DecodeContext::default())?;
                }
            }
        }
        comma(json, is_first);
        write_text(json, label.as_bytes())?;
        json.push(b':');
        write(json, share)?;
    }
    Ok(())
}
