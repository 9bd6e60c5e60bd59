//! A download's `Range` header (RFC 9110, section 14).

use std::ops::Range;

use http::HeaderMap;
use http::header::{IF_RANGE, RANGE};

/// A content's part that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedRange {
    /// All of it.
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// Bytes that the content does not have.
    Unsatisfiable,
}

impl RequestedRange {
    /// Returns the range that the headers ask for, in a content with `bytes` bytes and this entity
    /// tag. A header with several ranges, in another unit or with another syntax is ignored, as the
    /// RFC allows; so is any with an `If-Range` for other content.
    pub fn read(headers: &HeaderMap, bytes: u64, etag: &str) -> Self {
        let text = |name| headers.get(name)?.to_str().ok();
        let is_for_other_content = headers.contains_key(IF_RANGE) && text(IF_RANGE) != Some(etag);
        match text(RANGE) {
            Some(range) if !is_for_other_content => {
                Self::parse(range, bytes).unwrap_or(Self::Whole)
            }
            _ => Self::Whole,
        }
    }

    fn parse(text: &str, bytes: u64) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            // A number that is too large is beyond every content.
            is_number.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        let range = match (first, last) {
            ("", last) => bytes.saturating_sub(number(last)?)..bytes,
            (first, "") => number(first)?..bytes,
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                first..bytes.min(last.saturating_add(1))
            }
        };
        Some(match range.is_empty() {
            false => Self::Part(range),
            true => Self::Unsatisfiable,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn read(headers: &[(HeaderName, &str)]) -> RequestedRange {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        RequestedRange::read(&HeaderMap::from_iter(headers), 10, "\"a\"")
    }

    #[test]
    fn single_range_is_read() {
        use RequestedRange::{Part, Unsatisfiable, Whole};
        for (range, expected) in [
            ("bytes=0-0", Part(0..1)),
            ("bytes=2-5", Part(2..6)),
            ("Bytes= 2-", Part(2..10)),
            ("bytes=2-99999999999999999999999", Part(2..10)),
            ("bytes=-3", Part(7..10)),
            ("bytes=-99", Part(0..10)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=5-2", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=-", Whole),
            ("bytes=+1-2", Whole),
            ("lines=0-1", Whole),
            ("0-1", Whole),
        ] {
            assert_eq!(read(&[(RANGE, range)]), expected, "{range}");
        }
        assert_eq!(read(&[]), Whole);
    }

    #[test]
    fn other_content_is_returned_whole() {
        let range = (RANGE, "bytes=2-5");
        let part = RequestedRange::Part(2..6);
        assert_eq!(read(&[range.clone(), (IF_RANGE, "\"a\"")]), part);
        assert_eq!(read(&[range, (IF_RANGE, "\"b\"")]), RequestedRange::Whole);
    }
}
