//! Predictions that come as a stream of bytes, cut anywhere: one element at a time is in memory.
//!
//! What lives here: finding where elements begin and end. What they must be is the reader's to say.

use std::array;
use std::mem;
use std::ops::ControlFlow;

use super::element::{Element, ElementBuffers};
use super::reader::read_one;
use super::{Prediction, name, scan};
use crate::error::FieldError;
use crate::json::{DEPTH_MAX, depth};

/// The longest element, in bytes.
pub const ELEMENT_MAX: usize = 1024 * 1024;

/// How many predictions are read before the first of them is handed on.
const AHEAD: usize = 32;

/// How deeply an element may be nested: in a submission two levels are around it.
const ELEMENT_DEPTH_MAX: usize = DEPTH_MAX - 2;

/// How predictions are written one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One on each line; lines may be blank.
    Lines,
    /// A JSON array.
    Array,
}

/// Where in a JSON array the stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the opening bracket.
    Before,
    /// In an element, or before one.
    Within,
    /// Behind the closing bracket.
    Behind,
    /// Behind a fault after which nothing can be told apart any more.
    Lost,
}

/// White space as JSON knows it: less than ASCII does.
const fn is_white(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Reads predictions from bytes as they come. Each prediction is handed on, or what is wrong with it (an element may have
/// several faults); whether an item is repeated is not looked at. What is handed on does not depend on how the bytes are
/// cut.
pub struct Stream {
    form: Layout,
    place: Place,
    /// The beginning of an element whose end has not come. Of one that is too long, its beginning.
    begun: Vec<u8>,
    /// Whether the present element is longer than it may be. Then it is passed over.
    too_long: bool,
    /// How many brackets and braces are open in the present element.
    open: usize,
    in_text: bool,
    escaped: bool,
    index: usize,
    line: usize,
    /// Whether a fault was handed on.
    at_fault: bool,
    /// ElementBuffers of the reader's, used again.
    memory: [ElementBuffers; AHEAD],
}

impl Stream {
    /// Nothing has come yet.
    pub fn new(form: Layout) -> Self {
        let place = if form == Layout::Array {
            Place::Before
        } else {
            Place::Within
        };
        Self {
            form,
            place,
            begun: Vec::new(),
            too_long: false,
            open: 0,
            in_text: false,
            escaped: false,
            index: 0,
            line: 1,
            at_fault: false,
            memory: array::from_fn(|_| ElementBuffers::default()),
        }
    }

    /// Takes the next bytes. Stops when `each` breaks and returns that.
    pub fn feed<B>(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.feed_ahead(bytes, &mut |_| {}, each)
    }

    /// The same; and `ahead` is told of some item ids before their predictions are handed on, so that what belongs to
    /// them can be fetched from memory for all of them together.
    pub fn feed_ahead<B>(
        &mut self,
        bytes: &[u8],
        ahead: &mut impl FnMut(&[&str]),
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        // A character that is cut in two is not at the end of an element, nor at the beginning of one.
        let begin = bytes
            .iter()
            .take(3)
            .take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000)
            .count();
        let whole = &bytes[begin..];
        let text = str::from_utf8(whole)
            .or_else(|error| str::from_utf8(&whole[..error.valid_up_to()]))
            .unwrap_or_default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut at = bytes.len() - rest.len();
            if self.form == Layout::Lines && self.is_between() {
                // There may be millions of empty lines.
                let white = rest.iter().take_while(|byte| is_white(byte)).count();
                let empty = rest[..white]
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map_or(0, |last| last + 1);
                self.line += rest[..empty].iter().filter(|byte| **byte == b'\n').count();
                (at, rest) = (at + empty, &rest[empty..]);
            }
            if self.is_between() && at >= begin && at - begin < text.len() {
                rest = &whole[self.feed_fast_path(text, at - begin, ahead, each)?..];
                if rest.is_empty() {
                    break;
                }
            }
            match self.place {
                Place::Lost => break,
                Place::Before | Place::Behind => {
                    let Some(at) = rest.iter().position(|byte| !is_white(byte)) else {
                        break;
                    };
                    let (first, behind) = (rest[at], &rest[at + 1..]);
                    rest = behind;
                    match (self.place, first) {
                        (Place::Before, b'[') => self.place = Place::Within,
                        (Place::Before, _) => {
                            self.fail("predictions", "type", "must be an array of objects", each)?;
                        }
                        _ => self.fail(
                            "predictions",
                            "format",
                            "there is something behind the end of the array",
                            each,
                        )?,
                    }
                }
                Place::Within => {
                    let Some(end) = self.end(rest) else {
                        self.buffer_partial(rest);
                        break;
                    };
                    let (part, behind) = rest.split_at(end);
                    rest = &behind[1..];
                    self.ended(part, behind[0], each)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether an element begins here.
    fn is_between(&self) -> bool {
        self.place == Place::Within
            && self.begun.is_empty()
            && !self.too_long
            && self.open == 0
            && !self.in_text
            && !self.escaped
    }

    /// Hands on the elements from `at` on as long as they are whole and written in the usual way; tells where the first one
    /// begins that is not.
    fn feed_fast_path<B>(
        &mut self,
        text: &str,
        mut at: usize,
        ahead: &mut impl FnMut(&[&str]),
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B, usize> {
        let of_lines = self.form == Layout::Lines;
        // Made one by one: where the first one is written in another way, there is no need of more.
        let mut batch = Vec::new();
        let mut flow = ControlFlow::Continue(());
        loop {
            let mut n = 0;
            while n < AHEAD && self.place == Place::Within {
                if n == batch.len() {
                    batch.push(Element::new(0, None, mem::take(&mut self.memory[n])));
                }
                let Some(end) = scan::element(text, at, of_lines, &mut batch[n])
                    .filter(|end| end - at <= ELEMENT_MAX)
                else {
                    break;
                };
                if text.as_bytes()[end] == b']' {
                    self.place = Place::Behind;
                }
                at = end + 1;
                n += 1;
            }
            let ids: [&str; AHEAD] = array::from_fn(|at| {
                batch[..n]
                    .get(at)
                    .map_or("", |element| element.item_id.as_ref())
            });
            ahead(&ids[..n]);
            for element in &mut batch[..n] {
                (element.index, element.line) = (self.index, self.line());
                if flow.is_continue() {
                    flow = element.emit(&mut *each);
                }
                element.next();
                self.index += 1;
                self.line += 1;
            }
            if n < AHEAD || flow.is_break() {
                break;
            }
        }
        batch
            .into_iter()
            .zip(&mut self.memory)
            .for_each(|(element, memory)| *memory = ElementBuffers::of(element));
        flow.map_continue(|()| at)
    }

    /// Nothing more comes.
    pub fn finish<B>(
        mut self,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        match (self.form, self.place) {
            (Layout::Lines, _) => self.ended(&[], b'\n', each)?,
            (Layout::Array, Place::Before) => self.fail(
                "predictions",
                "required",
                "there must be at least one prediction",
                each,
            )?,
            (Layout::Array, Place::Within) => {
                let told = format!(
                    "the array ends in the middle, after {} predictions",
                    self.index
                );
                self.fail("predictions", "format", &told, each)?;
            }
            (Layout::Array, Place::Behind | Place::Lost) => {}
        }
        if self.index == 0 && !self.at_fault {
            self.fail(
                "predictions",
                "required",
                "there must be at least one prediction",
                each,
            )?;
        }
        ControlFlow::Continue(())
    }

    /// Where the present element ends: at the newline, comma or bracket behind it.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.form == Layout::Lines {
            return memchr::memchr(b'\n', bytes);
        }
        let mut at = 0;
        while at < bytes.len() {
            if self.escaped {
                self.escaped = false;
            } else if self.in_text {
                at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
                if bytes[at] == b'"' {
                    self.in_text = false;
                } else {
                    self.escaped = true;
                }
            } else {
                match bytes[at] {
                    b'"' => self.in_text = true,
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
        if self.begun.len() + bytes.len() > ELEMENT_MAX {
            self.too_long = true;
        } else if !self.too_long {
            self.begun.extend_from_slice(bytes);
        }
    }

    /// An element ends with `part`, before `delimiter`.
    fn ended<B>(
        &mut self,
        part: &[u8],
        delimiter: u8,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut begun = mem::take(&mut self.begun);
        let whole = if begun.is_empty() && part.len() <= ELEMENT_MAX {
            part
        } else if begun.len() + part.len() > ELEMENT_MAX {
            self.too_long = true;
            [].as_slice()
        } else {
            begun.extend_from_slice(part);
            begun.as_slice()
        };
        let too_long = mem::take(&mut self.too_long);
        let blank = !too_long && whole.iter().all(is_white);
        let nothing = match self.form {
            Layout::Lines => blank,
            // `[]` is empty; `[a,]` lacks an element.
            Layout::Array => blank && delimiter == b']' && self.index == 0,
        };
        if delimiter == b']' {
            self.place = Place::Behind;
        }
        let flow = if nothing {
            ControlFlow::Continue(())
        } else if too_long {
            self.fault("", "range", "is longer than 1 MiB", each)
        } else {
            self.element(whole, each)
        };
        self.index += usize::from(!nothing);
        self.line += 1;
        begun.clear();
        self.begun = begun;
        flow
    }

    fn element<B>(
        &mut self,
        json: &[u8],
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Ok(text) = str::from_utf8(json) else {
            return self.broken("is not UTF-8", each);
        };
        let line = self.line();
        // Counting brackets is much faster than following them, and nearly always enough.
        let brackets = json
            .iter()
            .filter(|byte| matches!(byte, b'[' | b'{'))
            .count();
        let deep = brackets > ELEMENT_DEPTH_MAX;
        if deep
            && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
            && depth(json) > ELEMENT_DEPTH_MAX
        {
            return self.fault(
                "",
                "format",
                &format!("is nested deeper than {ELEMENT_DEPTH_MAX} levels"),
                each,
            );
        }
        let mut element = Element::new(self.index, line, mem::take(&mut self.memory[0]));
        if let Err(error) = read_one(text, &mut element) {
            return self.broken(
                &format!("is not valid JSON (column {})", error.column()),
                each,
            );
        }
        let mut at_fault = false;
        let flow = element.emit(|next| {
            at_fault |= next.is_err();
            each(next)
        });
        self.at_fault |= at_fault;
        self.memory[0] = ElementBuffers::of(element);
        flow
    }

    /// The present element is no JSON. Another line begins anew; in an array nobody can tell where the next one begins.
    fn broken<B>(
        &mut self,
        told: &str,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if self.form == Layout::Array {
            self.place = Place::Lost;
        }
        self.fault("", "format", told, each)
    }

    fn fail<B>(
        &mut self,
        field: &str,
        reason: &'static str,
        told: &str,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.place = Place::Lost;
        self.at_fault = true;
        each(Err(FieldError::new(field, reason, told)))
    }

    fn fault<B>(
        &mut self,
        place: &str,
        reason: &'static str,
        told: &str,
        each: &mut impl FnMut(Result<Prediction<'_, '_>, FieldError>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.at_fault = true;
        each(Err(FieldError::new(
            format!("{}{place}", name(self.index, self.line())),
            reason,
            told,
        )))
    }

    fn line(&self) -> Option<usize> {
        (self.form == Layout::Lines).then_some(self.line)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::prediction::{SubmissionDigest, read};

    /// What is handed on when the bytes come in these pieces: the digest of the predictions, their places, the faults.
    fn told<'b>(
        form: Layout,
        pieces: impl IntoIterator<Item = &'b [u8]>,
    ) -> ([u8; 32], Vec<String>) {
        let (mut digest, mut said) = (SubmissionDigest::default(), Vec::new());
        let mut each = |next: Result<Prediction<'_, '_>, FieldError>| -> ControlFlow<()> {
            match next {
                Ok(prediction) => {
                    digest.add(&prediction);
                    said.push(name(prediction.index, prediction.line));
                }
                Err(fault) => said.push(format!("{} {}", fault.field, fault.reason)),
            }
            ControlFlow::Continue(())
        };
        let mut stream = Stream::new(form);
        for piece in pieces {
            assert!(stream.feed(piece, &mut each).is_continue());
        }
        assert!(stream.finish(&mut each).is_continue());
        (digest.finish(), said)
    }

    fn faults(form: Layout, document: &str) -> Vec<String> {
        told(form, [document.as_bytes()])
            .1
            .into_iter()
            .filter(|said| {
                said.contains(' ') && !said.starts_with("line ") || said.matches(' ').count() > 1
            })
            .collect()
    }

    /// Numbers that look random and are the same each time.
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

    /// Pieces of a document, among them what is tricky to cut and what is at fault.
    const ELEMENTS: [&str; 24] = [
        // The first three are no JSON.
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
    fn it_does_not_matter_how_the_bytes_are_cut() {
        let mut seeded = Seeded(7);
        for round in 0..400 {
            let elements: Vec<&str> = (0..seeded.below(12))
                .map(|_| ELEMENTS[seeded.below(ELEMENTS.len())])
                .collect();
            let broken =
                ["", "", "", "{", "{\"item_id\":", "]", "\"", "x", "}", ","][seeded.below(10)];
            for form in [Layout::Array, Layout::Lines] {
                let document = match form {
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
                let whole = told(form, [bytes]);
                assert_eq!(whole, told(form, bytes.chunks(1)), "{document}");
                let mut pieces = Vec::new();
                let mut rest = bytes;
                while !rest.is_empty() {
                    let (piece, behind) =
                        rest.split_at(1 + seeded.below(rest.len().min(1 + round % 40)));
                    pieces.push(piece);
                    rest = behind;
                }
                assert_eq!(whole, told(form, pieces), "{document}");
            }
        }
    }

    #[test]
    fn a_streamed_array_says_what_an_inline_one_says() {
        let mut seeded = Seeded(11);
        for _ in 0..400 {
            let elements: Vec<&str> = (0..seeded.below(8))
                .map(|_| ELEMENTS[3 + seeded.below(ELEMENTS.len() - 3)])
                .collect();
            let document = format!("[{}]", elements.join(","));
            let (mut digest, mut said) = (SubmissionDigest::default(), Vec::new());
            let flow: ControlFlow<()> = read(document.as_bytes(), |next| {
                match next {
                    Ok(prediction) => {
                        digest.add(&prediction);
                        said.push(name(prediction.index, prediction.line));
                    }
                    Err(fault) => said.push(format!("{} {}", fault.field, fault.reason)),
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            assert!(flow.is_continue());
            assert_eq!(
                (digest.finish(), said),
                told(Layout::Array, [document.as_bytes()]),
                "{document}"
            );
        }
    }

    #[test]
    fn the_quick_way_takes_nothing_that_the_other_does_not_and_finds_the_same() {
        let mut seeded = Seeded(13);
        let mut taken = 0;
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
            let mut quick = Element::new(0, Some(1), ElementBuffers::default());
            let document = format!("{text}\n");
            let Some(end) = scan::element(&document, 0, true, &mut quick) else {
                continue;
            };
            taken += 1;
            assert_eq!(end, text.find('\n').unwrap_or(text.len()), "{text:?}");
            let mut slow = Element::new(0, Some(1), ElementBuffers::default());
            read_one(text[..end].trim_ascii(), &mut slow).unwrap();
            let digest = |element: &mut Element<'_>| {
                let mut digest = SubmissionDigest::default();
                let flow: ControlFlow<()> = element.emit(|next| {
                    digest.add(&next.unwrap());
                    ControlFlow::Continue(())
                });
                assert!(flow.is_continue());
                digest.finish()
            };
            assert_eq!(digest(&mut quick), digest(&mut slow), "{text:?}");
        }
        assert!(taken > 5_000, "{taken}");
    }

    #[test]
    fn lines_may_be_blank_and_faults_name_them() {
        let good = r#"{"item_id":"a","prediction":"x"}"#;
        let document =
            format!("\n{good}\r\n \t\r\n{{\"item_id\":\"a\"}}\n{{\n[]\n{good}{good}\n{good}");
        let (_, said) = told(Layout::Lines, [document.as_bytes()]);
        assert_eq!(
            said,
            [
                "line 2",
                "line 4.prediction required",
                "line 5 format",
                "line 6 type",
                "line 7 format",
                "line 8"
            ]
        );
        for nothing in ["", "\n", " \r\n\n"] {
            assert_eq!(
                told(Layout::Lines, [nothing.as_bytes()]).1,
                ["predictions required"],
                "{nothing:?}"
            );
        }
        assert_eq!(
            told(Layout::Lines, [b"{\"item_id\":\"\xff\"}".as_slice()]).1,
            ["line 1 format"]
        );
    }

    #[test]
    fn white_space_is_what_json_takes_for_it() {
        let good = r#"{"item_id":"a","prediction":"x"}"#;
        for other in ["\u{c}", "\u{b}", "\u{a0}", "\u{feff}"] {
            assert_eq!(
                faults(Layout::Array, &format!("{other}[{good}]")),
                ["predictions type"]
            );
            assert_eq!(
                faults(Layout::Array, &format!("[{good}]{other}")),
                ["predictions format"]
            );
            assert_eq!(
                faults(Layout::Array, &format!("[{other}{good}]")),
                ["predictions[0] format"]
            );
            assert_eq!(
                faults(Layout::Array, &format!("[{other}]")),
                ["predictions[0] format"]
            );
            assert_eq!(
                told(Layout::Lines, [format!("{other}{good}").as_bytes()]).1,
                ["line 1 format"]
            );
            assert_eq!(
                told(Layout::Lines, [format!("{other}\n{good}").as_bytes()]).1,
                ["line 1 format", "line 2"]
            );
        }
        for white in [" ", "\t", "\r", "\r\n \t"] {
            assert_eq!(
                faults(
                    Layout::Array,
                    &format!("{white}[{white}{good}{white}]{white}")
                ),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn an_array_that_is_none_is_told_once() {
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
            assert_eq!(faults(Layout::Array, &document), [expected], "{document}");
        }
    }

    #[test]
    fn an_element_has_at_most_a_mebibyte_and_is_not_nested_deeply() {
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
        for (element, fault) in [
            (long(ELEMENT_MAX), None),
            (long(ELEMENT_MAX + 1), Some("range")),
            (long(3 * ELEMENT_MAX), Some("range")),
            (deep(ELEMENT_DEPTH_MAX), None),
            (deep(ELEMENT_DEPTH_MAX + 1), Some("format")),
            (deep(5000), Some("format")),
        ] {
            for (form, document, named) in [
                (
                    Layout::Array,
                    format!("[{element},{element}]"),
                    "predictions[1]",
                ),
                (Layout::Lines, format!("{element}\n{element}"), "line 2"),
            ] {
                let second =
                    fault.map_or_else(|| named.to_owned(), |reason| format!("{named} {reason}"));
                for pieces in [document.len(), 4096] {
                    let (_, said) = told(form, document.as_bytes().chunks(pieces));
                    assert_eq!((said.len(), &said[1]), (2, &second));
                }
            }
        }
    }

    /// Not a test of anything: `cargo test --release -p assay-core -- --ignored --nocapture speed`
    #[test]
    #[ignore = "measures"]
    #[expect(clippy::print_stdout, reason = "that is what it is for")]
    fn speed() {
        let ids = (0..10)
            .map(|at| format!("\"dish-{at:06}\""))
            .collect::<Vec<_>>()
            .join(",");
        let element = format!(r#"{{"item_id":"person-000001/day-7","prediction":[{ids}]}}"#);
        let many = 200_000_000 / (element.len() + 1);
        for (form, document) in [
            (Layout::Lines, (element.clone() + "\n").repeat(many)),
            (
                Layout::Array,
                format!("[{}{element}]", (element.clone() + ",").repeat(many)),
            ),
        ] {
            for digesting in [true, false] {
                let began = std::time::Instant::now();
                let mut digest = SubmissionDigest::default();
                let mut stream = Stream::new(form);
                let mut each = |next: Result<Prediction<'_, '_>, FieldError>| -> ControlFlow<()> {
                    if digesting {
                        digest.add(&next.unwrap());
                    }
                    ControlFlow::Continue(())
                };
                for piece in document.as_bytes().chunks(256 * 1024) {
                    assert!(stream.feed(piece, &mut each).is_continue());
                }
                assert!(stream.finish(&mut each).is_continue());
                let rate = document.len() as f64 / 1e6 / began.elapsed().as_secs_f64();
                println!(
                    "{form:?}, digesting {digesting}: {rate:.0} MB/s, elements of {} bytes",
                    element.len()
                );
            }
        }
    }
}
