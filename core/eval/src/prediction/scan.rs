//! The quick way through predictions that are written as nearly all are: an object of a known form, without a fault.
//!
//! It takes nothing that the reader would not take, and hands on the same; where it is not sure it says so, and the
//! reader decides and tells the faults. So nothing here has a message.

use std::borrow::Cow;

use super::MAX_ITEM_ID;
use super::element::{Element, Form};

/// A prediction or an answer, by its form in JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Written<'a> {
    /// A string.
    Label(Cow<'a, str>),
    /// An array of strings.
    Ranking(Vec<Cow<'a, str>>),
    /// A number.
    Number(f64),
    /// An object of string → number.
    Weights(Vec<(Cow<'a, str>, f64)>),
}

/// Reads a value that stands alone. `None`: it has none of the four forms, or is written in an unusual way.
pub fn written(json: &str) -> Option<Written<'_>> {
    let mut scan = Scan {
        text: json,
        at: 0,
        of_lines: false,
    };
    let written = match scan.peek()? {
        b'"' => Written::Label(scan.string()?),
        b'[' => {
            let mut ids = Vec::new();
            scan.ranking(&mut ids)?;
            Written::Ranking(ids)
        }
        b'{' => {
            let mut weights = Vec::new();
            scan.weights(&mut weights)?;
            Written::Weights(weights)
        }
        _ => Written::Number(scan.number()?),
    };
    (scan.at == json.len()).then_some(written)
}

/// Reads the element at `from` into `element`, and tells where the byte stands that ends it: a comma or the array's
/// bracket, or, `of_lines`, a newline. `None`: not sure.
pub(super) fn element<'a>(
    text: &'a str,
    from: usize,
    of_lines: bool,
    element: &mut Element<'a>,
) -> Option<usize> {
    let mut scan = Scan {
        text,
        at: from,
        of_lines,
    };
    scan.prediction(element)?;
    scan.space();
    let ends = match scan.peek()? {
        b'\n' => of_lines,
        b',' | b']' => !of_lines,
        _ => false,
    };
    ends.then_some(scan.at)
}

/// A line of an object that gives an item something: `{"item_id": …, "<key>": …}`, in this order or the other, and
/// nothing else. `None`: not sure.
pub fn line_of<'a>(line: &'a str, key: &str) -> Option<(Cow<'a, str>, &'a str)> {
    let mut scan = Scan {
        text: line,
        at: 0,
        of_lines: false,
    };
    scan.space();
    scan.byte(b'{')?;
    let (mut item_id, mut value) = (None, None);
    for last in [false, true] {
        scan.space();
        let name = scan.string()?;
        scan.colon()?;
        if name == "item_id" && item_id.is_none() {
            item_id = Some(scan.string()?);
        } else if name == key && value.is_none() {
            let from = scan.at;
            scan.value()?;
            value = Some(&line[from..scan.at]);
        } else {
            return None;
        }
        scan.space();
        scan.byte(if last { b'}' } else { b',' })?;
    }
    scan.space();
    (scan.at == line.len()).then_some((item_id?, value?))
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// Then a newline is the end, not white space.
    of_lines: bool,
}

impl<'a> Scan<'a> {
    fn prediction(&mut self, element: &mut Element<'a>) -> Option<()> {
        self.space();
        self.byte(b'{')?;
        let (mut has_item_id, mut has_prediction) = (false, false);
        let mut further: Vec<&str> = Vec::new();
        loop {
            self.space();
            let rest = self.rest();
            if !has_item_id && rest.starts_with(b"\"item_id\"") {
                has_item_id = true;
                self.at += 9;
                self.colon()?;
                element.item_id = self.string()?;
                if element.item_id.is_empty() || element.item_id.len() > MAX_ITEM_ID {
                    return None;
                }
            } else if !has_prediction && rest.starts_with(b"\"prediction\"") {
                has_prediction = true;
                self.at += 12;
                self.colon()?;
                self.predicted(element)?;
            } else {
                self.further(&mut further)?;
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        (has_item_id && has_prediction).then_some(())
    }

    /// A field that is ignored. One that holds more fields is not for here.
    fn further(&mut self, seen: &mut Vec<&'a str>) -> Option<()> {
        let Cow::Borrowed(key) = self.string()? else {
            return None;
        };
        if matches!(key, "item_id" | "prediction") || seen.contains(&key) || seen.len() == 8 {
            return None;
        }
        seen.push(key);
        self.colon()?;
        match self.peek()? {
            b'[' | b'{' => None,
            _ => self.value(),
        }
    }

    /// Any value but one that holds arrays or objects of further ones.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'[' => self.ranking(&mut Vec::new()),
            b'{' => self.weights(&mut Vec::new()),
            _ => {
                let word = ["true", "false", "null"]
                    .into_iter()
                    .find(|word| self.rest().starts_with(word.as_bytes()));
                match word {
                    Some(word) => {
                        self.at += word.len();
                        Some(())
                    }
                    None => self.number().map(drop),
                }
            }
        }
    }

    fn predicted(&mut self, element: &mut Element<'a>) -> Option<()> {
        match self.peek()? {
            b'[' => {
                element.form = Form::Ranking;
                self.ranking(&mut element.ids)
            }
            b'"' => {
                element.form = Form::Label;
                element.ids.push(self.string()?);
                Some(())
            }
            b'{' => {
                element.form = Form::Weights;
                self.weights(&mut element.weights)
            }
            _ => {
                element.form = Form::Number(self.number()?);
                Some(())
            }
        }
    }

    fn ranking(&mut self, ids: &mut Vec<Cow<'a, str>>) -> Option<()> {
        self.list(b'[', b']', |scan| {
            ids.push(scan.string()?);
            Some(())
        })
    }

    fn weights(&mut self, weights: &mut Vec<(Cow<'a, str>, f64)>) -> Option<()> {
        self.list(b'{', b'}', |scan| {
            let key = scan.string()?;
            scan.colon()?;
            weights.push((key, scan.number()?));
            Some(())
        })
    }

    /// What `next` reads, with commas between, in brackets.
    #[inline]
    fn list(
        &mut self,
        open: u8,
        close: u8,
        mut next: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.byte(open)?;
        self.space();
        if self.peek()? != close {
            loop {
                next(self)?;
                self.space();
                match self.peek()? {
                    b',' => self.at += 1,
                    byte if byte == close => break,
                    _ => return None,
                }
                self.space();
            }
        }
        self.at += 1;
        Some(())
    }

    /// A string without NUL.
    #[inline]
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.byte(b'"')?;
        let (bytes, from) = (self.text.as_bytes(), self.at);
        let end = plain_end(bytes, from)?;
        if bytes[end] == b'"' {
            self.at = end + 1;
            return Some(Cow::Borrowed(&self.text[from..end]));
        }
        self.escaped(from, end)
    }

    #[cold]
    fn escaped(&mut self, from: usize, mut end: usize) -> Option<Cow<'a, str>> {
        let bytes = self.text.as_bytes();
        while bytes[end] == b'\\' {
            end = plain_end(bytes, end + 2)?;
        }
        let text: String = serde_json::from_str(self.text.get(from - 1..=end)?).ok()?;
        self.at = end + 1;
        (!text.contains('\0')).then_some(Cow::Owned(text))
    }

    fn number(&mut self) -> Option<f64> {
        let (bytes, from) = (self.text.as_bytes(), self.at);
        let digits = |at: usize| {
            at + bytes[at..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let start = from + usize::from(bytes.get(from) == Some(&b'-'));
        let mut end = digits(start);
        // `-`, `.5` and `01` are no numbers.
        if end == start || (bytes[start] == b'0' && end > start + 1) {
            return None;
        }
        if bytes.get(end) == Some(&b'.') {
            let fraction = end + 1;
            end = digits(fraction);
            if end == fraction {
                return None;
            }
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            end = digits(exponent.min(bytes.len()));
            if end <= exponent {
                return None;
            }
        }
        self.at = end;
        self.text[from..end]
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }

    #[inline]
    fn space(&mut self) {
        // There is mostly none, or one.
        while let Some(byte) = self.text.as_bytes().get(self.at)
            && (matches!(byte, b' ' | b'\t' | b'\r') || (*byte == b'\n' && !self.of_lines))
        {
            self.at += 1;
        }
    }

    #[inline]
    fn colon(&mut self) -> Option<()> {
        self.space();
        self.byte(b':')?;
        self.space();
        Some(())
    }

    #[inline]
    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }
}

/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Where, from `at` on, the first byte stands that does not stand for itself in a string: a quote, a backslash or a
/// control character.
#[inline]
fn plain_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        // A byte's highest bit comes out set where the byte is zero. Above the first such byte a borrow may set others:
        // only the first one counts.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let below_space = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c)) | below_space) & HIGH;
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    rest.iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))
        .map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_string_is_where_it_is() {
        for length in 0..40 {
            for stop in ["\"", "\\", "\n", "\0", "\u{1f}"] {
                for letter in ["a", "ä", "\u{7f}", "!", "#", "]", "["] {
                    let plain = letter.repeat(length);
                    let text = format!("{plain}{stop}\"\\\n{plain}");
                    assert_eq!(plain_end(text.as_bytes(), 0), Some(plain.len()), "{text:?}");
                    assert_eq!(plain_end(plain.as_bytes(), 0), None);
                }
            }
        }
        assert_eq!(plain_end(b"", 2), None);
    }

    #[test]
    fn what_is_no_json_is_not_taken() {
        let json = [
            "", "-", "01", "-01", "1.", ".5", "1e", "1e+", "+1", "1e999", "[", "[1]", "[\"a\",]",
            "[,]", "{", "{\"a\"}", "{\"a\":}",
        ];
        let more = [
            "{\"a\":1,}",
            "{\"a\":\"b\"}",
            "\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\n\"",
            "\"\\u0000\"",
            "tru",
            "[\"a\" \"b\"]",
        ];
        for json in json.into_iter().chain(more).chain([
            "nan", "Infinity", "null", "1 ", "\"a\"x", "0x10", "1_0", "\"\\",
        ]) {
            assert_eq!(written(json), None, "{json}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_reader() {
        for json in [
            "0",
            "-0",
            "-0.0",
            "12",
            "1.5",
            "-2.5e-3",
            "1E+2",
            "0.1",
            "123456789012345678901234567890",
            "1e308",
            "5e-324",
            "1e-400",
        ] {
            let Some(Written::Number(number)) = written(json) else {
                panic!("{json}")
            };
            assert_eq!(
                number.to_bits(),
                serde_json::from_str::<f64>(json).unwrap().to_bits(),
                "{json}"
            );
        }
    }

    #[test]
    fn a_line_gives_an_item_something() {
        assert_eq!(
            line_of(r#" {"item_id": "a\u0062", "answer" : ["x"] } "#, "answer"),
            Some(("ab".into(), r#"["x"]"#))
        );
        assert_eq!(
            line_of(r#"{"answer":{"x":1},"item_id":"a"}"#, "answer"),
            Some(("a".into(), r#"{"x":1}"#))
        );
        for line in [
            r#"{"item_id":"a"}"#,
            r#"{"item_id":"a","answer":1,"x":2}"#,
            r#"{"item_id":"a","item_id":"a"}"#,
            "[]",
            "",
        ] {
            assert_eq!(line_of(line, "answer"), None, "{line}");
        }
    }
}
