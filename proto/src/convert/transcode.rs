//! The reader of encoded messages with a large list, which are submissions. A message of 5 MiB has up
//! to 2.6 million elements. Their structs would take 48 times as much memory; as JSON, written one
//! after the other, they take no more than their strings.

use bytes::{Buf as _, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The reason why an encoded submission cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// The bytes are not an encoded message.
    Malformed,
    /// The JSON of the list reaches its maximum size.
    TooLarge,
}

impl<E: std::error::Error> From<E> for Unreadable {
    fn from(_: E) -> Self {
        Self::Malformed
    }
}

/// The fields of a message with a large list.
pub trait LargeFields: Default {
    /// Reads the field with this tag, and advances `rest` past it. An element of the list is
    /// appended to `json`, after `[` or a comma. Returns `false` if there is no such field.
    fn field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        rest: &mut &[u8],
        json: &mut Vec<u8>,
    ) -> Result<bool, Unreadable>;

    /// Sets the JSON array of the list, which has at least one element.
    fn set_json(&mut self, json: Vec<u8>);
}

/// Transcodes the list of an encoded message, step by step, to the JSON array that REST accepts.
/// Both protocols therefore check, store and use the same form.
#[derive(Debug, Default)]
pub struct CreateReader<F> {
    /// The bytes that are not read yet.
    rest: Bytes,
    json: Vec<u8>,
    json_max: usize,
    fields: F,
}

impl<F: LargeFields> CreateReader<F> {
    /// Creates a reader of `message`. The JSON of its list must have fewer than `json_max` bytes.
    pub fn new(message: Bytes, json_max: usize) -> Self {
        Self {
            // The JSON of ids is a little longer than their messages. The system provides the memory
            // as it is written.
            json: Vec::with_capacity(message.len() / 4 * 5),
            rest: message,
            json_max,
            fields: F::default(),
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
            let (tag, wire_type) = decode_key(&mut rest)?;
            if !self
                .fields
                .field(tag, wire_type, &mut rest, &mut self.json)?
            {
                skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
            }
            if self.json.len() >= self.json_max {
                return Err(Unreadable::TooLarge);
            }
            at = message.len() - rest.len();
        }
        self.rest.advance(at);
        Ok(self.json.len() - before)
    }

    /// Returns the fields. Call it after a [`step`](Self::step) that reached the end of the
    /// message.
    pub fn finish(mut self) -> F {
        if !self.json.is_empty() {
            self.json.push(b']');
            self.fields.set_json(self.json);
        }
        self.fields
    }
}

/// Reads the content of a length-delimited field, and advances `rest` past it.
pub(super) fn delimited<'m>(
    rest: &mut &'m [u8],
    wire_type: WireType,
) -> Result<&'m [u8], Unreadable> {
    if wire_type != WireType::LengthDelimited {
        return Err(Unreadable::Malformed);
    }
    let length = usize::try_from(decode_varint(rest)?)?;
    let (content, behind) = rest.split_at_checked(length).ok_or(Unreadable::Malformed)?;
    *rest = behind;
    Ok(content)
}

pub(super) fn text<'m>(rest: &mut &'m [u8], wire_type: WireType) -> Result<&'m str, Unreadable> {
    Ok(std::str::from_utf8(delimited(rest, wire_type)?)?)
}

pub(super) fn double(rest: &mut &[u8], wire_type: WireType) -> Result<f64, Unreadable> {
    if wire_type != WireType::SixtyFourBit {
        return Err(Unreadable::Malformed);
    }
    Ok(rest.try_get_f64_le()?)
}

pub(super) fn write(json: &mut Vec<u8>, value: impl serde::Serialize) -> Result<(), Unreadable> {
    Ok(serde_json::to_writer(json, &value)?)
}

/// Writes a JSON string.
pub(super) fn write_text(json: &mut Vec<u8>, text: &[u8]) -> Result<(), Unreadable> {
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

/// Writes a comma unless it is the first call.
pub(super) fn comma(json: &mut Vec<u8>, is_first: &mut bool) {
    if !std::mem::take(is_first) {
        json.push(b',');
    }
}
