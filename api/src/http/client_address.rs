//! The address of a client, and the prefixes by which limits count it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;

/// Returns the counting address of the client: the peer's address or, behind trusted proxies, one
/// from `X-Forwarded-For`.
///
/// The header is read from the right, because proxies append to it.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Arc<str> {
    let forwarded = headers.get_all("x-forwarded-for").iter();
    let hops: Vec<&str> = forwarded
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut client = peer.to_canonical();
    for hop in hops.into_iter().rev() {
        // A hop that cannot be parsed ends the chain: anybody could have written the hops before
        // it.
        match forwarded_address(hop) {
            Some(hop) if is_within(trusted, client) => client = hop,
            _ => break,
        }
    }
    counting_address(client)
}

/// Returns `true` if one of the networks contains the address.
pub fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// Returns the address that limits count: an IPv4 address, or the first 64 bits of an IPv6 address.
pub fn counting_address(address: IpAddr) -> Arc<str> {
    match address.to_canonical() {
        IpAddr::V4(address) => Arc::from(address.to_string()),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Arc::from(format!("{a:x}:{b:x}:{c:x}:{d:x}::"))
        }
    }
}

/// Returns the prefixes that a counting address counts for, each with the multiple of the limit
/// that it has.
///
/// An IPv6 address also counts for its /56 and its /48, because one customer of a network may hold
/// a whole one.
pub fn counting_prefixes(address: &str) -> Vec<(String, u32)> {
    let mut prefixes = vec![(address.to_owned(), 1)];
    if let Ok(address) = address.parse::<Ipv6Addr>() {
        let [a, b, c, d, ..] = address.segments();
        prefixes.push((format!("{a:x}:{b:x}:{c:x}:{:x}::/56", d & 0xff00), 4));
        prefixes.push((format!("{a:x}:{b:x}:{c:x}::/48"), 16));
    }
    prefixes
}

/// Parses an address as proxies write it: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`,
/// `[2001:db8::1]:4711`.
fn forwarded_address(hop: &str) -> Option<IpAddr> {
    let hop = hop.trim();
    let bare = hop
        .strip_prefix('[')
        .and_then(|hop| hop.strip_suffix(']'))
        .unwrap_or(hop)
        .parse::<IpAddr>()
        .ok();
    bare.or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_counted_by_three_prefixes() {
        let counted = |address: &str| {
            counting_prefixes(&client(address.parse().unwrap(), &HeaderMap::new(), &[]))
        };
        assert_eq!(counted("192.0.2.1"), [("192.0.2.1".to_owned(), 1)]);
        let expected = [
            ("2001:db8:1:2345::", 1),
            ("2001:db8:1:2300::/56", 4),
            ("2001:db8:1::/48", 16),
        ];
        assert_eq!(
            counted("2001:db8:1:2345::7"),
            expected.map(|(prefix, times)| (prefix.to_owned(), times))
        );
    }

    #[test]
    fn forwarded_addresses_are_parsed() {
        for (hop, expected) in [
            (" 192.0.2.1 ", Some("192.0.2.1")),
            ("192.0.2.1:4711", Some("192.0.2.1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]:4711", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[[2001:db8::1]]", None),
            ("2001:db8::1]", None),
            ("192.0.2.1:471x", None),
            ("unknown", None),
        ] {
            assert_eq!(
                forwarded_address(hop),
                expected.map(|text| text.parse().unwrap()),
                "{hop}"
            );
        }
    }
}
