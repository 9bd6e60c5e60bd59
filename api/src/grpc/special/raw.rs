//! Rpcs whose messages have a large list. tonic does not decode such a request: [`CreateReader`]
//! converts the list to JSON in steps, and each step is charged to the memory budget. It does not
//! encode such a response either.

use std::marker::PhantomData;

use assay_core::{Code, Error, Result};
use assay_proto::codec::ChargedDecoder;
use assay_proto::convert::{CreateReader, LargeFields, Unreadable};
use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstEncoder;

use crate::limits::request_memory::Reservation;
use crate::ops::evals::BODY_MAX;

/// Maximum size of the JSON of a message, in bytes. Valid lists grow by less than this factor.
const JSON_MAX: usize = 4 * BODY_MAX;

/// Number of bytes of JSON after which the memory budget is charged.
const STEP_BYTES: usize = 256 * 1024;

/// Responds to a call with a service that gets the encoded request message.
pub(super) async fn unary<S, R>(
    service: S,
    request: axum::extract::Request,
) -> axum::response::Response
where
    S: UnaryService<Bytes, Response = R>,
    R: prost::Message + Send + Sync + 'static,
{
    call(RawRequestCodec(PhantomData), service, request, BODY_MAX).await
}

/// Responds to a call with a service that encodes the response message itself.
pub(super) async fn encoded<S, M>(
    service: S,
    request: axum::extract::Request,
    message_max: usize,
) -> axum::response::Response
where
    S: UnaryService<M, Response = Bytes>,
    M: prost::Message + Default + Send + Sync + 'static,
{
    call(RawResponseCodec(PhantomData), service, request, message_max).await
}

/// Responds to a call whose request message has at most `message_max` bytes.
async fn call<C, S>(
    codec: C,
    service: S,
    request: axum::extract::Request,
    message_max: usize,
) -> axum::response::Response
where
    C: Codec,
    S: UnaryService<C::Decode, Response = C::Encode>,
{
    let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(message_max), None);
    let response = grpc.unary(service, request).await;
    response.map(axum::body::Body::new)
}

/// Reads the fields of an encoded message.
///
/// # Errors
/// If the message is malformed or too large, or if there is no memory for it.
pub(super) async fn read_fields<F: LargeFields>(
    message: Bytes,
    reservation: &Reservation,
) -> Result<F> {
    let mut reader = CreateReader::new(message, JSON_MAX);
    loop {
        let written = reader
            .step(STEP_BYTES)
            .map_err(|unreadable| match unreadable {
                Unreadable::Malformed => {
                    Error::new(Code::InvalidRequest, "The message cannot be decoded.")
                }
                Unreadable::TooLarge => Error::new(
                    Code::PayloadTooLarge,
                    "The message is larger than this operation accepts.",
                ),
            })?;
        reservation.grow(written as u64).await?;
        if written < STEP_BYTES {
            return Ok(reader.finish());
        }
    }
}

/// A codec that leaves the request message encoded, and encodes the response with prost.
struct RawRequestCodec<R>(PhantomData<R>);

impl<R: prost::Message + Send + Sync + 'static> Codec for RawRequestCodec<R> {
    type Encode = R;
    type Decode = Bytes;
    type Encoder = ProstEncoder<R>;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        RawDecoder
    }
}

struct RawDecoder;

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

/// A codec that decodes the request message with prost, and whose responses are encoded already.
struct RawResponseCodec<M>(PhantomData<M>);

impl<M: prost::Message + Default + Send + Sync + 'static> Codec for RawResponseCodec<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = RawEncoder;
    type Decoder = ChargedDecoder<M>;

    fn encoder(&mut self) -> Self::Encoder {
        RawEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ChargedDecoder::default()
    }
}

struct RawEncoder;

impl Encoder for RawEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}
