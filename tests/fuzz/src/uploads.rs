//! An upload's content, in any compression and any pieces.

use std::io::{self, BufRead, Read, Write as _};
use std::ops::ControlFlow;

use assay_eval::content::{Compression, ContentError, ContentFormat, ReadEnd, read_content};
use assay_eval::prediction::{CellForm, TextForm};

use super::Seeded;
use super::reader_output::{Collector, Output};

const ALL: usize = usize::MAX;

/// The input's first byte selects the declared form, the compression and the size limit, and if
/// the rest is the sent content or a document to compress first.
pub fn uploads(data: &[u8]) {
    let Some((&options, rest)) = data.split_first() else {
        return;
    };
    let content = ContentFormat {
        text: if options & 1 == 0 {
            TextForm::Json
        } else {
            TextForm::Csv
        },
        compression: [Compression::None, Compression::Gzip, Compression::Zstd]
            [usize::from(options >> 1 & 3) % 3],
        bytes_max: [4 << 20, 1 << 16, 1024, 32][usize::from(options >> 4 & 3)],
    };
    if options & 8 == 0 {
        sent(content, rest);
    } else {
        packed(content, rest);
    }
}

/// Any content has the same result in any pieces, and is never read beyond its size limit.
fn sent(content: ContentFormat, sent: &[u8]) {
    let whole = decoded(content, &[sent], ALL);
    let pieces = decoded(content, &Seeded::of(sent).pieces(sent), ALL);
    match (&whole.1, &pieces.1) {
        // The outputs before the error, and which error comes first, depend on the pieces.
        (ReadEnd::Invalid(_), ReadEnd::Invalid(_)) => {}
        _ => assert_eq!(whole, pieces),
    }
    let held: usize = whole.0.iter().map(Output::bytes).sum();
    assert!(
        held as u64 <= content.bytes_max,
        "{held} bytes of strings from at most {}",
        content.bytes_max
    );
    if let (Some(limit), ReadEnd::Complete) = (
        whole.0.len().checked_sub(1).filter(|limit| *limit > 0),
        &whole.1,
    ) {
        let (outputs, ended) = decoded(content, &[sent], limit);
        assert_eq!(
            (outputs.as_slice(), ended),
            (&whole.0[..limit], ReadEnd::Stopped(()))
        );
    }
}

/// Compressed content is read like the uncompressed document; truncated content and trailing
/// garbage are rejected.
fn packed(content: ContentFormat, document: &[u8]) {
    let mut seeded = Seeded::of(document);
    let members = seeded.below(3) + 1;
    let whole: Vec<Vec<u8>> = document
        .chunks(document.len() / members + 1)
        .map(|part| pack(content.compression, part))
        .collect();
    let sent = whole.concat();
    let (outputs, ended) = decoded(content, &seeded.pieces(&sent), ALL);
    if document.len() as u64 > content.bytes_max {
        assert_eq!(ended, ReadEnd::Invalid(ContentError::TooLarge));
        return;
    }
    if sent.is_empty() && content.compression != Compression::None {
        return;
    }
    assert_eq!(ended, ReadEnd::Complete);
    let plain = ContentFormat {
        compression: Compression::None,
        ..content
    };
    assert_eq!(outputs, decoded(plain, &[document], ALL).0);
    if content.compression != Compression::None {
        let cut = whole[0].len() - 1 - seeded.below(whole[0].len() - 1);
        assert_eq!(
            decoded(content, &[&whole[0][..cut]], ALL).1,
            ReadEnd::Invalid(ContentError::Compression),
            "cut at {cut}"
        );
        let padded = [sent.as_slice(), b"\0\0\r\n"].concat();
        assert_eq!(decoded(content, &[&padded], ALL).0, outputs);
        let more = [sent.as_slice(), b"what is this?"].concat();
        assert_eq!(
            decoded(content, &[&more], ALL).1,
            ReadEnd::Invalid(ContentError::Compression)
        );
    }
}

fn pack(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::None => bytes.to_vec(),
        Compression::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        Compression::Gzip => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        }
    }
}

fn decoded(content: ContentFormat, pieces: &[&[u8]], limit: usize) -> (Vec<Output>, ReadEnd<()>) {
    let mut collector = Collector::with_limit(limit);
    let sent = Pieces {
        rest: pieces
            .iter()
            .copied()
            .filter(|piece| !piece.is_empty())
            .collect(),
    };
    // Numbers differ from text in a cell's value only.
    let cells = CellForm::Number;
    let go_on = || ControlFlow::Continue(());
    let ended = read_content(sent, content, cells, go_on, &mut collector);
    (collector.outputs, ended)
}

/// A reader that returns the bytes piece by piece.
struct Pieces<'a> {
    rest: std::collections::VecDeque<&'a [u8]>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Pieces<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.rest.front().copied().unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        if let Some(first) = self.rest.front_mut() {
            *first = &first[n..];
            if first.is_empty() {
                self.rest.pop_front();
            }
        }
    }
}
