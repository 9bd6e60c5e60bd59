//! Lines in content that arrives in pieces, which may be cut anywhere.

use std::mem;
use std::ops::ControlFlow;

/// The longest line, in bytes.
pub const LINE_BYTES_MAX: usize = assay_eval::prediction::ELEMENT_BYTES_MAX;

/// A line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// The line's text.
    Text(&'a str),
    /// The line is longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// The line is not UTF-8.
    NotUtf8,
}

/// Splits content into lines. One line at a time is in memory. Blank lines are counted and left out.
#[derive(Debug, Default)]
pub struct Lines {
    /// A line's bytes that has not ended.
    partial: Vec<u8>,
    /// Set while the current line is too long. Its bytes are dropped.
    is_too_long: bool,
    /// The ended line count.
    ended: usize,
}

impl Lines {
    /// Reads the next piece, and calls `each` with every line that ends in it and its number from
    /// 1. Stops when it breaks.
    pub fn feed<B>(
        &mut self,
        mut piece: &[u8],
        each: &mut impl FnMut(usize, Line<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (last, rest) = piece.split_at(end);
            piece = &rest[1..];
            self.end(last, each)?;
        }
        self.append(piece);
        ControlFlow::Continue(())
    }

    /// Ends the content: the last line may have no newline.
    pub fn finish<B>(
        mut self,
        each: &mut impl FnMut(usize, Line<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.end(&[], each)
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            self.is_too_long = true;
            self.partial = Vec::new();
        } else if !self.is_too_long {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn end<B>(
        &mut self,
        last: &[u8],
        each: &mut impl FnMut(usize, Line<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.ended += 1;
        let mut partial = mem::take(&mut self.partial);
        let line = if partial.is_empty() {
            last
        } else {
            partial.extend_from_slice(last);
            &partial
        };
        let line = if mem::take(&mut self.is_too_long) || line.len() > LINE_BYTES_MAX {
            Line::TooLong
        } else {
            str::from_utf8(line).map_or(Line::NotUtf8, Line::Text)
        };
        let flow = match line {
            // JSON white space.
            Line::Text(text) if text.trim_matches([' ', '\t', '\r']).is_empty() => {
                ControlFlow::Continue(())
            }
            line => each(self.ended, line),
        };
        partial.clear();
        self.partial = partial;
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut each = |number, line: Line<'_>| {
            let text = match line {
                Line::Text(text) => text.to_owned(),
                other => format!("{other:?}"),
            };
            found.push((number, text));
            ControlFlow::<()>::Continue(())
        };
        let mut lines = Lines::default();
        for piece in pieces {
            assert!(lines.feed(piece, &mut each).is_continue());
        }
        assert!(lines.finish(&mut each).is_continue());
        found
    }

    #[test]
    fn pieces_do_not_change_lines() {
        let content = "a\n\n  \r\nä€\r\nlast".as_bytes();
        let expected = [(1, "a"), (4, "ä€\r"), (5, "last")];
        let expected = expected.map(|(number, text)| (number, text.to_owned()));
        for size in 1..=content.len() {
            let pieces: Vec<&[u8]> = content.chunks(size).collect();
            assert_eq!(lines(&pieces), expected, "{size}");
        }
        assert_eq!(lines(&[b"a\n"]), [(1, "a".to_owned())]);
        assert_eq!(lines(&[]), []);
    }

    #[test]
    fn unusual_lines_are_reported() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        let found = lines(&[&long, b"\n\xff\n", &long, b"x", &long, b"\nfine\n"]);
        let numbers: Vec<_> = found
            .iter()
            .map(|(number, text)| (*number, text.len()))
            .collect();
        let expected = [(1, LINE_BYTES_MAX), (2, 7), (3, 7), (4, 4)];
        assert_eq!(numbers, expected);
        assert_eq!((&*found[1].1, &*found[2].1), ("NotUtf8", "TooLong"));
    }

    #[test]
    fn break_stops_reading() {
        let mut each = |number, _: Line<'_>| {
            if number == 2 {
                ControlFlow::Break(number)
            } else {
                ControlFlow::Continue(())
            }
        };
        let mut lines = Lines::default();
        assert_eq!(lines.feed(b"a\nb\nc\n", &mut each), ControlFlow::Break(2));
    }
}
