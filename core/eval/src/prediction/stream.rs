//! The reader for a byte stream, which may be cut anywhere. One element at a time is in memory.
//!
//! The stream finds where elements start and end. The whole document's reader defines what
//! they must be.

use std::array;
use std::mem;
use std::ops::ControlFlow;

use super::element::{Element, ElementBuffers};
use super::reader::read_one;
use super::scan;
use super::sink::PredictionSink;
use super::value::{ELEMENT_BYTES_MAX, TOO_LONG, location};
use crate::csv::{UTF16, is_utf16};
use crate::error::FieldError;
use crate::json::{DEPTH_MAX, depth};

/// Elements that the fast path reads before it emits the first one, so that the sink
/// can prefetch.
const BATCH: usize = 32;

/// An element's deepest nesting. In an inline submission two more levels are around it.
const ELEMENT_DEPTH_MAX: usize = DEPTH_MAX - 2;

/// A prediction document's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One JSON object per line; blank lines are allowed.
    Lines,
    /// One JSON array with objects.
    Array,
}

/// The stream's position in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the array's opening bracket.
    BeforeArray,
    /// In an element, or between two elements.
    InElements,
    /// After the array's closing bracket.
    AfterArray,
    /// After an error that hides where the next element starts. The rest is ignored.
    Failed,
}

/// Returns `true` for JSON's white space, which is less than ASCII's.
pub(super) const fn is_white(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Reads predictions from bytes as they arrive, and passes each one to a [`PredictionSink`], or its
/// errors. Repeated items are the sink's to detect. The result does not depend on how the bytes are
/// cut.
pub struct Stream {
    layout: Layout,
    position: Position,
    /// An element's bytes that has not ended.
    partial: Vec<u8>,
    /// Set while the current element is longer than [`ELEMENT_BYTES_MAX`]. Its bytes are dropped.
    is_too_long: bool,
    /// Open brackets and braces in the current element.
    open: usize,
    in_string: bool,
    is_escaped: bool,
    index: usize,
    line: usize,
    /// Set once an error was emitted.
    has_errors: bool,
    /// Buffers of a batch's elements, for reuse.
    buffers: [ElementBuffers; BATCH],
}

impl Stream {
    /// Creates an empty stream's reader.
    pub fn new(layout: Layout) -> Self {
        let position = match layout {
            Layout::Array => Position::BeforeArray,
            Layout::Lines => Position::InElements,
        };
        Self {
            layout,
            position,
            partial: Vec::new(),
            is_too_long: false,
            open: 0,
            in_string: false,
            is_escaped: false,
            index: 0,
            line: 1,
            has_errors: false,
            buffers: array::from_fn(|_| ElementBuffers::default()),
        }
    }

    /// Reads the next bytes. Stops when the sink breaks, and returns its reason.
    pub fn feed<B>(
        &mut self,
        bytes: &[u8],
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        // The bytes may start and end within a UTF-8 character. No element starts or ends within
        // one.
        let start = bytes
            .iter()
            .take(3)
            .take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000)
            .count();
        let whole = &bytes[start..];
        let text = str::from_utf8(whole)
            .or_else(|error| str::from_utf8(&whole[..error.valid_up_to()]))
            .unwrap_or_default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut at = bytes.len() - rest.len();
            if self.layout == Layout::Lines && self.is_between_elements() {
                // There may be millions of blank lines: skip them together.
                let white = rest.iter().take_while(|byte| is_white(byte)).count();
                let blank = rest[..white]
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |last| last + 1);
                self.line += rest[..blank].iter().filter(|byte| **byte == b'\n').count();
                (at, rest) = (at + blank, &rest[blank..]);
            }
            if self.is_between_elements() && at >= start && at - start < text.len() {
                rest = &whole[self.feed_fast_path(text, at - start, sink)?..];
                if rest.is_empty() {
                    break;
                }
            }
            match self.position {
                Position::Failed => break,
                Position::BeforeArray | Position::AfterArray => {
                    let Some(at) = rest.iter().position(|byte| !is_white(byte)) else {
                        break;
                    };
                    let first = rest[at];
                    rest = &rest[at + 1..];
                    match (self.position, first) {
                        (Position::BeforeArray, b'[') => self.position = Position::InElements,
                        (Position::BeforeArray, _) => {
                            self.fail("predictions", "type", "must be an array of objects", sink)?;
                        }
                        _ => self.fail(
                            "predictions",
                            "format",
                            "there is something after the end of the array",
                            sink,
                        )?,
                    }
                }
                Position::InElements => {
                    let Some(end) = self.find_end(rest) else {
                        self.buffer_partial(rest);
                        break;
                    };
                    let (last, delimited) = rest.split_at(end);
                    rest = &delimited[1..];
                    self.end_element(last, delimited[0], sink)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns `true` if the next byte is an element's first.
    fn is_between_elements(&self) -> bool {
        self.position == Position::InElements
            && self.partial.is_empty()
            && !self.is_too_long
            && self.open == 0
            && !self.in_string
            && !self.is_escaped
    }

    /// Emits the elements from `at` on, in batches, until one is incomplete or the fast path cannot
    /// read it. Returns the place where that element starts.
    fn feed_fast_path<B>(
        &mut self,
        text: &str,
        mut at: usize,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B, usize> {
        let in_lines = self.layout == Layout::Lines;
        // Elements are created one by one: if the fast path cannot read the first one, no more are
        // needed.
        let mut batch = Vec::new();
        let mut flow = ControlFlow::Continue(());
        loop {
            let mut n = 0;
            while n < BATCH && self.position == Position::InElements {
                if n == batch.len() {
                    batch.push(Element::new(0, None, mem::take(&mut self.buffers[n])));
                }
                let Some(end) = scan::element(text, at, in_lines, &mut batch[n])
                    .filter(|end| end - at <= ELEMENT_BYTES_MAX)
                else {
                    break;
                };
                if text.as_bytes()[end] == b']' {
                    self.position = Position::AfterArray;
                }
                at = end + 1;
                n += 1;
            }
            let item_ids: [&str; BATCH] = array::from_fn(|at| {
                batch[..n]
                    .get(at)
                    .map_or("", |element| element.item_id.as_ref())
            });
            sink.prefetch(&item_ids[..n]);
            for element in &mut batch[..n] {
                (element.index, element.line) = (self.index, self.line_number());
                if flow.is_continue() {
                    flow = element.emit(sink);
                }
                element.reset();
                self.index += 1;
                self.line += 1;
            }
            if n < BATCH || flow.is_break() {
                break;
            }
        }
        batch
            .into_iter()
            .zip(&mut self.buffers)
            .for_each(|(element, buffers)| *buffers = ElementBuffers::of(element));
        flow.map_continue(|()| at)
    }

    /// Ends the stream: reads a last line without newline, and checks that the array is closed and
    /// not empty.
    pub fn finish<B>(
        mut self,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        match (self.layout, self.position) {
            (Layout::Lines, _) => self.end_element(&[], b'\n', sink)?,
            (Layout::Array, Position::BeforeArray) => self.fail(
                "predictions",
                "required",
                "there must be at least one prediction",
                sink,
            )?,
            (Layout::Array, Position::InElements) => {
                let message = format!(
                    "the array ends in the middle, after {} predictions",
                    self.index
                );
                self.fail("predictions", "format", &message, sink)?;
            }
            (Layout::Array, Position::AfterArray | Position::Failed) => {}
        }
        if self.index == 0 && !self.has_errors {
            self.fail(
                "predictions",
                "required",
                "there must be at least one prediction",
                sink,
            )?;
        }
        ControlFlow::Continue(())
    }

    /// Returns where the byte that ends the current element: a newline, or a comma or the array's
    /// closing bracket.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.layout == Layout::Lines {
            return memchr::memchr(b'\n', bytes);
        }
        let mut at = 0;
        while at < bytes.len() {
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.in_string {
                at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
                if bytes[at] == b'"' {
                    self.in_string = false;
                } else {
                    self.is_escaped = true;
                }
            } else {
                match bytes[at] {
                    b'"' => self.in_string = true,
                    b'[' | b'{' => self.open += 1,
                    b',' | b']' if self.open == 0 => return Some(at),
                    b']' | b'}' => self.open = self.open.saturating_sub(1),
                    _ => {}
                }
            }
            at += 1;
        }
        None
    }

    fn buffer_partial(&mut self, bytes: &[u8]) {
        if self.partial.len() + bytes.len() > ELEMENT_BYTES_MAX {
            self.is_too_long = true;
        } else if !self.is_too_long {
            self.partial.extend_from_slice(bytes);
        }
    }

    /// Ends the current element, whose last bytes are `last`. `delimiter` is the byte after it.
    fn end_element<B>(
        &mut self,
        last: &[u8],
        delimiter: u8,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        let mut partial = mem::take(&mut self.partial);
        let whole = if partial.is_empty() && last.len() <= ELEMENT_BYTES_MAX {
            last
        } else if partial.len() + last.len() > ELEMENT_BYTES_MAX {
            self.is_too_long = true;
            [].as_slice()
        } else {
            partial.extend_from_slice(last);
            partial.as_slice()
        };
        let is_too_long = mem::take(&mut self.is_too_long);
        let is_blank = !is_too_long && whole.iter().all(is_white);
        let is_absent = match self.layout {
            Layout::Lines => is_blank,
            // `[]` is empty; in `[a,]` an element is missing.
            Layout::Array => is_blank && delimiter == b']' && self.index == 0,
        };
        if delimiter == b']' {
            self.position = Position::AfterArray;
        }
        let flow = if is_absent {
            ControlFlow::Continue(())
        } else if is_too_long {
            self.emit_error("range", TOO_LONG, sink)
        } else {
            self.feed_slow_path(whole, sink)
        };
        self.index += usize::from(!is_absent);
        self.line += 1;
        partial.clear();
        self.partial = partial;
        flow
    }

    /// Emits one complete element, or its errors.
    fn feed_slow_path<B>(
        &mut self,
        json: &[u8],
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        let Ok(text) = str::from_utf8(json) else {
            let message = if is_utf16(json) {
                UTF16
            } else {
                "is not UTF-8"
            };
            return self.emit_syntax_error(message, sink);
        };
        let line = self.line_number();
        // Counting brackets is much faster than following them, and nearly always enough.
        let brackets = json
            .iter()
            .filter(|byte| matches!(byte, b'[' | b'{'))
            .count();
        if brackets > ELEMENT_DEPTH_MAX
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
            && depth(json) > ELEMENT_DEPTH_MAX
        {
            let message = format!("is nested deeper than {ELEMENT_DEPTH_MAX} levels");
            return self.emit_error("format", &message, sink);
        }
        let mut element = Element::new(self.index, line, mem::take(&mut self.buffers[0]));
        if let Err(error) = read_one(text, &mut element) {
            return self.emit_syntax_error(&not_json(text, &error), sink);
        }
        self.has_errors |= element.has_errors();
        let flow = element.emit(sink);
        self.buffers[0] = ElementBuffers::of(element);
        flow
    }

    /// Emits the error that the current element is not JSON. Lines continue with the next line; in
    /// an array the next element's start is unknown.
    fn emit_syntax_error<B>(
        &mut self,
        message: &str,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        if self.layout == Layout::Array {
            self.position = Position::Failed;
        }
        self.emit_error("format", message, sink)
    }

    /// Emits a document error, and ignores its rest.
    fn fail<B>(
        &mut self,
        field: &str,
        reason: &'static str,
        message: &str,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        self.position = Position::Failed;
        self.has_errors = true;
        sink.take(Err(FieldError::new(field, reason, message)))
    }

    /// Emits an error in the current element.
    fn emit_error<B>(
        &mut self,
        reason: &'static str,
        message: &str,
        sink: &mut impl for<'a> PredictionSink<'a, Stop = B>,
    ) -> ControlFlow<B> {
        self.has_errors = true;
        let location = location(self.index, self.line_number());
        sink.take(Err(FieldError::new(location, reason, message)))
    }

    fn line_number(&self) -> Option<usize> {
        (self.layout == Layout::Lines).then_some(self.line)
    }
}

/// Returns the message for a one-line text that is not JSON.
pub(crate) fn not_json(text: &str, error: &serde_json::Error) -> String {
    let reason = syntax_reason(text, error);
    format!("is not valid JSON (column {}){reason}", error.column())
}

/// Returns a syntax error's reason, after a colon, if it is one that people often meet.
fn syntax_reason(text: &str, error: &serde_json::Error) -> &'static str {
    // The column is the last byte's that was read.
    let rest = match error.line() {
        1 => text.get(error.column().saturating_sub(1)..),
        _ => None,
    };
    let rest = rest.unwrap_or_default().trim_start_matches('-');
    if ["NaN", "nan", "Infinity", "inf"]
        .iter()
        .any(|name| rest.starts_with(name))
    {
        ": NaN and infinity are not numbers"
    } else if error.to_string().starts_with("number out of range") {
        ": the number is too large"
    } else if text.replace("\r\n", "\n").trim_end().contains('\r') {
        ": lines must end in LF or CRLF, not in CR alone"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::prediction::{Prediction, SubmissionDigest, read, sink_fn};

    /// Records the prediction digest, and per call a line: a prediction's location, or
    /// an error.
    #[derive(Default)]
    struct Recorder {
        digest: SubmissionDigest,
        lines: Vec<String>,
    }

    impl Recorder {
        fn finish(self) -> ([u8; 32], Vec<String>) {
            (self.digest.finish(), self.lines)
        }
    }

    impl<'a> PredictionSink<'a> for Recorder {
        type Stop = ();

        fn take(&mut self, prediction: Result<Prediction<'_, 'a>, FieldError>) -> ControlFlow<()> {
            match prediction {
                Ok(prediction) => {
                    self.digest.add(&prediction);
                    self.lines.push(location(prediction.index, prediction.line));
                }
                Err(error) => self.lines.push(format!("{} {}", error.field, error.reason)),
            }
            ControlFlow::Continue(())
        }
    }

    /// Reads a document in these pieces. Returns a [`Recorder`]'s digest and lines.
    fn record<'b>(
        layout: Layout,
        pieces: impl IntoIterator<Item = &'b [u8]>,
    ) -> ([u8; 32], Vec<String>) {
        let mut recorder = Recorder::default();
        let mut stream = Stream::new(layout);
        for piece in pieces {
            assert!(stream.feed(piece, &mut recorder).is_continue());
        }
        assert!(stream.finish(&mut recorder).is_continue());
        recorder.finish()
    }

    fn errors(layout: Layout, document: &str) -> Vec<String> {
        record(layout, [document.as_bytes()])
            .1
            .into_iter()
            .filter(|line| {
                line.contains(' ') && !line.starts_with("line ") || line.matches(' ').count() > 1
            })
            .collect()
    }

    /// A linear congruential generator with a fixed seed.
    struct Seeded(u64);

    impl Seeded {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }
    }

    /// Elements in a document, among them some that are hard to cut and some with errors.
    const ELEMENTS: [&str; 27] = [
        // The first three are not JSON.
        r#"{"item_id":"e","prediction":["x",]}"#,
        r#"{"item_id":"e","prediction":01}"#,
        r#"{"item_id":"e","prediction":"x",}"#,
        r#"{"item_id":"e","prediction":0.25}"#,
        r#"{"item_id":"e","prediction":-12,"further":-1.5e3,"more":"\"","less":null}"#,
        r#"{"item_id":"e","prediction":{"x":0.25,"\u0079":75e-2}}"#,
        r#"{ "item_id" : "e" , "prediction" : { } }"#,
        r#"{"item_id":"e","prediction":["\ud83c\udf5c", "\n" ,"ä"]}"#,
        r#"{"item_id":"e","prediction":{"x":"1","y":[]}}"#,
        r#"{"item_id":"e","x":1,"x":2,"prediction":"x"}"#,
        r#"{"item_id":"a","prediction":["x","y"]}"#,
        r#" { "prediction" : "l\"]},{\\" , "item_id" : "\u00e4\\" } "#,
        r#"{"item_id":"b","prediction":[],"note":{"k":[1,[2,{"z":null}]],"s":"]},["}}"#,
        r#"{"item_id":"ä€","prediction":"🍜"}"#,
        r#"{"item_id":"","prediction":7}"#,
        r#"{"item_id":"b","item_id":"c","prediction":[1,"x"]}"#,
        r#"{"item_id":"f","error":{"code":"validation_failed","message":"é"}}"#,
        r#"{"error":{"x":1},"item_id":"f","scores":[-0.5,null]}"#,
        r#"{"item_id":"f","prediction":["x","y"],"scores":[-0.5,null],"error":{"x":true}}"#,
        "7",
        "null",
        r#"["x"]"#,
        r#"{"item_id":"b","prediction":{"x":1}}"#,
        r#"{"item_id":"\u0000","prediction":"\u0000"}"#,
        "{}",
        "\t{\"item_id\":\"c\",\"prediction\":\"x\"}\r",
        r#"{"item_id":"d","prediction":["1","2","3","4","5","6","7","8","9","10"]}"#,
    ];

    #[test]
    fn result_does_not_depend_on_cuts() {
        let mut seeded = Seeded(7);
        for round in 0..400 {
            let elements: Vec<&str> = (0..seeded.below(12))
                .map(|_| ELEMENTS[seeded.below(ELEMENTS.len())])
                .collect();
            let broken =
                ["", "", "", "{", "{\"item_id\":", "]", "\"", "x", "}", ","][seeded.below(10)];
            for layout in [Layout::Array, Layout::Lines] {
                let document = match layout {
                    Layout::Array => format!(
                        " [{}{broken}]{}",
                        elements.join(","),
                        ["", " \n", "x", "]"][seeded.below(4)]
                    ),
                    Layout::Lines => format!(
                        "{}\n{broken}{}",
                        elements.join("\n"),
                        ["", "\n", "\n \n", "\r\n"][seeded.below(4)]
                    ),
                };
                let bytes = document.as_bytes();
                let whole = record(layout, [bytes]);
                assert_eq!(whole, record(layout, bytes.chunks(1)), "{document}");
                let mut pieces = Vec::new();
                let mut rest = bytes;
                while !rest.is_empty() {
                    let (piece, after) =
                        rest.split_at(1 + seeded.below(rest.len().min(1 + round % 40)));
                    pieces.push(piece);
                    rest = after;
                }
                assert_eq!(whole, record(layout, pieces), "{document}");
            }
        }
    }

    #[test]
    fn streamed_array_equals_inline_array() {
        let mut seeded = Seeded(11);
        for _ in 0..400 {
            let elements: Vec<&str> = (0..seeded.below(8))
                .map(|_| ELEMENTS[3 + seeded.below(ELEMENTS.len() - 3)])
                .collect();
            let document = format!("[{}]", elements.join(","));
            let mut recorder = Recorder::default();
            let flow = read(document.as_bytes(), &mut recorder).unwrap();
            assert!(flow.is_continue());
            assert_eq!(
                recorder.finish(),
                record(Layout::Array, [document.as_bytes()]),
                "{document}"
            );
        }
    }

    #[test]
    fn fast_path_agrees_with_slow_path() {
        let mut seeded = Seeded(13);
        let mut accepted = 0;
        for _ in 0..40_000 {
            let mut bytes = ELEMENTS[seeded.below(ELEMENTS.len())].as_bytes().to_vec();
            for _ in 0..seeded.below(3) {
                let at = seeded.below(bytes.len().max(1));
                if bytes.is_empty() {
                    continue;
                }
                match seeded.below(3) {
                    0 => _ = bytes.remove(at),
                    1 => bytes.insert(at, b"\"\\{}[],:0-.e \n\tnu\x01"[seeded.below(18)]),
                    _ => bytes[at] = ELEMENTS[0].as_bytes()[seeded.below(ELEMENTS[0].len())],
                }
            }
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            let mut fast = Element::new(0, Some(1), ElementBuffers::default());
            let document = format!("{text}\n");
            let Some(end) = scan::element(&document, 0, true, &mut fast) else {
                continue;
            };
            accepted += 1;
            assert_eq!(end, text.find('\n').unwrap_or(text.len()), "{text:?}");
            let mut slow = Element::new(0, Some(1), ElementBuffers::default());
            read_one(text[..end].trim_ascii(), &mut slow).unwrap();
            let digest = |element: &mut Element<'_>| {
                let mut digest = SubmissionDigest::default();
                let flow: ControlFlow<()> = element.emit(&mut sink_fn(|prediction| {
                    digest.add(&prediction.unwrap());
                    ControlFlow::Continue(())
                }));
                assert!(flow.is_continue());
                digest.finish()
            };
            assert_eq!(digest(&mut fast), digest(&mut slow), "{text:?}");
        }
        assert!(accepted > 5_000, "{accepted}");
    }

    #[test]
    fn blank_lines_count_in_locations() {
        let good = r#"{"item_id":"a","prediction":"x"}"#;
        let document =
            format!("\n{good}\r\n \t\r\n{{\"item_id\":\"a\"}}\n{{\n[]\n{good}{good}\n{good}");
        let (_, lines) = record(Layout::Lines, [document.as_bytes()]);
        assert_eq!(
            lines,
            [
                "line 2",
                "line 4.prediction required",
                "line 5 format",
                "line 6 type",
                "line 7 format",
                "line 8"
            ]
        );
        for blank in ["", "\n", " \r\n\n"] {
            assert_eq!(
                record(Layout::Lines, [blank.as_bytes()]).1,
                ["predictions required"],
                "{blank:?}"
            );
        }
        assert_eq!(
            record(Layout::Lines, [b"{\"item_id\":\"\xff\"}".as_slice()]).1,
            ["line 1 format"]
        );
    }

    #[test]
    fn only_json_white_space_is_skipped() {
        let good = r#"{"item_id":"a","prediction":"x"}"#;
        for other in ["\u{c}", "\u{b}", "\u{a0}", "\u{feff}"] {
            assert_eq!(
                errors(Layout::Array, &format!("{other}[{good}]")),
                ["predictions type"]
            );
            assert_eq!(
                errors(Layout::Array, &format!("[{good}]{other}")),
                ["predictions format"]
            );
            assert_eq!(
                errors(Layout::Array, &format!("[{other}{good}]")),
                ["predictions[0] format"]
            );
            assert_eq!(
                errors(Layout::Array, &format!("[{other}]")),
                ["predictions[0] format"]
            );
            assert_eq!(
                record(Layout::Lines, [format!("{other}{good}").as_bytes()]).1,
                ["line 1 format"]
            );
            assert_eq!(
                record(Layout::Lines, [format!("{other}\n{good}").as_bytes()]).1,
                ["line 1 format", "line 2"]
            );
        }
        for white in [" ", "\t", "\r", "\r\n \t"] {
            assert_eq!(
                errors(
                    Layout::Array,
                    &format!("{white}[{white}{good}{white}]{white}")
                ),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn malformed_array_is_reported_once() {
        let good = r#"{"item_id":"a","prediction":"x"}"#;
        for (document, expected) in [
            (String::new(), "predictions required"),
            ("[]".into(), "predictions required"),
            (" [ ] ".into(), "predictions required"),
            ("{}".into(), "predictions type"),
            (good.into(), "predictions type"),
            ("[".into(), "predictions format"),
            (format!("[{good}"), "predictions format"),
            (format!("[{good},"), "predictions format"),
            (format!("[{good}] []"), "predictions format"),
            (format!("[{good},]"), "predictions[1] format"),
            (format!("[,{good}]"), "predictions[0] format"),
            (format!("[{good} {good}]"), "predictions[0] format"),
            (format!("[{good},}},{good}]"), "predictions[1] format"),
        ] {
            assert_eq!(errors(Layout::Array, &document), [expected], "{document}");
        }
    }

    #[test]
    fn element_size_and_depth_are_limited() {
        let long = |bytes: usize| {
            format!(
                r#"{{"item_id":"a","prediction":"x","n":"{}"}}"#,
                "n".repeat(bytes - 39)
            )
        };
        let deep = |levels: usize| {
            format!(
                r#"{{"item_id":"a","prediction":"x","n":{}{}}}"#,
                "[".repeat(levels - 1),
                "]".repeat(levels - 1)
            )
        };
        assert_eq!(long(100).len(), 100);
        for (element, error) in [
            (long(ELEMENT_BYTES_MAX), None),
            (long(ELEMENT_BYTES_MAX + 1), Some("range")),
            (long(3 * ELEMENT_BYTES_MAX), Some("range")),
            (deep(ELEMENT_DEPTH_MAX), None),
            (deep(ELEMENT_DEPTH_MAX + 1), Some("format")),
            (deep(5000), Some("format")),
        ] {
            for (layout, document, location) in [
                (
                    Layout::Array,
                    format!("[{element},{element}]"),
                    "predictions[1]",
                ),
                (Layout::Lines, format!("{element}\n{element}"), "line 2"),
            ] {
                let second = error.map_or_else(
                    || location.to_owned(),
                    |reason| format!("{location} {reason}"),
                );
                for pieces in [document.len(), 4096] {
                    let (_, lines) = record(layout, document.as_bytes().chunks(pieces));
                    assert_eq!((lines.len(), &lines[1]), (2, &second));
                }
            }
        }
    }

    /// A measurement: `cargo test --release -p assay-eval -- --ignored --nocapture speed`
    #[test]
    #[ignore = "measures"]
    #[expect(clippy::print_stdout, reason = "prints the measurement")]
    fn speed() {
        let ids = (0..10)
            .map(|at| format!("\"dish-{at:06}\""))
            .collect::<Vec<_>>()
            .join(",");
        let element = format!(r#"{{"item_id":"person-000001/day-7","prediction":[{ids}]}}"#);
        let many = 200_000_000 / (element.len() + 1);
        for (layout, document) in [
            (Layout::Lines, (element.clone() + "\n").repeat(many)),
            (
                Layout::Array,
                format!("[{}{element}]", (element.clone() + ",").repeat(many)),
            ),
        ] {
            for digesting in [true, false] {
                let start = std::time::Instant::now();
                let mut digest = SubmissionDigest::default();
                let mut stream = Stream::new(layout);
                let mut sink = sink_fn(|prediction| {
                    if digesting {
                        digest.add(&prediction.unwrap());
                    }
                    ControlFlow::<()>::Continue(())
                });
                for piece in document.as_bytes().chunks(256 * 1024) {
                    assert!(stream.feed(piece, &mut sink).is_continue());
                }
                assert!(stream.finish(&mut sink).is_continue());
                let rate = document.len() as f64 / 1e6 / start.elapsed().as_secs_f64();
                println!(
                    "{layout:?}, digesting {digesting}: {rate:.0} MB/s, elements of {} bytes",
                    element.len()
                );
            }
        }
    }
}
