//! An upload's content, from its objects to predictions, in a bounded piece of memory: objects are fetched here, a thread
//! where waiting harms nobody decompresses and reads them.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;

use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::model::error::{Error, Result};
use crate::model::upload::{ContentEncoding, ContentType};
use crate::runtime::artifacts::{Artifacts, windows};
use assay_eval::FieldError;
use assay_eval::prediction::{Prediction, Stream};

/// How many pieces wait between the two.
const AHEAD: usize = 1;

/// How much is decompressed at once.
const DECODED: usize = 256 * 1024;

/// The largest window of zstd, as a power of two: what RFC 8878 asks of every decoder.
const WINDOW_LOG: u32 = 23;

/// An object that holds one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartObject {
    /// Its place among the parts.
    pub number: i32,
    /// Its name in the artifact store.
    pub object_key: String,
    /// Its length.
    pub bytes: i64,
}

/// What was wrong with the content as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentFault {
    /// It is not compressed in the way that was announced, or ends in the middle.
    Encoding,
    /// Decompressed it is larger than the given maximum.
    TooLarge,
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended<B> {
    /// All was handed on.
    Whole,
    /// It was enough.
    Stopped(B),
    /// The content is at fault.
    Fault(ContentFault),
}

/// How an upload is written.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    /// The form of the predictions.
    pub content_type: ContentType,
    /// How they are compressed.
    pub content_encoding: ContentEncoding,
    /// Decompressed it may have at most this many bytes.
    pub bytes_max: u64,
    /// Whether the SHA-256 of all bytes as they were sent is asked for.
    pub hashed: bool,
}

/// What came of reading.
pub struct Found<T> {
    /// What the work returned.
    pub value: T,
    /// SHA-256 of all bytes as they were sent, if it was asked for.
    pub sha256: Option<[u8; 32]>,
}

/// Reads an upload through, giving its content to `work` on a thread of its own. `None`: an object is not there. An error
/// is one of the artifact store. In both cases what the work returned says nothing.
pub async fn read_through<T: Send + 'static>(
    artifacts: &Artifacts,
    parts: &[PartObject],
    content: Content,
    work: impl FnOnce(Decoded<'_>) -> T + Send + 'static,
) -> Result<Option<Found<T>>> {
    let (send, receive) = mpsc::channel(AHEAD);
    let left = parts.iter().map(|part| part.bytes.unsigned_abs()).sum();
    let read = tokio::task::spawn_blocking(move || {
        let mut feed = Feed {
            receive,
            piece: Bytes::new(),
            left,
            hash: content.hashed.then(Sha256::new),
        };
        let value = work(Decoded {
            feed: &mut feed,
            content,
        });
        Found {
            value,
            sha256: feed.rest(),
        }
    });
    let fetched = fetch(artifacts, parts, send).await;
    let found = read.await.map_err(Error::internal)?;
    Ok(fetched?.map(|()| found))
}

/// Sends all bytes, until nobody takes them any more. `None`: an object is not there.
async fn fetch(
    artifacts: &Artifacts,
    parts: &[PartObject],
    send: mpsc::Sender<Bytes>,
) -> Result<Option<()>> {
    for part in parts {
        for range in windows(part.bytes.unsigned_abs()) {
            let wanted = range.end - range.start;
            let Some(piece) = artifacts.get_range(&part.object_key, range).await? else {
                return Ok(None);
            };
            if piece.len() as u64 != wanted {
                return Err(Error::internal(
                    "an object of the artifact store is shorter than it was",
                ));
            }
            if send.send(piece).await.is_err() {
                return Ok(Some(()));
            }
        }
    }
    Ok(Some(()))
}

/// The content, to be read once.
pub struct Decoded<'f> {
    feed: &'f mut Feed,
    content: Content,
}

impl Decoded<'_> {
    /// Hands on each prediction, or what is wrong with it, until `each` breaks, or `pause`, which is asked now and then.
    pub fn predictions<B>(
        self,
        pause: impl FnMut() -> ControlFlow<B>,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> Ended<B> {
        decode(self.feed, self.content, pause, &mut |_| {}, each)
    }

    /// The same; `ahead` is told of item ids before their predictions are handed on (see [`Stream::feed_ahead`]).
    pub fn predictions_ahead<B>(
        self,
        pause: impl FnMut() -> ControlFlow<B>,
        ahead: &mut impl FnMut(&[&str]),
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> Ended<B> {
        decode(self.feed, self.content, pause, ahead, each)
    }
}

/// Reads content from its bytes as they were sent: hands on each prediction, or what is wrong with it, until `each` breaks,
/// or `pause`, which is asked now and then. For `ahead` see [`Stream::feed_ahead`].
pub fn decode<B>(
    sent: impl BufRead,
    content: Content,
    pause: impl FnMut() -> ControlFlow<B>,
    ahead: &mut impl FnMut(&[&str]),
    each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
) -> Ended<B> {
    match content.content_encoding {
        ContentEncoding::Identity => predictions(sent, content, pause, ahead, each),
        ContentEncoding::Gzip => predictions(
            BufReader::with_capacity(DECODED, MultiGzDecoder::new(sent)),
            content,
            pause,
            ahead,
            each,
        ),
        ContentEncoding::Zstd => match zstd_decoder(sent) {
            Ok(decoder) => predictions(
                BufReader::with_capacity(DECODED, decoder),
                content,
                pause,
                ahead,
                each,
            ),
            Err(_) => Ended::Fault(ContentFault::Encoding),
        },
    }
}

fn zstd_decoder<F: BufRead>(feed: F) -> io::Result<zstd::stream::read::Decoder<'static, F>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(feed)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(decoder)
}

fn predictions<B>(
    mut bytes: impl BufRead,
    content: Content,
    mut pause: impl FnMut() -> ControlFlow<B>,
    ahead: &mut impl FnMut(&[&str]),
    each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
) -> Ended<B> {
    let mut stream = Stream::new(content.content_type.layout());
    let mut read = 0;
    loop {
        let piece = match bytes.fill_buf() {
            Ok([]) => break,
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ended::Fault(ContentFault::Encoding),
        };
        // Not too much at once, so that the wish to stop is heard.
        let piece = &piece[..piece.len().min(DECODED)];
        read += piece.len() as u64;
        if read > content.bytes_max {
            return Ended::Fault(ContentFault::TooLarge);
        }
        let flow = pause();
        let flow = if flow.is_continue() {
            stream.feed_ahead(piece, ahead, each)
        } else {
            flow
        };
        if let ControlFlow::Break(stop) = flow {
            return Ended::Stopped(stop);
        }
        let taken = piece.len();
        bytes.consume(taken);
    }
    match stream.finish(each) {
        ControlFlow::Continue(()) => Ended::Whole,
        ControlFlow::Break(stop) => Ended::Stopped(stop),
    }
}

/// The bytes as they were sent.
struct Feed {
    receive: mpsc::Receiver<Bytes>,
    piece: Bytes,
    /// How many are yet to come. That none comes any more before is no end.
    left: u64,
    hash: Option<Sha256>,
}

impl Feed {
    /// Passes over what was not read, for the hash is of all.
    fn rest(mut self) -> Option<[u8; 32]> {
        self.hash.as_ref()?;
        while !self.fill_buf().ok()?.is_empty() {
            self.piece.clear();
        }
        self.hash.map(|hash| hash.finalize().into())
    }
}

impl Read for Feed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let n = piece.len().min(into.len());
        into[..n].copy_from_slice(&piece[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Feed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.is_empty() && self.left > 0 {
            self.piece = self
                .receive
                .blocking_recv()
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            self.left = self.left.saturating_sub(self.piece.len() as u64);
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
