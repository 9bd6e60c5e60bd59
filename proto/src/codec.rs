//! The codec that all rpcs use: prost, and a request message is charged before it is decoded. One
//! mebibyte can decode to a hundred, because an empty nested message has two bytes.

use std::marker::PhantomData;
use std::sync::Arc;

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Memory that a message in a list takes, in bytes: four times the largest message that is repeated in a
/// request, because a list has room for four elements at least, and a growing one for twice as many as
/// it has.
const MESSAGE_BYTES: u64 = 4 * 72;

/// Memory that a string in a list takes, without its bytes.
const STRING_BYTES: u64 = 4 * 24;

/// The depth to which nested messages are counted. Requests are less deep.
const LEVELS: u32 = 5;

/// The largest decoded request, in bytes. A larger one has more elements than any operation accepts.
pub const DECODED_MAX: u64 = 32 * 1024 * 1024;

/// Charges a decoded message, in bytes. Returns `false` if there is no room for it.
pub type ChargeDecoded = Arc<dyn Fn(u64) -> bool + Send + Sync>;

tokio::task_local! {
    /// Charges the messages that the present task decodes. A server sets it for each request; a
    /// client charges nothing.
    pub static CHARGE_DECODED: ChargeDecoded;
}

/// The codec in the generated services and clients.
#[derive(Debug)]
pub struct ChargedCodec<Encoded, Decoded>(PhantomData<(Encoded, Decoded)>);

impl<Encoded, Decoded> Default for ChargedCodec<Encoded, Decoded> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Encoded, Decoded> Codec for ChargedCodec<Encoded, Decoded>
where
    Encoded: Message + Send + 'static,
    Decoded: Message + Default + Send + 'static,
{
    type Encode = Encoded;
    type Decode = Decoded;
    type Encoder = ProstEncoder<Encoded>;
    type Decoder = ChargedDecoder<Decoded>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        ChargedDecoder::default()
    }
}

/// Decodes a message after its memory was charged.
#[derive(Debug)]
pub struct ChargedDecoder<Decoded>(ProstDecoder<Decoded>);

impl<Decoded> Default for ChargedDecoder<Decoded> {
    fn default() -> Self {
        Self(ProstDecoder::default())
    }
}

impl<Decoded: Message + Default> Decoder for ChargedDecoder<Decoded> {
    type Item = Decoded;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Decoded>, Status> {
        charge(message)?;
        self.0.decode(message)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Charges the memory that a message takes once it is decoded.
///
/// # Errors
/// `OUT_OF_RANGE` if it takes more than [`DECODED_MAX`], as tonic reports a message that is too
/// large; `UNAVAILABLE` if there is no room for it.
fn charge(message: &DecodeBuf<'_>) -> Result<(), Status> {
    use prost::bytes::Buf as _;

    CHARGE_DECODED
        .try_with(|charge| {
            // tonic hands over a message in one piece.
            let bytes = decoded_bytes(message.chunk(), LEVELS).unwrap_or_default();
            if bytes > DECODED_MAX {
                return Err(Status::out_of_range("the message has too many elements"));
            }
            if charge(bytes) {
                Ok(())
            } else {
                Err(Status::unavailable("no memory for the message"))
            }
        })
        .unwrap_or(Ok(()))
}

/// Returns an upper bound for a decoded message's memory, without decoding it. `None` if it is
/// not a message. A string may happen to be one as well, and then counts as a message.
fn decoded_bytes(mut message: &[u8], levels: u32) -> Option<u64> {
    let mut bytes = 0_u64;
    while !message.is_empty() {
        let (_, wire_type) = decode_key(&mut message).ok()?;
        let skipped = match wire_type {
            WireType::Varint => {
                decode_varint(&mut message).ok()?;
                0
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
                let field = message.get(..length)?;
                let nested = match levels {
                    0 => None,
                    _ => decoded_bytes(field, levels - 1),
                };
                bytes +=
                    length as u64 + nested.map_or(STRING_BYTES, |nested| MESSAGE_BYTES + nested);
                length
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        message = message.get(skipped..)?;
        bytes += 8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    fn predict(sequences: usize, events: usize) -> v1::PredictRequest {
        let event = v1::SequenceEvent {
            item_id: "i".into(),
            r#type: None,
            ts: Some(prost_types::Timestamp {
                seconds: 1,
                nanos: 0,
            }),
        };
        let sequence = v1::Sequence {
            sequence_id: "s".into(),
            events: vec![event; events],
            options: vec!["o".into(); events],
        };
        v1::PredictRequest {
            model_id: "m".into(),
            sequences: vec![sequence; sequences],
            ..Default::default()
        }
    }

    /// Memory that the request's elements take in lists that have grown one by one.
    fn least(sequences: usize, events: usize) -> u64 {
        let capacity = |length: usize| match length {
            0 => 0,
            length => length.next_power_of_two().max(4),
        };
        let lists = capacity(events) * (size_of::<v1::SequenceEvent>() + size_of::<String>());
        (capacity(sequences) * size_of::<v1::Sequence>() + sequences * lists) as u64
    }

    #[test]
    fn bound_covers_lists() {
        for (sequences, events) in [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1000, 1),
            (1, 5000),
            (64, 33),
            (64, 1000),
        ] {
            let encoded = predict(sequences, events).encode_to_vec();
            let bound = decoded_bytes(&encoded, LEVELS).unwrap();
            let least = least(sequences, events);
            assert!(bound >= least, "{sequences} × {events}: {bound} < {least}");
        }
        let flood = [0x12, 0].repeat(500_000);
        assert!(decoded_bytes(&flood, LEVELS).unwrap() > DECODED_MAX);
        let largest = predict(64, 500).encode_to_vec();
        assert!(decoded_bytes(&largest, LEVELS).unwrap() <= DECODED_MAX);
    }

    #[test]
    fn malformed_messages_have_no_bound() {
        for malformed in [&[0x12, 5, 1][..], &[0xff], &[0x0b], &[0x0d, 1]] {
            assert_eq!(decoded_bytes(malformed, LEVELS), None, "{malformed:?}");
        }
    }
}
