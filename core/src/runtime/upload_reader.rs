//! Reads an upload from its objects to predictions or lines, in bounded memory. An async task fetches the
//! objects; its own thread decompresses and reads them.
//!
//! Reading a large upload keeps a processor busy for seconds. Its thread therefore has a low priority
//! from the second piece on, so that requests and small jobs do not wait for processors. A thread
//! without privileges cannot raise its priority again, so it does not belong to a pool.

use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;

use assay_eval::content::{ContentFormat, ReadEnd, read_content, read_pieces};
use assay_eval::prediction::{CellForm, PredictionSink};
use bytes::{Buf as _, Bytes};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

#[cfg(target_os = "linux")]
use crate::model::error::BestEffort as _;
use crate::model::error::{Error, Result};
use crate::model::upload::PartObject;
use crate::runtime::artifacts::{Artifacts, windows};
use crate::runtime::lines::{Line, Lines};

/// Fetched pieces that wait for the reader.
const PIECES_AHEAD: usize = 1;

/// The `nice` value's increase for a thread that reads a large upload. While other threads use
/// all processors, it gets a tenth of one processor's time.
#[cfg(target_os = "linux")]
const NICE_OF_LARGE: i32 = 10;

/// The result when an upload was read.
pub struct ReadUpload<T> {
    /// The value that the reading closure returned.
    pub value: T,
    /// The SHA-256 over all bytes as they were sent, if it was requested.
    pub sha256: Option<[u8; 32]>,
}

/// Reads an upload: passes its content to `read` on its own thread, and computes the SHA-256 over
/// all bytes as they were sent if `compute_sha256` is set. Returns `None` if an object is missing,
/// and fails if the artifact store does; the `read` value is dropped in both cases, as it comes from
/// incomplete content.
pub async fn read_upload<T: Send + 'static>(
    artifacts: &Artifacts,
    parts: &[PartObject],
    format: ContentFormat,
    compute_sha256: bool,
    read: impl FnOnce(ContentReader<'_>) -> T + Send + 'static,
) -> Result<Option<ReadUpload<T>>> {
    let (send, receive) = mpsc::channel(PIECES_AHEAD);
    let remaining = parts.iter().map(|part| part.bytes.unsigned_abs()).sum();
    let (send_read, reading) = oneshot::channel();
    let thread = std::thread::Builder::new().name("upload-reader".into());
    let run = move || {
        let mut bytes = SentBytes {
            receive,
            piece: Bytes::new(),
            pieces: 0,
            remaining,
            hash: compute_sha256.then(Sha256::new),
        };
        let value = read(ContentReader {
            bytes: &mut bytes,
            format,
        });
        // The receiver is dropped if nobody waits for the result any longer.
        let _ = send_read.send(ReadUpload {
            value,
            sha256: bytes.finish_hash(),
        });
    };
    thread.spawn(run).map_err(Error::internal)?;
    let fetched = fetch(artifacts, parts, send).await;
    let read = reading.await.map_err(Error::internal)?;
    Ok(fetched?.map(|()| read))
}

/// Sends all parts' bytes, until the receiver is dropped. `None` if an object is missing.
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

/// An upload's content, to be read once.
pub struct ContentReader<'r> {
    bytes: &'r mut SentBytes,
    format: ContentFormat,
}

impl ContentReader<'_> {
    /// Passes each prediction to the sink, or its errors; see [`read_content`].
    pub fn read<B>(
        self,
        cells: CellForm,
        check_stop: impl FnMut() -> ControlFlow<B>,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ReadEnd<B> {
        read_content(self.bytes, self.format, cells, check_stop, sink)
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

/// An upload's bytes as they were sent, received from the task that fetches them.
struct SentBytes {
    receive: mpsc::Receiver<Bytes>,
    piece: Bytes,
    /// Pieces that were received.
    pieces: u64,
    /// Bytes that were not received yet. If the sender ends before, the content is
    /// truncated.
    remaining: u64,
    hash: Option<Sha256>,
}

impl SentBytes {
    /// Returns the hash over all bytes. Reads those that were not read.
    fn finish_hash(mut self) -> Option<[u8; 32]> {
        self.hash.as_ref()?;
        while !self.fill_buf().ok()?.is_empty() {
            self.piece.clear();
        }
        self.hash.map(|hash| hash.finalize().into())
    }
}

/// Lowers the calling thread's priority. Best effort: the result is the same without.
fn lower_priority() {
    // Elsewhere, the system has process priorities only.
    #[cfg(target_os = "linux")]
    rustix::process::nice(NICE_OF_LARGE).best_effort("lowering the priority of a thread");
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
            self.pieces += 1;
            if self.pieces == 2 {
                lower_priority();
            }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use assay_eval::content::Compression;
    use assay_eval::prediction::TextForm;

    use super::*;

    #[tokio::test]
    async fn only_large_uploads_are_read_with_low_priority() {
        let location = std::env::temp_dir().join(format!("assay-upload-{}", std::process::id()));
        let artifacts = Artifacts::create(&location.to_string_lossy())
            .await
            .unwrap();
        let mut part = PartObject {
            number: 1,
            object_key: "o/u/1".into(),
            bytes: 0,
        };
        let format = ContentFormat {
            text: TextForm::Json,
            compression: Compression::None,
            bytes_max: u64::MAX,
        };
        let nice_of_test = rustix::process::getpriority_process(None).unwrap();
        for (bytes, added) in [(1 << 20, 0), (9 << 20, NICE_OF_LARGE)] {
            let lines = b"1234567\n".repeat(bytes / 8);
            part.bytes = bytes as i64;
            artifacts.put(&part.object_key, lines.into()).await.unwrap();
            let priorities = |content: ContentReader<'_>| {
                let mut priorities = Vec::new();
                content.read_lines(|_, _| {
                    priorities.push(rustix::process::getpriority_process(None).unwrap());
                    ControlFlow::<()>::Continue(())
                });
                (priorities[0], priorities.pop().unwrap())
            };
            let read = read_upload(&artifacts, &[part.clone()], format, false, priorities).await;
            let read = read.unwrap().unwrap().value;
            let last = (nice_of_test + added).min(19);
            assert_eq!(read, (nice_of_test, last), "{bytes} bytes");
        }
        std::fs::remove_dir_all(location).unwrap();
    }
}
