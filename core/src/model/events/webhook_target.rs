//! The addresses to which webhooks may be delivered.
//!
//! Organizations choose the URLs, and a process inside the installation's network connects to
//! them. So only public internet addresses are allowed, and each connection goes to the
//! address that was checked.

use std::net::{IpAddr, Ipv6Addr};

use assay_eval::FieldError;
use ipnet::IpNet;
use url::{Host, Url};

/// Maximum length of a URL, in bytes.
pub const URL_MAX: usize = 2_000;

/// The IPv4 networks that are not on the public internet, and 6to4 relays, from IANA's registries for
/// special-purpose addresses (RFC 6890) and multicast addresses (RFC 5771).
const REFUSED_V4: [&str; 17] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // A public address by the registry, but a virtual machine's metadata server on Azure.
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
];

/// The only IPv6 network with public addresses (RFC 4291). The addresses that contain an IPv4
/// address (mapped, compatible and NAT64) are outside it.
const PUBLIC_V6: &str = "2000::/3";

/// The networks in [`PUBLIC_V6`] that are not on the public internet, or lead to an IPv4 address
/// (Teredo and 6to4), from IANA's registry for special-purpose addresses.
const REFUSED_V6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

/// The rules for webhook targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetRules {
    /// `true` if URLs may have the scheme `http`.
    pub allows_http: bool,
    /// Networks that are allowed although they are not on the public internet.
    pub networks: Vec<IpNet>,
}

impl TargetRules {
    /// Returns `true` if webhooks may be delivered to this address.
    pub fn allow(&self, address: IpAddr) -> bool {
        is_public(address)
            || self
                .networks
                .iter()
                .any(|network| network.contains(&address))
    }

    /// Validates a webhook's URL, and returns it as it is stored. A host name is resolved and
    /// checked at each attempt.
    ///
    /// # Errors
    /// The error for the field `url`.
    pub fn check_url(&self, text: &str) -> Result<String, FieldError> {
        let format = |message: &str| FieldError::new("url", "format", message);
        if text.is_empty() {
            return Err(FieldError::required("url"));
        }
        if text.len() > URL_MAX {
            let message = format!("at most {URL_MAX} bytes");
            return Err(FieldError::new("url", "range", message));
        }
        let example = "must be a URL such as https://example.org/webhooks";
        let url = Url::parse(text).map_err(|_| format(example))?;
        match url.scheme() {
            "https" => {}
            "http" if self.allows_http => {}
            _ => return Err(format("must begin with https://")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message = "must not contain a user name or password: check the signature instead";
            return Err(format(message));
        }
        if url.fragment().is_some() {
            return Err(format("must not contain a fragment, #…"));
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            Some(Host::Domain(_)) => None,
            None => return Err(format(example)),
        };
        if address.is_some_and(|address| !self.allow(address)) {
            return Err(format("must have an address on the public internet"));
        }
        // As the parser writes it, which may be longer than the text.
        let url = String::from(url);
        if url.len() > 3 * URL_MAX {
            return Err(format(example));
        }
        Ok(url)
    }
}

/// Returns `true` if an address is on the public internet.
fn is_public(address: IpAddr) -> bool {
    let is_in = |network: &str| {
        network
            .parse::<IpNet>()
            .is_ok_and(|network| network.contains(&address))
    };
    match address {
        IpAddr::V4(_) => !REFUSED_V4.iter().any(|network| is_in(network)),
        IpAddr::V6(v6) => {
            // Otherwise the network parser could be the reason for a permission.
            v6 != Ipv6Addr::UNSPECIFIED
                && is_in(PUBLIC_V6)
                && !REFUSED_V6.iter().any(|network| is_in(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(address: &str) -> bool {
        TargetRules::default().allow(address.parse().unwrap())
    }

    #[test]
    fn networks_parse() {
        for network in REFUSED_V4.iter().chain(&REFUSED_V6).chain([&PUBLIC_V6]) {
            network.parse::<IpNet>().unwrap();
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
        ] {
            assert!(allows(address), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:1.1.1.1",
            "::1.1.1.1",
            "64:ff9b::1.1.1.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:101:101::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!allows(address), "{address}");
        }
    }

    #[test]
    fn networks_of_the_installation_are_allowed() {
        let rules = TargetRules {
            allows_http: true,
            networks: ["10.1.0.0/16", "::1/128"]
                .map(|network| network.parse().unwrap())
                .into(),
        };
        assert!(rules.allow("10.1.2.3".parse().unwrap()));
        assert!(!rules.allow("10.2.0.1".parse().unwrap()));
        assert!(rules.check_url("http://10.1.2.3:8080/x").is_ok());
        assert!(rules.check_url("http://10.2.2.3:8080/x").is_err());
        assert!(rules.check_url("http://[::1]:8080/x").is_ok());
    }

    #[test]
    fn urls_are_checked_and_normalized() {
        let rules = TargetRules::default();
        for (given, stored) in [
            ("https://example.org", "https://example.org/"),
            ("HTTPS://Example.ORG:443/A?b=c", "https://example.org/A?b=c"),
            (
                "https://müller.example/x",
                "https://xn--mller-kva.example/x",
            ),
            ("https://1.1.1.1/x", "https://1.1.1.1/x"),
        ] {
            assert_eq!(rules.check_url(given).unwrap(), stored);
        }
        for bad in [
            "",
            "example.org",
            "http://example.org/",
            "ftp://example.org/",
            "https://user@example.org/",
            "https://user:secret@example.org/",
            "https://example.org/#x",
            "https://",
            "https://2130706433/",
            "https://0177.0.0.1/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::1]/",
        ] {
            assert!(rules.check_url(bad).is_err(), "{bad}");
        }
        let long = format!("https://example.org/{}", "a".repeat(URL_MAX));
        assert!(rules.check_url(&long).is_err());
    }
}
