//! Content as it is sent or stored: predictions as NDJSON or as one JSON array, possibly compressed.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::ControlFlow;

use flate2::bufread::MultiGzDecoder;

use crate::prediction::{Layout, PredictionSink, Stream};

/// Number of bytes that are decompressed at once, and the largest number between two calls of
/// `check_stop`.
const DECODED_BYTES: usize = 256 * 1024;

/// The largest window of zstd, as a power of two: the window that RFC 8878 recommends every decoder
/// to support.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Number of bytes from which [`open`] detects the format.
const DETECTED_BYTES: u64 = 512;

/// The compression of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// The bytes are not compressed.
    None,
    /// The bytes are compressed with gzip (RFC 1952), with one or several members.
    Gzip,
    /// The bytes are compressed with Zstandard (RFC 8878), with one or several frames.
    Zstd,
}

/// The format of content, and the limit for reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentFormat {
    /// The layout of the predictions.
    pub layout: Layout,
    /// The compression of the bytes as they are sent.
    pub compression: Compression,
    /// The largest decompressed size, in bytes.
    pub bytes_max: u64,
}

/// An error of the content as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The content does not have the declared compression, or is truncated.
    #[error("the compression is invalid, or the content is truncated")]
    Compression,
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

impl<B> ReadEnd<B> {
    /// Returns the end of the reading after the last step, which follows if all bytes were read.
    pub fn then(self, last: impl FnOnce() -> ControlFlow<B>) -> Self {
        match self {
            Self::Complete => match last() {
                ControlFlow::Continue(()) => Self::Complete,
                ControlFlow::Break(stop) => Self::Stopped(stop),
            },
            end => end,
        }
    }
}

/// Detects the format of a file from its first bytes and its name: the compression from the magic
/// number, a JSON array from an opening bracket or from the ending `.json`. Returns a reader of all
/// bytes, with the format.
pub fn open<R: Read>(
    mut bytes: R,
    name: &str,
) -> io::Result<(impl BufRead + use<R>, ContentFormat)> {
    let mut first = Vec::new();
    bytes
        .by_ref()
        .take(DETECTED_BYTES)
        .read_to_end(&mut first)?;
    let compression = match first.as_slice() {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    };
    let is_named_array = [".json", ".json.gz", ".json.zst"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    let starts_with_bracket =
        compression == Compression::None && first.trim_ascii_start().first() == Some(&b'[');
    let format = ContentFormat {
        layout: if is_named_array || starts_with_bracket {
            Layout::Array
        } else {
            Layout::Lines
        },
        compression,
        bytes_max: u64::MAX,
    };
    let all = Cursor::new(first).chain(BufReader::with_capacity(DECODED_BYTES, bytes));
    Ok((all, format))
}

/// Reads content from its bytes as they were sent, and passes each prediction to the sink, or its
/// errors. Calls `check_stop` before each piece of at most 256 KiB, and stops when it breaks.
pub fn read_content<B>(
    sent: impl BufRead,
    format: ContentFormat,
    mut check_stop: impl FnMut() -> ControlFlow<B>,
    sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
) -> ReadEnd<B> {
    let mut stream = Stream::new(format.layout);
    let end = read_pieces(sent, format, |piece| {
        check_stop()?;
        stream.feed(piece, sink)
    });
    end.then(|| stream.finish(sink))
}

/// Decompresses content, and passes it on in pieces of at most 256 KiB.
pub fn read_pieces<B>(
    sent: impl BufRead,
    format: ContentFormat,
    each: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> ReadEnd<B> {
    match format.compression {
        Compression::None => read_decoded(sent, format, each),
        Compression::Gzip => {
            let decoder = BufReader::with_capacity(DECODED_BYTES, MultiGzDecoder::new(sent));
            read_decoded(decoder, format, each)
        }
        Compression::Zstd => match zstd_decoder(sent) {
            Ok(decoder) => {
                let decoder = BufReader::with_capacity(DECODED_BYTES, decoder);
                read_decoded(decoder, format, each)
            }
            Err(_) => ReadEnd::Invalid(ContentError::Compression),
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
            Err(_) => return ReadEnd::Invalid(ContentError::Compression),
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
