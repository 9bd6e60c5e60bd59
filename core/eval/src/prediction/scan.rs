//! The fast path: a scanner for elements that are objects in a known form without errors, as nearly
//! all are.
//!
//! It accepts less than what the reader (the slow path) accepts, with the same result. Every
//! function returns `None` on anything unusual; the slow path then reads the element again and
//! reports its errors. So nothing here has a message.

use std::borrow::Cow;

use super::element::{Element, Form};
use super::value::ITEM_ID_BYTES_MAX;
use crate::json::plain_end;

/// A prediction's or an answer's value, by its form in JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Written<'a> {
    /// A string: one id or label.
    Label(Cow<'a, str>),
    /// A string array: ids.
    Ranking(Vec<Cow<'a, str>>),
    /// A finite number.
    Number(f64),
    /// A string → number object: probabilities or gains.
    Weights(Vec<(Cow<'a, str>, f64)>),
}

/// Reads the one value in `json`. `None` if it does not have such a form, or the fast path cannot
/// read it.
pub fn written(json: &str) -> Option<Written<'_>> {
    let mut scan = Scan {
        text: json,
        at: 0,
        in_lines: false,
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

/// Reads the element at `from` into `element`. Returns where the byte that ends it is: a comma or
/// the array's closing bracket, or a newline with `in_lines`.
pub(super) fn element<'a>(
    text: &'a str,
    from: usize,
    in_lines: bool,
    element: &mut Element<'a>,
) -> Option<usize> {
    let mut scan = Scan {
        text,
        at: from,
        in_lines,
    };
    scan.prediction(element)?;
    scan.space();
    let is_end = match scan.peek()? {
        b'\n' => in_lines,
        b',' | b']' => !in_lines,
        _ => false,
    };
    is_end.then_some(scan.at)
}

/// Reads a line `{"item_id": …, "<key>": …}`, with the two fields in either order and no others.
/// Returns the item id and the other field's JSON. `None` if the fast path cannot read the
/// line.
pub fn line_of<'a>(line: &'a str, key: &str) -> Option<(Cow<'a, str>, &'a str)> {
    let mut scan = Scan {
        text: line,
        at: 0,
        in_lines: false,
    };
    scan.space();
    scan.byte(b'{')?;
    let mut item_id = None;
    let mut value = None;
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
    /// Set if a newline ends the element; otherwise it is white space.
    in_lines: bool,
}

impl<'a> Scan<'a> {
    fn prediction(&mut self, element: &mut Element<'a>) -> Option<()> {
        self.space();
        self.byte(b'{')?;
        let mut has_item_id = false;
        let mut has_prediction = false;
        let mut has_error = false;
        let mut ignored: Vec<&str> = Vec::new();
        loop {
            self.space();
            let rest = self.rest();
            if !has_item_id && rest.starts_with(b"\"item_id\"") {
                has_item_id = true;
                self.at += 9;
                self.colon()?;
                element.item_id = self.string()?;
                if element.item_id.is_empty() || element.item_id.len() > ITEM_ID_BYTES_MAX {
                    return None;
                }
            } else if !has_prediction && rest.starts_with(b"\"prediction\"") {
                has_prediction = true;
                self.at += 12;
                self.colon()?;
                self.predicted(element)?;
            } else {
                has_error |= self.ignored(&mut ignored)?;
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        let is_failed = !has_prediction && has_error && ignored.len() == 1;
        if is_failed {
            element.form = Form::Failed;
        }
        (has_item_id && (has_prediction || is_failed)).then_some(())
    }

    /// Reads a field that is ignored. Returns whether it is an error: an object named `error`.
    fn ignored(&mut self, seen: &mut Vec<&'a str>) -> Option<bool> {
        let Cow::Borrowed(key) = self.string()? else {
            return None;
        };
        if matches!(key, "item_id" | "prediction") || seen.contains(&key) || seen.len() == 8 {
            return None;
        }
        seen.push(key);
        self.colon()?;
        let is_error = key == "error" && self.peek()? == b'{';
        self.value()?;
        Some(is_error)
    }

    /// Reads any value except arrays and objects within others.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'[' => self.list(b'[', b']', Self::scalar),
            b'{' => self.list(b'{', b'}', |scan| {
                scan.string()?;
                scan.colon()?;
                scan.scalar()
            }),
            _ => self.scalar(),
        }
    }

    /// Reads a string, a number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
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

    /// Reads a list in brackets: `next` reads one entry.
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

    /// Reads a string without NUL.
    #[inline]
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.byte(b'"')?;
        let bytes = self.text.as_bytes();
        let from = self.at;
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
        let bytes = self.text.as_bytes();
        let from = self.at;
        let digits = |at: usize| {
            at + bytes[at..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let start = from + usize::from(bytes.get(from) == Some(&b'-'));
        let mut end = digits(start);
        // `-`, `.5` and `01` are not numbers in JSON.
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
        // Most documents have no white space here, or one space.
        while let Some(byte) = self.text.as_bytes().get(self.at)
            && (matches!(byte, b' ' | b'\t' | b'\r') || (*byte == b'\n' && !self.in_lines))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_json_is_not_accepted() {
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
    fn numbers_equal_those_of_serde_json() {
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
    fn line_of_two_fields_is_read() {
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
