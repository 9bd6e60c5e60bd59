//! Content as it is sent or stored: predictions as NDJSON, as one JSON array or as CSV, possibly
//! compressed.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::mem;
use std::ops::ControlFlow;

use flate2::bufread::GzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::prediction::{CellForm, Document, PredictionSink, TextForm};

/// Bytes that are decompressed at once, and the most between two `check_stop`
/// calls.
const DECODED_BYTES: usize = 256 * 1024;

/// The largest zstd window, as a power of two: the window that RFC 8878 recommends every decoder
/// to support.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bytes from which the compression is detected.
pub const DETECTED_BYTES: usize = 4;

/// The UTF-8 byte order mark, which programs on Windows write before a text (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A byte compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// The bytes are not compressed.
    None,
    /// The bytes are compressed with gzip (RFC 1952), with one or several members.
    Gzip,
    /// The bytes are compressed with Zstandard (RFC 8878), with one or several frames.
    Zstd,
}

/// A content's format, and the limit for reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentFormat {
    /// The text's form, unless its beginning shows another one.
    pub text: TextForm,
    /// The bytes' compression as they are sent.
    pub compression: Compression,
    /// The largest decompressed size, in bytes.
    pub bytes_max: u64,
}

/// An error in the content as a whole.
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
    /// Ends the reading after the last step, which follows if all bytes were read.
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

impl Compression {
    /// Detects how bytes are compressed from the first ones.
    pub fn detect(first: &[u8]) -> Self {
        match first {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame with data, or one that decoders skip; `pzstd` begins with the latter.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Returns the text's form in a file with this name, which counts if its beginning does not show
/// it.
pub fn text_form(name: &str) -> TextForm {
    let name = name.to_ascii_lowercase();
    let plain = [".gz", ".zst"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    if plain.ends_with(".csv") {
        TextForm::Csv
    } else {
        TextForm::Json
    }
}

/// Detects a file's format by this name from its content. Returns a reader over all bytes, with the
/// format.
pub fn open<R: Read>(
    mut bytes: R,
    name: &str,
) -> io::Result<(impl BufRead + use<R>, ContentFormat)> {
    let mut first = Vec::new();
    bytes
        .by_ref()
        .take(DETECTED_BYTES as u64)
        .read_to_end(&mut first)?;
    let format = ContentFormat {
        text: text_form(name),
        compression: Compression::detect(&first),
        bytes_max: u64::MAX,
    };
    let all = Cursor::new(first).chain(BufReader::with_capacity(DECODED_BYTES, bytes));
    Ok((all, format))
}

/// Reads content from its bytes as they were sent, and passes each prediction to the sink, or its
/// errors. `cells` is the cells' form, if the text is CSV. Calls `check_stop` before each piece, which
/// has at most 256 KiB, and stops when it breaks.
pub fn read_content<B>(
    sent: impl BufRead,
    format: ContentFormat,
    cells: CellForm,
    mut check_stop: impl FnMut() -> ControlFlow<B>,
    sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
) -> ReadEnd<B> {
    let mut document = Document::new(format.text, cells);
    let end = read_pieces(sent, format, |piece| {
        check_stop()?;
        document.feed(piece, sink)
    });
    end.then(|| document.finish(sink))
}

/// Decompresses content, and passes it on in pieces up to 256 KiB, without a byte order mark at the
/// start.
pub fn read_pieces<B>(
    sent: impl BufRead,
    format: ContentFormat,
    mut each: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> ReadEnd<B> {
    // How many bytes were read, while they are only a part of the mark.
    let mut of_mark = Some(0);
    let without_mark = |piece: &[u8]| {
        let Some(n_before) = of_mark else {
            return each(piece);
        };
        let rest_of_mark = &BYTE_ORDER_MARK[n_before..];
        let n = piece.len().min(rest_of_mark.len());
        if piece[..n] != rest_of_mark[..n] {
            of_mark = None;
            if n_before > 0 {
                each(&BYTE_ORDER_MARK[..n_before])?;
            }
            return each(piece);
        }
        of_mark = Some(n_before + n).filter(|n| *n < BYTE_ORDER_MARK.len());
        match piece[n..] {
            [] => ControlFlow::Continue(()),
            ref rest => each(rest),
        }
    };
    let end = match format.compression {
        Compression::None => read_decoded(sent, format, without_mark),
        Compression::Gzip => read_members::<_, GzDecoder<_>, _>(sent, format, without_mark),
        Compression::Zstd => read_members::<_, ZstdDecoder<_>, _>(sent, format, without_mark),
    };
    // The content may be no more than a part of the mark.
    end.then(|| match of_mark {
        Some(n @ 1..) => each(&BYTE_ORDER_MARK[..n]),
        _ => ControlFlow::Continue(()),
    })
}

fn read_members<R: BufRead, D: MemberDecoder<R>, B>(
    sent: R,
    format: ContentFormat,
    each: impl FnMut(&[u8]) -> ControlFlow<B>,
) -> ReadEnd<B> {
    let members = Members::<R, D>::Between {
        rest: sent,
        is_first: true,
    };
    read_decoded(
        BufReader::with_capacity(DECODED_BYTES, members),
        format,
        each,
    )
}

/// The decoder for one gzip member, or one zstd frame.
trait MemberDecoder<R>: Read + Sized {
    /// Creates the decoder for a member that starts at the next byte.
    fn start(rest: R) -> io::Result<Self>;

    /// Returns the bytes after the member, which has ended.
    fn rest(self) -> R;
}

impl<R: BufRead> MemberDecoder<R> for GzDecoder<R> {
    fn start(rest: R) -> io::Result<Self> {
        Ok(Self::new(rest))
    }

    fn rest(self) -> R {
        self.into_inner()
    }
}

impl<R: BufRead> MemberDecoder<R> for ZstdDecoder<'static, R> {
    fn start(rest: R) -> io::Result<Self> {
        let mut decoder = Self::with_buffer(rest)?.single_frame();
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        Ok(decoder)
    }

    fn rest(self) -> R {
        self.finish()
    }
}

/// Decompresses one or several members. Between and after them, zeros and white space are skipped: tapes
/// and text editors add them.
enum Members<R, D> {
    Between {
        rest: R,
        is_first: bool,
    },
    Member(D),
    /// A member's start could not be read.
    Failed,
}

impl<R: BufRead, D: MemberDecoder<R>> Read for Members<R, D> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match mem::replace(self, Self::Failed) {
                Self::Failed => return Err(io::ErrorKind::InvalidData.into()),
                Self::Between { mut rest, is_first } => {
                    if !is_first && is_padding_up_to_end(&mut rest)? {
                        *self = Self::Between { rest, is_first };
                        return Ok(0);
                    }
                    *self = Self::Member(D::start(rest)?);
                }
                Self::Member(mut decoder) => match decoder.read(into) {
                    Ok(0) if !into.is_empty() => {
                        *self = Self::Between {
                            rest: decoder.rest(),
                            is_first: false,
                        };
                    }
                    read => {
                        *self = Self::Member(decoder);
                        return read;
                    }
                },
            }
        }
    }
}

/// Skips zeros and white space. Returns `true` if nothing follows.
fn is_padding_up_to_end(bytes: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let piece = match bytes.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            piece => piece?,
        };
        if piece.is_empty() {
            return Ok(true);
        }
        let is_padding = |byte: &u8| matches!(byte, 0 | b' ' | b'\t' | b'\r' | b'\n');
        let n = piece.iter().take_while(|byte| is_padding(byte)).count();
        let is_all = n == piece.len();
        bytes.consume(n);
        if !is_all {
            return Ok(false);
        }
    }
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
