//! The CSV reader (RFC 4180). It is strict, because a table that is read with tolerance loses rows
//! without a word: a quote that is not closed hides all rows up to the next one.
//!
//! Records end in LF or CRLF; a file may have both. The first record names the columns, each once, and all
//! others are as wide. Blank lines are ignored. One record at a time is in memory.

use std::ops::ControlFlow;

use crate::error::quoted;

/// The longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = 1024 * 1024;

/// The largest cell count in a record.
const CELLS_MAX: usize = 10_000;

/// A table record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Its first line number, from 1.
    pub line: usize,
    /// The cells, each followed by a separator byte.
    text: &'a str,
    ends: &'a [CellEnd],
}

/// A cell's end.
#[derive(Debug, Clone, Copy)]
struct CellEnd {
    /// The separator's place after the cell.
    at: usize,
    is_quoted: bool,
}

impl<'a> Record<'a> {
    /// Returns a cell's text, without its quotes. Empty if the record has fewer cells.
    pub fn cell(&self, column: usize) -> &'a str {
        let start = match column {
            0 => 0,
            _ => self
                .ends
                .get(column - 1)
                .map_or(usize::MAX, |end| end.at + 1),
        };
        let end = self.ends.get(column).map_or(0, |end| end.at);
        self.text.get(start..end).unwrap_or_default()
    }

    /// Returns `true` for an empty cell without quotes, which is no value; two quotes are an empty text.
    pub fn is_absent(&self, column: usize) -> bool {
        self.cell(column).is_empty() && !self.ends.get(column).is_some_and(|end| end.is_quoted)
    }

    /// Returns all cells.
    pub fn cells(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let record = *self;
        (0..self.ends.len()).map(move |column| record.cell(column))
    }
}

/// The kind of an error in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsvErrorKind {
    /// A quote, a line end or the number of cells is wrong.
    Syntax,
    /// The text is not UTF-8.
    Encoding,
    /// The record has too many bytes or cells.
    TooLong,
    /// Two columns have one name.
    Repeated,
}

/// A record that is not CSV.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CsvError {
    /// The kind of error.
    pub kind: CsvErrorKind,
    /// Its first line's number, from 1; for a quote, the line with the quote.
    pub line: usize,
    /// The reason, for people.
    pub message: String,
}

/// The next byte's place in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At a cell's start.
    Start,
    /// In a cell without quotes.
    Plain,
    /// Between a cell's quotes.
    Quoted,
    /// After a quote that ends the cell, or is the first in a pair that stands for one.
    AfterQuote,
    /// After a carriage return, which a line feed must follow.
    AfterReturn,
    /// After an error that hides where the next record starts. The rest is ignored.
    Failed,
}

/// Reads a table from bytes as they arrive, which may be cut anywhere.
#[derive(Debug)]
pub struct CsvReader {
    place: Place,
    /// The current record's cells, each followed by a separator byte.
    text: Vec<u8>,
    ends: Vec<CellEnd>,
    /// Set if the current cell began with a quote.
    is_quoted: bool,
    /// Set while the current record is longer than [`RECORD_BYTES_MAX`]. Its bytes are dropped.
    is_too_long: bool,
    /// The current line number.
    line: usize,
    /// The byte count before the next one in the current line.
    column: usize,
    /// The number of the current record's first line.
    first_line: usize,
    /// The last quote's line and column that opened a cell.
    opened: (usize, usize),
    /// Column count, once the first record has named them.
    width: Option<usize>,
}

impl Default for CsvReader {
    fn default() -> Self {
        Self {
            place: Place::Start,
            text: Vec::new(),
            ends: Vec::new(),
            is_quoted: false,
            is_too_long: false,
            line: 1,
            column: 0,
            first_line: 1,
            opened: (0, 0),
            width: None,
        }
    }
}

impl CsvReader {
    /// Reads the next bytes, and calls `each` with every record that ends in them, or with its error; the
    /// first record has the column names. Stops when `each` breaks.
    pub fn feed<B>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Failed {
            // Most bytes do not change the place.
            let rest = &bytes[at..];
            let usual = match self.place {
                Place::Plain => rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n' | 0)),
                Place::Quoted => rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'\n' | 0)),
                _ => Some(0),
            };
            let usual = usual.unwrap_or(rest.len());
            self.push(&rest[..usual]);
            self.column += usual;
            at += usual;
            if let Some(byte) = bytes.get(at) {
                self.column += 1;
                self.step(*byte, each)?;
                at += 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Ends the table: the last record may have no line end.
    pub fn finish<B>(
        mut self,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match self.place {
            Place::Failed => ControlFlow::Continue(()),
            Place::Quoted => {
                let (line, column) = self.opened;
                let message = format!("the quote in column {column} is not closed");
                self.fail(CsvErrorKind::Syntax, line, message, each)
            }
            Place::AfterReturn => self.lone_return(each),
            Place::Start | Place::Plain | Place::AfterQuote => self.end_line(each),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.text.len() + bytes.len() > RECORD_BYTES_MAX {
            self.is_too_long = true;
        } else if !self.is_too_long {
            self.text.extend_from_slice(bytes);
        }
    }

    /// Reads one byte, which may change the place.
    fn step<B>(
        &mut self,
        byte: u8,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let column = self.column;
        let mut refuse = |reader: &mut Self, message: String| {
            reader.fail(CsvErrorKind::Syntax, reader.line, message, each)
        };
        match (self.place, byte) {
            (_, 0) if is_utf16(&self.text) => {
                return self.fail(CsvErrorKind::Encoding, self.line, UTF16.into(), each);
            }
            (_, 0) => return refuse(self, format!("there is a NUL character in column {column}")),
            (Place::Quoted, b'"') => self.place = Place::AfterQuote,
            (Place::Quoted, _) => {
                self.push(&[byte]);
                if byte == b'\n' {
                    (self.line, self.column) = (self.line + 1, 0);
                }
            }
            (Place::Start, b'"') => {
                (self.place, self.opened) = (Place::Quoted, (self.line, column));
                self.is_quoted = true;
            }
            (Place::AfterQuote, b'"') => {
                self.push(b"\"");
                self.place = Place::Quoted;
            }
            (Place::AfterReturn, b'\n') => return self.end_line(each),
            (Place::AfterReturn, _) => return self.lone_return(each),
            (_, b',') => self.end_cell(),
            (_, b'\r') => self.place = Place::AfterReturn,
            (_, b'\n') => return self.end_line(each),
            (Place::Plain, b'"') => {
                let message = format!(
                    "there is a quote in column {column}, in a cell without quotes around it"
                );
                return refuse(self, message);
            }
            (Place::AfterQuote, _) => {
                let message = format!(
                    "there is text in column {column}, after the closing quote; a quote in a quoted cell is doubled"
                );
                return refuse(self, message);
            }
            (Place::Start | Place::Plain | Place::Failed, _) => {
                self.push(&[byte]);
                self.place = Place::Plain;
            }
        }
        ControlFlow::Continue(())
    }

    fn end_cell(&mut self) {
        let is_quoted = std::mem::take(&mut self.is_quoted);
        // Cells in a record that is too long are dropped like its bytes.
        if self.ends.len() == CELLS_MAX {
            self.is_too_long = true;
        }
        if !self.is_too_long {
            let at = self.text.len();
            self.ends.push(CellEnd { at, is_quoted });
        }
        // Cells are checked to be UTF-8 together. The separator keeps them apart.
        self.push(b",");
        self.place = Place::Start;
    }

    fn end_line<B>(
        &mut self,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let is_white = self.text.iter().all(|byte| matches!(byte, b' ' | b'\t'));
        let is_blank = self.ends.is_empty() && is_white && !self.is_too_long;
        let is_quoted = self.opened.0 >= self.first_line;
        let flow = if is_blank && !is_quoted {
            self.text.clear();
            ControlFlow::Continue(())
        } else {
            self.end_record(each)
        };
        (self.line, self.column) = (self.line + 1, 0);
        self.first_line = self.line;
        if self.place != Place::Failed {
            self.place = Place::Start;
        }
        flow
    }

    fn end_record<B>(
        &mut self,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.end_cell();
        let flow = match self.record() {
            Ok(record) => each(Ok(record)),
            Err((kind, message)) if self.width.is_some() => each(Err(CsvError {
                kind,
                line: self.first_line,
                message,
            })),
            // Without the column names, the other records have no meaning.
            Err((kind, message)) => {
                let line = self.first_line;
                return self.fail(kind, line, message, each);
            }
        };
        self.width = self.width.or(Some(self.ends.len()));
        self.text.clear();
        self.ends.clear();
        self.is_too_long = false;
        flow
    }

    /// Returns the current record, or the reason why it is not valid.
    fn record(&self) -> Result<Record<'_>, (CsvErrorKind, String)> {
        if self.is_too_long {
            let message = "is longer than 1 MiB, or has more than 10,000 cells";
            return Err((CsvErrorKind::TooLong, message.into()));
        }
        let text = str::from_utf8(&self.text).map_err(|_| {
            let message = if is_utf16(&self.text) {
                UTF16
            } else {
                "is not UTF-8"
            };
            (CsvErrorKind::Encoding, message.into())
        })?;
        let record = Record {
            line: self.first_line,
            text,
            ends: &self.ends,
        };
        match self.width {
            Some(width) if width != self.ends.len() => {
                let n = self.ends.len();
                let message = format!("has {n} cells, and the first line has {width}");
                Err((CsvErrorKind::Syntax, message))
            }
            Some(_) => Ok(record),
            None => match repeated(record) {
                Some(name) => {
                    let message = format!("names the column {} twice", quoted(name));
                    Err((CsvErrorKind::Repeated, message))
                }
                None => Ok(record),
            },
        }
    }

    fn lone_return<B>(
        &mut self,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let message =
            "there is a carriage return without a line feed; lines must end in LF or CRLF";
        self.fail(CsvErrorKind::Syntax, self.line, message.into(), each)
    }

    /// Reports an error that hides where the next record starts, and ignores the rest.
    fn fail<B>(
        &mut self,
        kind: CsvErrorKind,
        line: usize,
        message: String,
        each: &mut impl FnMut(Result<Record<'_>, CsvError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.place = Place::Failed;
        each(Err(CsvError {
            kind,
            line,
            message,
        }))
    }
}

/// The message for a text in UTF-16.
pub(crate) const UTF16: &str = "is UTF-16; save the file as UTF-8";

/// Returns `true` for bytes that begin with a UTF-16 byte order mark.
pub(crate) fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

/// Returns the first cell that equals an earlier one.
fn repeated(record: Record<'_>) -> Option<&str> {
    let mut names: Vec<&str> = record.cells().collect();
    names.sort_unstable();
    names
        .windows(2)
        .find(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a table in pieces with this size. Returns `line: cells` of each record, or `line: message`.
    fn rows(table: &[u8], size: usize) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |row: Result<Record<'_>, CsvError>| {
            found.push(match row {
                Ok(row) => format!(
                    "{}: {}",
                    row.line,
                    row.cells().collect::<Vec<_>>().join("|")
                ),
                Err(error) => format!("{}: error: {error}", error.line),
            });
            ControlFlow::<()>::Continue(())
        };
        let mut reader = CsvReader::default();
        for piece in table.chunks(size) {
            assert!(reader.feed(piece, &mut each).is_continue());
        }
        assert!(reader.finish(&mut each).is_continue());
        found
    }

    #[test]
    fn valid_tables_are_read_in_pieces_of_any_size() {
        for (table, expected) in [
            ("a,b\n1,2\n", &["1: a|b", "2: 1|2"][..]),
            ("a,b\r\n1,2", &["1: a|b", "2: 1|2"]),
            ("a,b\n \n\t \r\n,\n  ", &["1: a|b", "4: |"]),
            (
                "\"a\",\"b,\"\"c\"\n\"\",\" x \"\n",
                &["1: a|b,\"c", "2: | x "],
            ),
            ("a,b\n\"1\n2\",3\n4,5", &["1: a|b", "2: 1\n2|3", "4: 4|5"]),
            ("a,ä€\n🍜,\"é\"", &["1: a|ä€", "2: 🍜|é"]),
            ("", &[]),
            ("\n\n", &[]),
        ] {
            for size in 1..=table.len().max(1) {
                assert_eq!(
                    rows(table.as_bytes(), size),
                    expected,
                    "{table:?} in {size}"
                );
            }
        }
    }

    #[test]
    fn invalid_tables_name_the_line() {
        for (table, expected) in [
            (
                &b"a,b\n1\n2,3\n"[..],
                "2: error: has 1 cells, and the first line has 2",
            ),
            (
                b"a,b\n1,2,3\n",
                "2: error: has 3 cells, and the first line has 2",
            ),
            (b"a,a\n1,2\n", "1: error: names the column \"a\" twice"),
            (
                b"a,b\n\n1,\"2\n3,4\n",
                "3: error: the quote in column 3 is not closed",
            ),
            (
                b"a,b\n1,2\"\n",
                "2: error: there is a quote in column 4, in a cell",
            ),
            (
                b"a,b\n\"1\"x,2\n",
                "2: error: there is text in column 4, after the",
            ),
            (
                b"a,b\r1,2\r",
                "1: error: there is a carriage return without",
            ),
            (
                b"a,b\n1,2\r",
                "2: error: there is a carriage return without",
            ),
            (b"a,b\n1,\xff\n", "2: error: is not UTF-8"),
            (b"\xff\xfea,b\n", "1: error: is UTF-16"),
            (b"\xff\xfea\0,\0b\0\n\0", "1: error: is UTF-16"),
            (
                b"a,b\n1,\0\n",
                "2: error: there is a NUL character in column 3",
            ),
            // The two bytes are a character only if the cells are joined.
            (b"a,b\n\xc3,\xa9\n", "2: error: is not UTF-8"),
        ] {
            for size in 1..=table.len() {
                let found = rows(table, size);
                let error = found.iter().find(|row| row.contains("error: "));
                assert!(
                    error.is_some_and(|error| error.starts_with(expected)),
                    "{expected}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn reading_continues_after_a_record_of_another_width() {
        assert_eq!(rows(b"a,b\n1\n2,3\n", 4)[2], "3: 2|3");
        let long = format!("a,b\n{},2\n3,4\n", "x".repeat(RECORD_BYTES_MAX));
        let found = rows(long.as_bytes(), 1000);
        assert_eq!(
            found[1..],
            [
                "2: error: is longer than 1 MiB, or has more than 10,000 cells",
                "3: 3|4"
            ]
        );
    }

    #[test]
    fn record_of_many_cells_takes_bounded_memory() {
        let mut reader = CsvReader::default();
        let mut each = |_: Result<Record<'_>, CsvError>| ControlFlow::<()>::Continue(());
        assert!(reader.feed(b"a,b\n", &mut each).is_continue());
        for _ in 0..8 {
            let commas = vec![b','; RECORD_BYTES_MAX / 2];
            assert!(reader.feed(&commas, &mut each).is_continue());
        }
        assert!(reader.text.len() <= RECORD_BYTES_MAX && reader.ends.len() == CELLS_MAX);
    }

    #[test]
    fn table_of_one_column_has_empty_cells() {
        assert_eq!(rows(b"a\n\"\"\n\nx\n", 2), ["1: a", "2: ", "4: x"]);
    }
}
