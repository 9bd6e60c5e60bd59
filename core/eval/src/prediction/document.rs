//! Reads a document with predictions in any form.

use std::ops::ControlFlow;

use super::sink::PredictionSink;
use super::stream::{Layout, Stream, is_white};
use super::table::{CellForm, Table};
use crate::csv::CsvReader;

/// Bytes after which the form is decided at the latest.
const DECIDED_AFTER: usize = 64 * 1024;

/// A document's form, for one whose beginning does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// JSON: one object a line, or one array.
    Json,
    /// CSV with the columns `item_id` and `prediction`.
    Csv,
}

/// Reads predictions from bytes as they arrive, and passes each one to a [`PredictionSink`], or its
/// errors. The beginning decides the form: `[` starts an array, `{` starts JSON lines, and a first
/// line with the cell `item_id` starts CSV.
pub struct Document {
    declared: TextForm,
    cells: CellForm,
    state: State,
}

enum State {
    /// The bytes so far do not decide the form.
    Start(Vec<u8>),
    Json(Box<Stream>),
    Csv(Box<Table>),
}

impl Document {
    /// Creates an empty document's reader.
    pub fn new(declared: TextForm, cells: CellForm) -> Self {
        Self {
            declared,
            cells,
            state: State::Start(Vec::new()),
        }
    }

    /// Reads the next bytes. Stops when the sink breaks, and returns its reason.
    pub fn feed<B>(
        &mut self,
        bytes: &[u8],
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        match &mut self.state {
            State::Json(stream) => stream.feed(bytes, sink),
            State::Csv(table) => table.feed(bytes, sink),
            State::Start(first) if first.is_empty() => match self.decide(bytes, false) {
                Some(state) => {
                    self.state = state;
                    self.feed(bytes, sink)
                }
                None => {
                    self.state = State::Start(bytes.to_vec());
                    ControlFlow::Continue(())
                }
            },
            State::Start(first) => {
                first.extend_from_slice(bytes);
                let first = std::mem::take(first);
                match self.decide(&first, false) {
                    Some(state) => {
                        self.state = state;
                        self.feed(&first, sink)
                    }
                    None => {
                        self.state = State::Start(first);
                        ControlFlow::Continue(())
                    }
                }
            }
        }
    }

    /// Ends the document.
    pub fn finish<B>(
        mut self,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        if let State::Start(first) = &mut self.state {
            let first = std::mem::take(first);
            if let Some(state) = self.decide(&first, true) {
                self.state = state;
            }
            self.feed(&first, sink)?;
        }
        match self.state {
            State::Json(stream) => stream.finish(sink),
            State::Csv(table) => table.finish(sink),
            State::Start(_) => ControlFlow::Continue(()),
        }
    }

    /// Returns the reader for a document that begins with `first`. `None` if more bytes are needed.
    fn decide(&self, first: &[u8], is_all: bool) -> Option<State> {
        // The decision must not depend on how many bytes have arrived beyond these.
        let is_enough = is_all || first.len() >= DECIDED_AFTER;
        let is_cut = first.len() >= DECIDED_AFTER;
        let first = &first[..first.len().min(DECIDED_AFTER)];
        let lines = |layout| Some(State::Json(Box::new(Stream::new(layout))));
        let csv = || Some(State::Csv(Box::new(Table::new(self.cells))));
        let declared = || match self.declared {
            TextForm::Json => lines(Layout::Lines),
            TextForm::Csv => csv(),
        };
        let Some(start) = first.iter().position(|byte| !is_white(byte)) else {
            return if is_enough { declared() } else { None };
        };
        match (first[start], memchr::memchr(b'\n', &first[start..])) {
            (b'[', _) => lines(Layout::Array),
            (b'{', _) => lines(Layout::Lines),
            (_, Some(end)) if names_items(&first[start..start + end]) => csv(),
            (_, None) if !is_enough => None,
            (_, None) if !is_cut && names_items(&first[start..]) => csv(),
            _ => declared(),
        }
    }
}

/// Returns `true` if a line is CSV with the cell `item_id`.
fn names_items(line: &[u8]) -> bool {
    let mut is_named = false;
    let mut reader = CsvReader::default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    for piece in [line, b"\n"] {
        let _ = reader.feed(piece, &mut |row| {
            is_named |= row.is_ok_and(|row| row.cells().any(|name| name == "item_id"));
            ControlFlow::<()>::Continue(())
        });
    }
    is_named
}

#[cfg(test)]
mod tests {
    use super::super::{Prediction, sink_fn};
    use super::*;
    use crate::error::FieldError;

    /// Returns the prediction count in a document, or the first error.
    fn read(declared: TextForm, document: &[u8], size: usize) -> Result<usize, String> {
        let (mut n, mut errors) = (0, Vec::new());
        let mut sink = sink_fn(|row: Result<Prediction<'_, '_>, FieldError>| {
            match row {
                Ok(_) => n += 1,
                Err(error) => errors.push(format!("{} {}", error.field, error.message)),
            }
            ControlFlow::<()>::Continue(())
        });
        let mut reader = Document::new(declared, CellForm::Text);
        for piece in document.chunks(size) {
            assert!(reader.feed(piece, &mut sink).is_continue());
        }
        assert!(reader.finish(&mut sink).is_continue());
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(n),
        }
    }

    #[test]
    fn content_decides_the_form() {
        let row = r#"{"item_id":"a","prediction":"x"}"#;
        let documents = [
            (row.to_owned(), 1),
            (format!("{row}\r\n{}\r\n", row.replace("\"a\"", "\"b\"")), 2),
            (format!(" \n[{row}]\n"), 1),
            ("\n\nprediction,item_id\nx,a\ny,b".to_owned(), 2),
            ("\"item_id\",\"prediction\"\r\na,x\r\n".to_owned(), 1),
        ];
        for (document, n) in documents {
            for declared in [TextForm::Json, TextForm::Csv] {
                for size in 1..=document.len() {
                    assert_eq!(
                        read(declared, document.as_bytes(), size),
                        Ok(n),
                        "{document}"
                    );
                }
            }
        }
    }

    #[test]
    fn declaration_decides_the_rest() {
        for (document, json, csv) in [
            ("", "predictions there must be", "predictions there must be"),
            (
                " \n",
                "predictions there must be",
                "predictions there must be",
            ),
            (
                "x,y\n1,2\n",
                "line 1 is not valid JSON",
                "line 1 must name the columns",
            ),
            (
                "x",
                "line 1 is not valid JSON",
                "line 1 must name the columns",
            ),
            (
                "item_id",
                "line 1 must name the columns",
                "line 1 must name the columns",
            ),
        ] {
            for (declared, expected) in [(TextForm::Json, json), (TextForm::Csv, csv)] {
                for size in 1..=document.len().max(1) {
                    let error = read(declared, document.as_bytes(), size).unwrap_err();
                    assert!(error.starts_with(expected), "{document:?}: {error}");
                }
            }
        }
        let long = vec![b'x'; 3 * DECIDED_AFTER];
        assert!(read(TextForm::Json, &long, 1000).is_err());
    }
}
