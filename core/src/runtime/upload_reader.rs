//! Reads an upload from its objects to predictions or lines, in bounded memory. An async task fetches the
//! objects; a thread of the blocking thread pool decompresses and reads them.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;

use assay_eval::prediction::{PredictionSink, Stream};
use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::model::error::{Error, Result};
use crate::model::upload::PartObject;
use crate::model::upload::{ContentEncoding, ContentType};
use crate::runtime::artifacts::{Artifacts, windows};
use crate::runtime::lines::{Line, Lines};

/// Number of fetched pieces that wait for the reader.
const PIECES_AHEAD: usize = 1;

/// Number of bytes that are decompressed at once, and the largest number between two calls of
/// `check_stop`.
const DECODED_BYTES: usize = 256 * 1024;

/// The largest window of zstd, as a power of two: the window that RFC 8878 recommends every decoder
/// to support.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// An error of the content as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The content does not have the declared encoding, or is truncated.
    #[error("the compression is invalid, or the content is truncated")]
    Encoding,
    /// The decompressed content exceeds [`ContentFormat::bytes_max`].
    #[error("the decompressed content is too large")]
    TooLarge,
}

/// The way in which reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadEnd<B> {
    /// The sink received all predictions.
    Complete,
    /// The sink or `check_stop` broke off with this reason.
    Stopped(B),
    /// The content is invalid as a whole.
    Invalid(ContentError),
}

/// The format of an upload, and the limits for reading it.
#[derive(Debug, Clone, Copy)]
pub struct ContentFormat {
    /// The format of the predictions.
    pub content_type: ContentType,
    /// The compression of the bytes as they are sent.
    pub content_encoding: ContentEncoding,
    /// The largest decompressed size, in bytes.
    pub bytes_max: u64,
    /// Set to compute the SHA-256 of all bytes as they were sent.
    pub compute_sha256: bool,
}

/// The result of reading an upload.
pub struct ReadUpload<T> {
    /// The value that the reading closure returned.
    pub value: T,
    /// The SHA-256 of all bytes as they were sent, if it was requested.
    pub sha256: Option<[u8; 32]>,
}

/// Reads an upload: passes its content to `read` on the blocking thread pool. Returns `None` if an
/// object is missing, and fails if the artifact store does; the value of `read` is dropped in both
/// cases, as it comes from incomplete content.
pub async fn read_upload<T: Send + 'static>(
    artifacts: &Artifacts,
    parts: &[PartObject],
    format: ContentFormat,
    read: impl FnOnce(ContentReader<'_>) -> T + Send + 'static,
) -> Result<Option<ReadUpload<T>>> {
    let (send, receive) = mpsc::channel(PIECES_AHEAD);
    let remaining = parts.iter().map(|part| part.bytes.unsigned_abs()).sum();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = SentBytes {
            receive,
            piece: Bytes::new(),
            remaining,
            hash: format.compute_sha256.then(Sha256::new),
        };
        let value = read(ContentReader {
            bytes: &mut bytes,
            format,
        });
        ReadUpload {
            value,
            sha256: bytes.finish_hash(),
        }
    });
    let fetched = fetch(artifacts, parts, send).await;
    let read = reading.await.map_err(Error::internal)?;
    Ok(fetched?.map(|()| read))
}

/// Sends the bytes of all parts, until the receiver is dropped. `None` if an object is missing.
async fn fetch(
    artifacts: &Artifacts,
    parts: &[PartObject],
    send: mpsc::Sender<Bytes>,
) -> Result<Option<()>> {
    for part in parts {
        for range in windows(part.bytes.unsigned_abs()) {
            let expected = range.end - range.start;
            let Some(piece) = artifacts.get_range(&part.object_key, range).await? else {
                return Ok(None);
            };
            if piece.len() as u64 != expected {
                return Err(Error::internal(
                    "an object of the artifact store is shorter than when it was written",
                ));
            }
            if send.send(piece).await.is_err() {
                return Ok(Some(()));
            }
        }
    }
    Ok(Some(()))
}

/// The content of an upload, to be read once.
pub struct ContentReader<'r> {
    bytes: &'r mut SentBytes,
    format: ContentFormat,
}

impl ContentReader<'_> {
    /// Passes each prediction to the sink, or its errors. Calls `check_stop` before each piece of
    /// at most 256 KiB, and stops when it breaks.
    pub fn read<B>(
        self,
        check_stop: impl FnMut() -> ControlFlow<B>,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ReadEnd<B> {
        read_content(self.bytes, self.format, check_stop, sink)
    }

    /// Passes each line that is not blank to `each`, with its number from 1, and stops when it
    /// breaks.
    pub fn read_lines<B>(
        self,
        mut each: impl FnMut(usize, Line<'_>) -> ControlFlow<B>,
    ) -> ReadEnd<B> {
        let mut lines = Lines::default();
        let end = read_pieces(self.bytes, self.format, |piece| {
            lines.feed(piece, &mut each)
        });
        end.then(|| lines.finish(&mut each))
    }
}

impl<B> ReadEnd<B> {
    /// Returns the end of the reading after the last step, which follows if all bytes were read.
    fn then(self, last: impl FnOnce() -> ControlFlow<B>) -> Self {
        match self {
            Self::Complete => match last() {
                ControlFlow::Continue(()) => Self::Complete,
                ControlFlow::Break(stop) => Self::Stopped(stop),
            },
            end => end,
        }
    }
}

/// Reads content from its bytes as they were sent; see [`ContentReader::read`].
pub fn read_content<B>(
    sent: impl BufRead,
    format: ContentFormat,
    mut check_stop: impl FnMut() -> ControlFlow<B>,
    sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
) -> ReadEnd<B> {
    let mut stream = Stream::new(format.content_type.layout());
    let end = read_pieces(sent, format, |piece| {
        check_stop()?;
        stream.feed(piece, sink)
    });
    end.then(|| stream.finish(sink))
}

/// Decompresses content, and passes it on in pieces of at most 256 KiB.
fn read_pieces<B>(
    sent: impl BufRead,
    format: ContentFormat,
    each: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> ReadEnd<B> {
    match format.content_encoding {
        ContentEncoding::Identity => read_decoded(sent, format, each),
        ContentEncoding::Gzip => {
            let decoder = BufReader::with_capacity(DECODED_BYTES, MultiGzDecoder::new(sent));
            read_decoded(decoder, format, each)
        }
        ContentEncoding::Zstd => match zstd_decoder(sent) {
            Ok(decoder) => {
                let decoder = BufReader::with_capacity(DECODED_BYTES, decoder);
                read_decoded(decoder, format, each)
            }
            Err(_) => ReadEnd::Invalid(ContentError::Encoding),
        },
    }
}

fn zstd_decoder<R: BufRead>(sent: R) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(sent)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn read_decoded<B>(
    mut bytes: impl BufRead,
    format: ContentFormat,
    mut each: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> ReadEnd<B> {
    let mut n_read = 0;
    loop {
        let piece = match bytes.fill_buf() {
            Ok([]) => return ReadEnd::Complete,
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return ReadEnd::Invalid(ContentError::Encoding),
        };
        // Uncompressed pieces are as large as the store returns them.
        let piece = &piece[..piece.len().min(DECODED_BYTES)];
        n_read += piece.len() as u64;
        if n_read > format.bytes_max {
            return ReadEnd::Invalid(ContentError::TooLarge);
        }
        if let ControlFlow::Break(stop) = each(piece) {
            return ReadEnd::Stopped(stop);
        }
        let consumed = piece.len();
        bytes.consume(consumed);
    }
}

/// The bytes of an upload as they were sent, received from the task that fetches them.
struct SentBytes {
    receive: mpsc::Receiver<Bytes>,
    piece: Bytes,
    /// Number of bytes that were not received yet. If the sender ends before, the content is
    /// truncated.
    remaining: u64,
    hash: Option<Sha256>,
}

impl SentBytes {
    /// Returns the hash of all bytes. Reads those that were not read.
    fn finish_hash(mut self) -> Option<[u8; 32]> {
        self.hash.as_ref()?;
        while !self.fill_buf().ok()?.is_empty() {
            self.piece.clear();
        }
        self.hash.map(|hash| hash.finalize().into())
    }
}

impl Read for SentBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let n = piece.len().min(into.len());
        into[..n].copy_from_slice(&piece[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for SentBytes {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.is_empty() && self.remaining > 0 {
            self.piece = self
                .receive
                .blocking_recv()
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            self.remaining = self.remaining.saturating_sub(self.piece.len() as u64);
            if let Some(hash) = &mut self.hash {
                hash.update(&self.piece);
            }
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, n: usize) {
        self.piece.advance(n);
    }
}
