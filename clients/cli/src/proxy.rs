//! The environment's proxy: which one is used for an address, and which addresses use none.

use std::net::IpAddr;

use ipnet::IpNet;
use ureq::Proxy;
use url::{Host, Url};

use crate::failure::{Exit, Failure, Result};

/// Returns the environment's proxy for an address; `None` for a direct connection.
///
/// # Errors
/// If the variable names a proxy that this program cannot use: no request leaves this machine by
/// another way than its user wants. No message has a proxy's password.
pub fn proxy_for(address: &Url, read: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>> {
    let read = |name: &str| {
        let names = [name.to_owned(), name.to_ascii_uppercase()];
        let mut set = names
            .into_iter()
            .filter_map(|name| Some((read(&name)?.trim().to_owned(), name)));
        set.find(|(text, _)| !text.is_empty())
    };
    let Some((text, variable)) =
        read(&format!("{}_proxy", address.scheme())).or_else(|| read("all_proxy"))
    else {
        return Ok(None);
    };
    if read("no_proxy").is_some_and(|(entries, _)| excludes(&entries, address)) {
        return Ok(None);
    }
    let text = if text.contains("://") {
        text
    } else {
        format!("http://{text}")
    };
    let refused = |problem: String| {
        Failure::new(Exit::Usage, format!("{variable} {problem}")).with_advice(
            "Use a proxy with http:// or https://, or exclude the address with NO_PROXY.",
        )
    };
    let invalid = || refused("is no valid address of a proxy".into());
    let url = Url::parse(&text).map_err(|_| invalid())?;
    if !["http", "https"].contains(&url.scheme()) {
        let scheme = url.scheme();
        return Err(refused(format!(
            "names a proxy with {scheme}://, which this program does not support"
        )));
    }
    Proxy::new(&text).map(Some).map_err(|_| invalid())
}

/// Returns whether `NO_PROXY` excludes an address: by name, domain, address or network.
fn excludes(entries: &str, address: &Url) -> bool {
    entries
        .split([',', ' ', '\t'])
        .any(|entry| !entry.is_empty() && matches(entry, address))
}

fn matches(entry: &str, address: &Url) -> bool {
    if entry == "*" {
        return true;
    }
    // Without a port, an IPv6 address has no brackets.
    if let Some(network) = network(entry) {
        return is_in(network, address);
    }
    let in_brackets = entry
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let (name, port) = match (in_brackets, entry.rsplit_once(':')) {
        (Some((name, rest)), _) => (name, rest.strip_prefix(':')),
        (None, Some((name, port))) => (name, Some(port)),
        (None, None) => (entry, None),
    };
    if port.is_some_and(|port| port.parse().ok() != address.port_or_known_default()) {
        return false;
    }
    if let Some(network) = network(name) {
        return is_in(network, address);
    }
    let domain = name.trim_start_matches('*').trim_matches('.');
    let Some(Host::Domain(host)) = address.host() else {
        return false;
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let parent = host.strip_suffix(&domain.to_ascii_lowercase());
    !domain.is_empty() && parent.is_some_and(|parent| parent.is_empty() || parent.ends_with('.'))
}

/// Returns the network that a text names, which can be one address.
fn network(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

fn is_in(network: IpNet, address: &Url) -> bool {
    match address.host() {
        Some(Host::Ipv4(ip)) => network.contains(&IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => network.contains(&IpAddr::V6(ip)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "https://assay.example:8443";

    #[test]
    fn no_proxy_excludes_hosts() {
        for (entries, host, expected) in [
            ("*", "assay.example", true),
            ("other, *", "assay.example", true),
            ("assay.example", "assay.example", true),
            ("assay.example", "eu.assay.example", true),
            ("assay.example", "notassay.example", false),
            (".assay.example", "eu.assay.example", true),
            (".assay.example", "assay.example", true),
            ("*.assay.example", "eu.assay.example", true),
            ("Assay.EXAMPLE", "assay.example", true),
            ("assay.example.", "assay.example", true),
            ("other.example assay.example", "assay.example", true),
            ("assay.example:8443", "assay.example", true),
            ("assay.example:443", "assay.example", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.1.2.0/23", "10.1.3.255", true),
            ("10.0.0.0/8", "10.example", false),
            ("10.1.2.3", "10.1.2.30", false),
            ("10.1.2.3:8443", "10.1.2.3", true),
            ("10.1.2.3:1", "10.1.2.3", false),
            ("::1", "[::1]", true),
            ("[::1]", "[::1]", true),
            ("[::1]:8443", "[::1]", true),
            ("[::1]:1", "[::1]", false),
            ("fd00::/8", "[fd12::1]", true),
            ("fd00::/8", "[fe80::1]", false),
            ("fd00::/8", "10.1.2.3", false),
            ("localhost", "127.0.0.1", false),
            (", ,", "assay.example", false),
            ("10.0.0.0/99,[::1,:80,/,.", "assay.example", false),
        ] {
            let address = Url::parse(&format!("https://{host}:8443")).unwrap();
            assert_eq!(excludes(entries, &address), expected, "{entries} {host}");
        }
    }

    #[test]
    fn variables_name_the_proxy_or_an_error() {
        let found = |address: &str, variables: &[(&str, &str)]| {
            let read = |name: &str| {
                let mut set = variables.iter().filter(|(variable, _)| *variable == name);
                set.next().map(|(_, value)| (*value).to_owned())
            };
            let proxy = proxy_for(&Url::parse(address).unwrap(), read);
            proxy
                .map(|proxy| proxy.map(|proxy| proxy.uri().to_string()))
                .map_err(|failure| failure.to_string())
        };
        for (variables, expected) in [
            (
                &[("HTTPS_PROXY", "http://p:3128")][..],
                Some("http://p:3128/"),
            ),
            (&[("https_proxy", "p:3128")], Some("http://p:3128/")),
            (&[("ALL_PROXY", "https://p")], Some("https://p/")),
            (
                &[("https_proxy", ""), ("HTTPS_PROXY", "http://p")],
                Some("http://p/"),
            ),
            (
                &[("HTTPS_PROXY", "http://p"), ("ALL_PROXY", "socks5://q")],
                Some("http://p/"),
            ),
            (&[("HTTP_PROXY", "http://p")], None),
            (
                &[("HTTPS_PROXY", "http://p"), ("NO_PROXY", "assay.example")],
                None,
            ),
            (&[("ALL_PROXY", "socks5://p"), ("no_proxy", "*")], None),
            (&[], None),
        ] {
            assert_eq!(
                found(ADDRESS, variables),
                Ok(expected.map(str::to_owned)),
                "{variables:?}"
            );
        }
        let plain = &[("HTTP_PROXY", "http://p"), ("HTTPS_PROXY", "http://q")];
        assert_eq!(
            found("http://assay.example", plain),
            Ok(Some("http://p/".into()))
        );
        for proxy in [
            "socks5://me:s3cret@p",
            "socks4://p",
            "ftp://p",
            "http://me:s3cret@",
            "p:x",
        ] {
            let message = found(ADDRESS, &[("ALL_PROXY", proxy)]).unwrap_err();
            assert!(message.contains("ALL_PROXY "), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}
