//! Reads JSON array elements and NDJSON lines, one at a time in memory, each with its line number.

use std::io::{self, Read};
use std::ops::ControlFlow;

use assay_eval::suite::BadSuiteCode;

/// The longest element or line, in bytes.
const ELEMENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that are read at once.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// An error of the file as a whole, or one after which no element can be found.
#[derive(Debug)]
pub(crate) struct RowsError {
    pub(crate) line: usize,
    pub(crate) code: BadSuiteCode,
    pub(crate) message: String,
}

impl RowsError {
    fn new(line: usize, code: BadSuiteCode, message: &str) -> Self {
        Self {
            line,
            code,
            message: message.to_owned(),
        }
    }

    fn unreadable(line: usize, error: &io::Error) -> Self {
        let message = format!("cannot be read: {error}");
        Self::new(line, BadSuiteCode::Value, &message)
    }
}

/// The form of a file with JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowForm {
    /// One array.
    Array,
    /// A value per line.
    Lines,
}

/// Calls `each` with each value's text and its first line, from 1. The text is UTF-8 and not empty, and
/// not checked further.
///
/// # Errors
/// Returns the first error that hides where the next value begins.
pub(crate) fn read_rows(
    mut bytes: impl Read,
    form: RowForm,
    each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
) -> Result<(), RowsError> {
    let mut rows = Rows::new(form);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let n = match bytes.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(RowsError::unreadable(rows.line, &error)),
        };
        if rows.feed(&buffer[..n], each)?.is_break() {
            return Ok(());
        }
    }
    rows.finish(each)
}

/// The place of the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the array.
    BeforeArray,
    /// Before an element, which the array may have.
    FirstElement,
    /// Before an element, which must follow.
    Element,
    /// In a value, with this many open brackets.
    Value(usize),
    /// After an element.
    AfterElement,
    /// After the array.
    AfterArray,
}

struct Rows {
    form: RowForm,
    place: Place,
    is_string: bool,
    is_escaped: bool,
    /// The current value.
    value: Vec<u8>,
    /// The current line, from 1.
    line: usize,
    /// The first line of the current value.
    first_line: usize,
    n_read: usize,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

impl Rows {
    fn new(form: RowForm) -> Self {
        Self {
            form,
            place: match form {
                RowForm::Array => Place::BeforeArray,
                RowForm::Lines => Place::FirstElement,
            },
            is_string: false,
            is_escaped: false,
            value: Vec::new(),
            line: 1,
            first_line: 1,
            n_read: 0,
        }
    }

    fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RowsError> {
        for byte in bytes {
            // A byte order mark may begin the file.
            let is_mark = MARK.get(self.n_read) == Some(byte);
            self.n_read += 1;
            if is_mark && self.n_read <= MARK.len() && self.value.is_empty() {
                continue;
            }
            let flow = match self.form {
                RowForm::Array => self.step(*byte, each)?,
                RowForm::Lines => self.step_line(*byte, each)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
            self.line += usize::from(*byte == b'\n');
        }
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        mut self,
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<(), RowsError> {
        match (self.form, self.place) {
            (RowForm::Lines, _) => self.emit(each).map(|_| ()),
            (RowForm::Array, Place::AfterArray) => Ok(()),
            (RowForm::Array, Place::BeforeArray) => Err(self.syntax(NO_ARRAY)),
            (RowForm::Array, _) => Err(self.syntax("ends before the array does")),
        }
    }

    fn syntax(&self, message: &str) -> RowsError {
        RowsError::new(self.line, BadSuiteCode::Syntax, message)
    }

    fn step_line(
        &mut self,
        byte: u8,
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RowsError> {
        if byte == b'\n' {
            return self.emit(each);
        }
        if self.value.is_empty() {
            self.first_line = self.line;
        }
        self.push(byte)?;
        Ok(ControlFlow::Continue(()))
    }

    fn step(
        &mut self,
        byte: u8,
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RowsError> {
        let is_white = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.place {
            Place::Value(depth) => return self.step_value(byte, depth, each),
            _ if is_white => {}
            Place::BeforeArray if byte == b'[' => self.place = Place::FirstElement,
            Place::BeforeArray => return Err(self.syntax(NO_ARRAY)),
            Place::FirstElement if byte == b']' => self.place = Place::AfterArray,
            Place::FirstElement | Place::Element => {
                if matches!(byte, b',' | b']' | b'}' | b':') {
                    return Err(self.syntax("an element of the array is missing"));
                }
                self.first_line = self.line;
                self.place = Place::Value(0);
                return self.step_value(byte, 0, each);
            }
            Place::AfterElement if byte == b',' => self.place = Place::Element,
            Place::AfterElement if byte == b']' => self.place = Place::AfterArray,
            Place::AfterElement => {
                return Err(self.syntax("a comma or the end of the array is missing"));
            }
            Place::AfterArray => return Err(self.syntax("has more text after the array")),
        }
        Ok(ControlFlow::Continue(()))
    }

    fn step_value(
        &mut self,
        byte: u8,
        depth: usize,
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RowsError> {
        if self.is_string {
            self.push(byte)?;
            self.is_string = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return Ok(ControlFlow::Continue(()));
        }
        match byte {
            b'"' => self.is_string = true,
            b'[' | b'{' => self.place = Place::Value(depth + 1),
            b']' | b'}' if depth > 0 => {
                self.place = Place::Value(depth - 1);
                if depth == 1 {
                    self.push(byte)?;
                    self.place = Place::AfterElement;
                    return self.emit(each);
                }
            }
            b',' | b']' if depth == 0 => {
                self.place = Place::AfterElement;
                if self.emit(each)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                return self.step(byte, each);
            }
            _ => {}
        }
        self.push(byte)?;
        Ok(ControlFlow::Continue(()))
    }

    fn push(&mut self, byte: u8) -> Result<(), RowsError> {
        if self.value.len() == ELEMENT_BYTES_MAX {
            let message = "has a row of more than 1 MiB";
            return Err(RowsError::new(
                self.first_line,
                BadSuiteCode::TooLong,
                message,
            ));
        }
        self.value.push(byte);
        Ok(())
    }

    fn emit(
        &mut self,
        each: &mut dyn FnMut(&str, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RowsError> {
        let flow = match str::from_utf8(&self.value) {
            Ok(text) if text.trim().is_empty() => ControlFlow::Continue(()),
            Ok(text) => each(text.trim(), self.first_line),
            Err(_) => {
                let message = "is not UTF-8; save the file as UTF-8";
                return Err(RowsError::new(
                    self.first_line,
                    BadSuiteCode::Encoding,
                    message,
                ));
            }
        };
        self.value.clear();
        Ok(flow)
    }
}

const NO_ARRAY: &str = "must be one JSON array";

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns a few bytes at once.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn rows(text: &[u8], form: RowForm, size: usize) -> (Vec<String>, Option<String>) {
        let mut found = Vec::new();
        let read = read_rows(Pieces(text, size), form, &mut |row, line| {
            found.push(format!("{line}: {row}"));
            ControlFlow::Continue(())
        });
        let error = read.err();
        (
            found,
            error.map(|error| format!("{}: {}", error.line, error.message)),
        )
    }

    #[test]
    fn elements_have_their_lines() {
        let array = "\u{feff} [\n {\"a\": \"],\\\"\"},\n\n [1, [2]], 3\n,\"x\"] \n";
        let expected = ["2: {\"a\": \"],\\\"\"}", "4: [1, [2]]", "4: 3", "5: \"x\""];
        for size in 1..array.len() {
            let (found, error) = rows(array.as_bytes(), RowForm::Array, size);
            assert_eq!(
                (found.as_slice(), error),
                (&expected.map(String::from)[..], None)
            );
        }
        let lines = "\u{feff}{\"a\": 1}\r\n\n  \n[2]\n3";
        let (found, error) = rows(lines.as_bytes(), RowForm::Lines, 2);
        assert_eq!(found, ["1: {\"a\": 1}", "4: [2]", "5: 3"]);
        assert_eq!(error, None);
        assert_eq!(rows(b"[]", RowForm::Array, 1), (Vec::new(), None));
    }

    #[test]
    fn broken_arrays_are_rejected() {
        for (text, expected) in [
            ("", "1: must be one JSON array"),
            ("{}", "1: must be one JSON array"),
            ("[1", "1: ends before the array does"),
            ("[{\"a\": 1}\n", "2: ends before the array does"),
            ("[1,]", "1: an element of the array is missing"),
            ("[,1]", "1: an element of the array is missing"),
            ("[{} {}]", "1: a comma or the end of the array is missing"),
            ("[1]\n2", "2: has more text after the array"),
        ] {
            let (_, error) = rows(text.as_bytes(), RowForm::Array, 3);
            assert_eq!(error.as_deref(), Some(expected), "{text}");
        }
        let long = format!("[\"{}\"]", "x".repeat(ELEMENT_BYTES_MAX));
        let (_, error) = rows(long.as_bytes(), RowForm::Array, 1 << 20);
        assert_eq!(error.as_deref(), Some("1: has a row of more than 1 MiB"));
        let (_, error) = rows(b"[\"\xff\"]", RowForm::Array, 3);
        assert!(error.unwrap().contains("is not UTF-8"));
    }
}
