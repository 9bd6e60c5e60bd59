//! A client's address, also behind proxies.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;

use crate::limits::address::counting_address;

/// Returns the client's counting address: the peer's address or, behind trusted proxies, one
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

/// Returns `true` if a network contains the address.
pub fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
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
