//! The addresses and the prefixes by which limits count clients.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

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

/// Returns the prefixes that a counting address counts for, each with the limit's multiple that it
/// has.
///
/// An IPv6 address also counts for its /56 and its /48, because one customer in a network may hold
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_counted_by_three_prefixes() {
        let counted =
            |address: &str| counting_prefixes(&counting_address(address.parse().unwrap()));
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
}
