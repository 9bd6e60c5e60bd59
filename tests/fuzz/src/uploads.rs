//! The content of an upload, however it is compressed and cut.

use std::io::{self, BufRead, Read, Write as _};
use std::ops::ControlFlow;

use assay_core::model::upload::{ContentEncoding, ContentType};
use assay_core::runtime::upload_reader::{Content, ContentFault, Ended, decode};

use super::Seeded;
use super::told::{Heard, Told, streamed};

const ALL: usize = usize::MAX;

/// The first byte chooses: the form, how it is compressed, how large it may be, and whether the rest is what was sent or what
/// is to be packed first.
pub fn uploads(data: &[u8]) {
    let Some((&options, rest)) = data.split_first() else {
        return;
    };
    let content = Content {
        content_type: if options & 1 == 0 {
            ContentType::Ndjson
        } else {
            ContentType::Json
        },
        content_encoding: [
            ContentEncoding::Identity,
            ContentEncoding::Gzip,
            ContentEncoding::Zstd,
        ][usize::from(options >> 1 & 3) % 3],
        bytes_max: [4 << 20, 1 << 16, 1024, 32][usize::from(options >> 4 & 3)],
        hashed: false,
    };
    if options & 8 == 0 {
        sent(content, rest);
    } else {
        packed(content, rest);
    }
}

/// Whatever comes is read in the same way in any pieces, and never to more than it may be.
fn sent(content: Content, sent: &[u8]) {
    let whole = decoded(content, &[sent], ALL);
    let pieces = decoded(content, &Seeded::of(sent).pieces(sent), ALL);
    match (&whole.1, &pieces.1) {
        // How much is read before the fault, and which of two is met first, depends on how the bytes come.
        (Ended::Fault(_), Ended::Fault(_)) => {}
        _ => assert_eq!(whole, pieces),
    }
    let held: usize = whole.0.iter().map(Told::bytes).sum();
    assert!(
        held as u64 <= content.bytes_max,
        "{held} bytes of texts from at most {}",
        content.bytes_max
    );
    if let (Some(enough), Ended::Whole) = (
        whole.0.len().checked_sub(1).filter(|enough| *enough > 0),
        &whole.1,
    ) {
        let (told, ended) = decoded(content, &[sent], enough);
        assert_eq!(
            (told.as_slice(), ended),
            (&whole.0[..enough], Ended::Stopped(()))
        );
    }
}

/// What is packed well is read as if it were not packed; what is cut off or goes on wrongly is refused.
fn packed(content: Content, document: &[u8]) {
    let mut seeded = Seeded::of(document);
    let members = seeded.below(3) + 1;
    let whole: Vec<Vec<u8>> = document
        .chunks(document.len() / members + 1)
        .map(|part| pack(content.content_encoding, part))
        .collect();
    let sent = whole.concat();
    let (told, ended) = decoded(content, &seeded.pieces(&sent), ALL);
    if document.len() as u64 > content.bytes_max {
        assert_eq!(ended, Ended::Fault(ContentFault::TooLarge));
        return;
    }
    if sent.is_empty() && content.content_encoding != ContentEncoding::Identity {
        return;
    }
    assert_eq!(ended, Ended::Whole);
    assert_eq!(
        told,
        streamed(content.content_type.layout(), [document], ALL)
    );
    if content.content_encoding != ContentEncoding::Identity {
        let cut = whole[0].len() - 1 - seeded.below(whole[0].len() - 1);
        assert_eq!(
            decoded(content, &[&whole[0][..cut]], ALL).1,
            Ended::Fault(ContentFault::Encoding),
            "cut at {cut}"
        );
        let more = [sent.as_slice(), b"what is this?"].concat();
        assert_eq!(
            decoded(content, &[&more], ALL).1,
            Ended::Fault(ContentFault::Encoding)
        );
    }
}

fn pack(encoding: ContentEncoding, bytes: &[u8]) -> Vec<u8> {
    match encoding {
        ContentEncoding::Identity => bytes.to_vec(),
        ContentEncoding::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        ContentEncoding::Gzip => {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(bytes).unwrap();
            packed.finish().unwrap()
        }
    }
}

fn decoded(content: Content, pieces: &[&[u8]], enough: usize) -> (Vec<Told>, Ended<()>) {
    let mut heard = Heard::until(enough);
    let sent = Pieces {
        rest: pieces
            .iter()
            .copied()
            .filter(|piece| !piece.is_empty())
            .collect(),
    };
    let ended = decode(
        sent,
        content,
        || ControlFlow::Continue(()),
        &mut |_| {},
        &mut |next| heard.hear(next),
    );
    (heard.told, ended)
}

/// Bytes that come piece by piece.
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
