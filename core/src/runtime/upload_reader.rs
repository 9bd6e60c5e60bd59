//! Reads an upload from its objects to predictions or lines, in bounded memory. An async task fetches the
//! objects; a thread of the blocking thread pool decompresses and reads them.

use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;

use assay_eval::content::{ContentFormat, ReadEnd, read_content, read_pieces};
use assay_eval::prediction::PredictionSink;
use bytes::{Buf as _, Bytes};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::model::error::{Error, Result};
use crate::model::upload::PartObject;
use crate::runtime::artifacts::{Artifacts, windows};
use crate::runtime::lines::{Line, Lines};

/// Number of fetched pieces that wait for the reader.
const PIECES_AHEAD: usize = 1;

/// The result of reading an upload.
pub struct ReadUpload<T> {
    /// The value that the reading closure returned.
    pub value: T,
    /// The SHA-256 of all bytes as they were sent, if it was requested.
    pub sha256: Option<[u8; 32]>,
}

/// Reads an upload: passes its content to `read` on the blocking thread pool, and computes the
/// SHA-256 of all bytes as they were sent if `compute_sha256` is set. Returns `None` if an object is
/// missing, and fails if the artifact store does; the value of `read` is dropped in both cases, as it
/// comes from incomplete content.
pub async fn read_upload<T: Send + 'static>(
    artifacts: &Artifacts,
    parts: &[PartObject],
    format: ContentFormat,
    compute_sha256: bool,
    read: impl FnOnce(ContentReader<'_>) -> T + Send + 'static,
) -> Result<Option<ReadUpload<T>>> {
    let (send, receive) = mpsc::channel(PIECES_AHEAD);
    let remaining = parts.iter().map(|part| part.bytes.unsigned_abs()).sum();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = SentBytes {
            receive,
            piece: Bytes::new(),
            remaining,
            hash: compute_sha256.then(Sha256::new),
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
    /// Passes each prediction to the sink, or its errors; see [`read_content`].
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
