//! The address of a client, and the networks around it that limits count.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;

/// The client's address: that of the peer, or what trusted proxies say, read from the right, where they append.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Arc<str> {
    let forwarded = headers.get_all("x-forwarded-for").iter();
    let hops: Vec<&str> = forwarded
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let mut client = peer.to_canonical();
    for hop in hops.into_iter().rev() {
        // What cannot be read ends the chain: what stands before it could be anybody's invention.
        match forwarded_address(hop) {
            Some(hop) if is_within(trusted, client) => client = hop,
            _ => break,
        }
    }
    counting_address(client)
}

/// Whether one of these networks contains the address.
pub fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// The address that limits count: of IPv6 the first 64 bits.
pub fn counting_address(address: IpAddr) -> Arc<str> {
    match address.to_canonical() {
        IpAddr::V4(address) => Arc::from(address.to_string()),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Arc::from(format!("{a:x}:{b:x}:{c:x}:{d:x}::"))
        }
    }
}

/// The prefixes that failures of a counting address are counted for, each with how many times its limit it has: of IPv6
/// also the /56 and the /48, of which one customer of a network may hold all.
pub fn counting_prefixes(address: &str) -> Vec<(String, u32)> {
    let mut prefixes = vec![(address.to_owned(), 1)];
    if let Ok(address) = address.parse::<Ipv6Addr>() {
        let [a, b, c, d, ..] = address.segments();
        prefixes.push((format!("{a:x}:{b:x}:{c:x}:{:x}::/56", d & 0xff00), 4));
        prefixes.push((format!("{a:x}:{b:x}:{c:x}::/48"), 16));
    }
    prefixes
}

/// An address as proxies write it: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`.
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
    fn proxies_write_addresses_in_several_ways() {
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
