//! Limits on JSON documents beyond the grammar, and skips values without parsing them.

/// The deepest array and object nesting that a request body may have.
pub const DEPTH_MAX: usize = 127;

/// Returns the nesting depth for arrays and objects in well-formed JSON. The parser does not count
/// the depth in values that it skips, so it is counted here.
pub fn depth(json: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// A value's place in a JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The first byte's place after the value.
    pub end: usize,
    /// The nesting depth for arrays and objects in the value.
    pub depth: usize,
}

/// Finds the value's end that starts at `at`. `None` if the value does not end.
///
/// Only brackets are counted and strings skipped: the result is right if the value is well-formed,
/// which the caller must check.
pub fn skip_value(text: &str, mut at: usize) -> Option<Skipped> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut deepest = 0;
    loop {
        match bytes.get(at)? {
            b'"' => at = skip_string(bytes, at)?,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => at += 1,
            _ => {
                let is_end =
                    |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
                let length = bytes[at..].iter().position(is_end);
                at += length.unwrap_or(bytes.len() - at);
            }
        }
        if depth == 0 {
            return Some(Skipped {
                end: at,
                depth: deepest,
            });
        }
    }
}

/// Returns the first byte's place after the string that starts at `at`.
pub fn skip_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = plain_end(bytes, at + 1)?;
    while bytes[end] == b'\\' {
        end = plain_end(bytes, end + 2)?;
    }
    (bytes[end] == b'"').then_some(end + 1)
}

/// Each byte's lowest bit.
const LOW: u64 = 0x0101_0101_0101_0101;
/// Each byte's highest bit.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Returns the first byte's place, from `at` on, that does not stand for itself in a string: a
/// quote, a backslash or a control character.
#[inline]
pub(crate) fn plain_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        // A byte's highest bit is set if the byte matches. A borrow may set bits above the
        // first match, so only the first one counts.
        let zero = |word: u64| word.wrapping_sub(LOW) & !word;
        let below_space = word.wrapping_sub(LOW * 0x20) & !word;
        let found = (zero(word ^ (LOW * 0x22)) | zero(word ^ (LOW * 0x5c)) | below_space) & HIGH;
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
    fn brackets_in_strings_are_not_counted() {
        assert_eq!(depth(br#"{"a\\\"[[": [{}, []]}"#), 3);
    }

    #[test]
    fn skipped_value_ends_where_serde_json_ends_it() {
        for value in [
            "1",
            "-1.5e3",
            "null",
            "\"\"",
            "\"a\\\"]\"",
            "\"\\\\\"",
            "[]",
            "{}",
            "[[1, 2], {\"a\": \"}]\"}]",
            "{\"ä\": [[[]]]}",
        ] {
            let expected = Skipped {
                end: value.len(),
                depth: depth(value.as_bytes()),
            };
            for rest in ["", ",", "}", "]", " ", "\n", ", 1", "} }"] {
                let text = format!("{value}{rest}");
                assert_eq!(skip_value(&text, 0), Some(expected), "{text}");
            }
        }
        for open in [
            "",
            "\"",
            "\"a\n\"",
            "\"\\\"",
            "[",
            "[\"]",
            "{\"a\": [}",
            "]",
        ] {
            assert_eq!(skip_value(open, 0), None, "{open}");
        }
    }

    #[test]
    fn string_end_is_found_at_any_length() {
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
}
