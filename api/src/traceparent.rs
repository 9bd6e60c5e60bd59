//! The trace that a request belongs to (W3C Trace Context, header `traceparent`).

use assay_core::Result;
use http::HeaderMap;
use rand::TryRng as _;

/// A trace, and the client's span in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits; none when the trace begins here.
    pub span_id: Option<String>,
}

impl TraceParent {
    /// The client's trace, if it sent a well-formed one; otherwise a new one.
    pub fn of(headers: &HeaderMap) -> Result<Self> {
        let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(Self::read);
        given.map_or_else(Self::random, Ok)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id, span_id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        // All zeros is no id; version ff is forbidden, and 00 has no further parts.
        let some = |text: &str| text.bytes().any(|byte| byte != b'0');
        let well_formed =
            hex(version, 2) && version != "ff" && hex(trace_id, 32) && some(trace_id) && hex(span_id, 16) && some(span_id) && hex(flags, 2);
        (well_formed && (version != "00" || parts.next().is_none()))
            .then(|| Self { trace_id: trace_id.into(), span_id: Some(span_id.into()) })
    }

    fn random() -> Result<Self> {
        let mut bytes = [0_u8; 16];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes).map_err(assay_core::Error::internal)?;
        Ok(Self { trace_id: format!("{:032x}", u128::from_be_bytes(bytes).max(1)), span_id: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_header_is_taken() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::read(good).unwrap().trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace("00f067aa0ba902b7", "0000000000000000"),
            &format!("{good}-x"),
            &good.replacen("00", "ff", 1),
        ] {
            assert_eq!(TraceParent::read(bad), None, "{bad}");
        }
    }
}
