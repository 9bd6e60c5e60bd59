//! Query strings. The input is the part after the question mark.

use assay_api::parsers::Query;
use assay_core::{Code, Details};
use http::Uri;

use super::assert_safe_message;

const KNOWN: [&str; 3] = ["limit", "wait", "before"];

/// A parameter's first occurrence counts; repeated and unknown parameters, and those that are not
/// UTF-8, are rejected by name.
pub fn queries(data: &[u8]) {
    let Ok(uri) = Uri::try_from([b"/v1/jobs?", data].concat()) else {
        return;
    };
    let given = plain(uri.query().unwrap());
    let mut query = Query::read(&uri);
    let first = |name: &str| {
        given
            .iter()
            .take(32)
            .find(|(parameter, _, _)| parameter == name)
            .map(|(_, value, _)| value.clone())
    };
    assert_eq!(query.string("before"), first("before"));
    assert_eq!(query.string("before"), None);
    let mut errors = 0;
    for name in ["limit", "wait"] {
        let expected = first(name).map(|text| whole(&text));
        assert_eq!(query.integer(name), expected.flatten());
        errors += usize::from(expected == Some(None));
    }
    let known = |name: &str| KNOWN.contains(&name);
    let mut seen = Vec::new();
    for (name, _, is_utf8) in given.iter().take(32) {
        let is_first = !seen.contains(&name);
        errors += usize::from(!known(name) || !is_first) + usize::from(is_first && !is_utf8);
        seen.push(name);
    }
    match query.finish() {
        Ok(()) => assert!(errors == 0 && given.len() <= KNOWN.len()),
        Err(error) => {
            let Some(Details::Fields { fields }) = error.details else {
                panic!("{:?}", error.message)
            };
            assert_eq!((error.code, fields.len()), (Code::ValidationFailed, errors));
            fields
                .iter()
                .for_each(|error| assert_safe_message(&error.message));
        }
    }
}

/// Decodes the parameters independently of the API's parser, and says whether each is UTF-8.
fn plain(query: &str) -> Vec<(String, String, bool)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            let hex = behind
                .get(..2)
                .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
            match (first, hex) {
                (b'+', _) => bytes.push(b' '),
                (b'%', Some(hex)) => {
                    bytes.push(u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap());
                    rest = &behind[2..];
                }
                _ => bytes.push(*first),
            }
        }
        bytes
    };
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .map(|(name, value)| {
            let is_utf8 = [&name, &value].map(|bytes| std::str::from_utf8(bytes).is_ok());
            (lossy(&name), lossy(&value), is_utf8 == [true; 2])
        })
        .collect()
}

/// Parses `-?[0-9]+` within 64 bits.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut value = 0_i128;
    let negative = text.starts_with('-');
    for digit in digits.bytes() {
        value = (value * 10 + i128::from(digit - b'0')).min(1 << 100);
    }
    i64::try_from(if negative { -value } else { value }).ok()
}
