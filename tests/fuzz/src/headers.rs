//! Request headers. The input has one value per line.

use std::net::IpAddr;
use std::time::Duration;

use assay_api::parsers::{
    IdempotencyKey, RequestedOrg, TraceParent, bearer, client, client_request_id, grpc_timeout,
    is_json,
};
use assay_core::Code;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use super::assert_safe_message;

/// Each reader accepts exactly its valid values, never mistakes a value for another, and rejects
/// the rest without repeating it in the message.
pub fn headers(data: &[u8]) {
    let values: Vec<HeaderValue> = data
        .split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    // The header's first value, if it is a valid string.
    let first = values.first().and_then(|value| value.to_str().ok());
    let all = |name: &'static str| -> HeaderMap {
        values
            .iter()
            .map(|value| (HeaderName::from_static(name), value.clone()))
            .collect()
    };
    credentials(&all("authorization"), first);
    idempotency_keys(&all("idempotency-key"), &values);
    match RequestedOrg::of(&all("x-org-id")) {
        RequestedOrg::None => assert!(values.is_empty()),
        RequestedOrg::Org(id) => assert_eq!(Some(id.as_str()), first),
        RequestedOrg::Malformed => assert!(
            first
                .unwrap_or_default()
                .parse::<assay_core::OrgId>()
                .is_err()
        ),
    }
    traces(&all("traceparent"), first);
    clients(&all("x-forwarded-for"), &values);
    assert_eq!(grpc_timeout(&all("grpc-timeout")), first.and_then(timeout));
    let id = client_request_id(&all("x-request-id"));
    let plain = |text: &&str| {
        (1..=128).contains(&text.len())
            && !text.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c))
            // A secret must not become a request id.
            && !text.contains("svc_")
    };
    assert_eq!(id.as_deref(), first.filter(plain));
    content_types(&all("content-type"), first);
}

fn credentials(headers: &HeaderMap, first: Option<&str>) {
    match bearer(headers) {
        Ok(token) => {
            let (scheme, rest) = first.unwrap().trim().split_at(6);
            assert!(
                scheme.eq_ignore_ascii_case("bearer")
                    && rest.starts_with(' ')
                    && rest.trim() == token
            );
            let plain = HeaderMap::from_iter([(
                http::header::AUTHORIZATION,
                format!("Bearer {token}").parse().unwrap(),
            )]);
            assert_eq!(
                bearer(&plain).ok(),
                Some(token).filter(|token| !token.is_empty())
            );
        }
        Err(error) => {
            assert_eq!(
                error.code,
                if headers.is_empty() {
                    Code::Unauthenticated
                } else {
                    Code::InvalidToken
                }
            );
            assert_safe_message(&error.message);
            assert!(error.cause.is_none() && error.details.is_none());
        }
    }
}

fn idempotency_keys(headers: &HeaderMap, values: &[HeaderValue]) {
    match (IdempotencyKey::from_headers(headers), values) {
        (Ok(None), []) => {}
        (Ok(Some(IdempotencyKey(key))), [only]) => {
            assert_eq!(only.to_str().ok(), Some(key.as_str()));
        }
        (Err(error), [only]) => {
            assert!(error.code == Code::InvalidRequest && only.to_str().is_err());
        }
        (Err(error), [_, _, ..]) => assert_eq!(error.code, Code::ValidationFailed),
        (other, _) => panic!("{:?}", other.map(|key| key.map(|IdempotencyKey(key)| key))),
    }
}

fn traces(headers: &HeaderMap, first: Option<&str>) {
    let TraceParent {
        span_context,
        parent,
    } = TraceParent::of(headers);
    let trace_id = span_context.trace_id.to_string();
    let span_id = parent.map(|span| span.to_string());
    let is_id = |id: &str, length| {
        id.len() == length
            && id
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
            && id.bytes().any(|byte| byte != b'0')
    };
    assert!(
        is_id(&trace_id, 32)
            && is_id(&span_context.span_id.to_string(), 16)
            && Some(span_context.span_id) != parent
    );
    assert!(span_id.as_ref().is_none_or(|span_id| is_id(span_id, 16)));
    // By position: `00-<32>-<16>-01`; later versions may append more after another dash.
    let expected = first.filter(|text| {
        let bytes = text.as_bytes();
        let hex = |range: std::ops::Range<usize>| {
            bytes[range]
                .iter()
                .all(|byte| b"0123456789abcdef".contains(byte))
        };
        bytes.len() >= 55
            && [2, 35, 52].iter().all(|dash| bytes[*dash] == b'-')
            && [0..2, 3..35, 36..52, 53..55].into_iter().all(hex)
            && is_id(&text[3..35], 32)
            && is_id(&text[36..52], 16)
            && &text[..2] != "ff"
            && (bytes.len() == 55 || (&text[..2] != "00" && bytes[55] == b'-'))
    });
    assert_eq!(span_id.as_deref(), expected.map(|text| &text[36..52]));
    if let Some(text) = expected {
        assert_eq!(trace_id, text[3..35]);
    }
}

/// Without a trusted proxy the header is ignored; behind one, entries that the caller prepends are
/// ignored.
fn clients(headers: &HeaderMap, values: &[HeaderValue]) {
    let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"]
        .map(|network| network.parse().unwrap())
        .into();
    let (proxy, stranger): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [203, 0, 113, 9].into());
    assert_eq!(&*client(proxy, headers, &[]), "10.0.0.1");
    assert_eq!(&*client(stranger, headers, &trusted), "203.0.113.9");
    let client_address = client(proxy, headers, &trusted);
    let is_trusted = client_address
        .parse::<IpAddr>()
        .is_ok_and(|client_address| {
            trusted
                .iter()
                .any(|network| network.contains(&client_address))
        });
    let is_address = client_address.parse::<IpAddr>().is_ok();
    assert!(is_address, "{client_address}");
    // The address is in the header, or is the proxy's own.
    let written = |value: &HeaderValue| {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        text.split(',')
            .filter_map(plain_address)
            .any(|address| key(address) == *client_address)
    };
    assert!(
        *client_address == *"10.0.0.1" || values.iter().any(written),
        "{client_address}"
    );
    if !is_trusted {
        let forged = [HeaderValue::from_static("198.51.100.7")]
            .into_iter()
            .chain(values.iter().cloned());
        let forged: HeaderMap = forged
            .map(|value| (HeaderName::from_static("x-forwarded-for"), value))
            .collect();
        assert_eq!(client(proxy, &forged, &trusted), client_address);
    }
}

/// Parses an address with or without port and brackets.
fn plain_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim_matches(|c: char| c == ' ' || c == '\t');
    let (bare, port) = match hop.strip_prefix('[') {
        Some(inner) => inner
            .split_once(']')
            .map(|(bare, port)| (bare, port.strip_prefix(':')))?,
        None if hop.matches(':').count() == 1 => {
            hop.split_once(':').map(|(bare, port)| (bare, Some(port)))?
        }
        None => (hop, None),
    };
    let port_is_fine = port.is_none_or(|port| port.parse::<u16>().is_ok());
    // An IPv6 address may have a zone id.
    let bare = bare.split_once('%').map_or(bare, |(bare, _)| bare);
    bare.parse::<IpAddr>()
        .ok()
        .filter(|_| port_is_fine)
        .map(|address| address.to_canonical())
}

/// Returns the failure counters' key: the address, for IPv6 its first 64 bits.
fn key(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::")
        }
    }
}

fn timeout(text: &str) -> Option<Duration> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    let unit = *text.as_bytes().last()?;
    let well_formed =
        (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let nanos: u128 = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    well_formed.then(|| Duration::from_nanos_u128(digits.parse::<u128>().unwrap() * nanos))
}

fn content_types(headers: &HeaderMap, first: Option<&str>) {
    if is_json(headers) {
        let text = first.unwrap().to_ascii_lowercase();
        assert!(text.trim_start().starts_with("application/json"), "{text}");
        assert!(
            !text.contains("charset") || text.contains("utf-8"),
            "{text}"
        );
    }
}
