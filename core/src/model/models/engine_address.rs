//! The engine addresses, from `ASSAY_ENGINES`.

use std::collections::BTreeSet;
use std::str::FromStr;

use http::Uri;

/// Maximum engine count. Each has its own Prometheus metric series.
pub const ENGINES_MAX: usize = 16;

/// An engine name's maximum length, in bytes.
const NAME_MAX: usize = 32;

/// An engine's name and address: `default=http://127.0.0.1:9500`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineAddress {
    /// The name, which packages refer to.
    pub name: String,
    /// The host: a DNS name, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `true` for `https`.
    pub is_tls: bool,
}

impl FromStr for EngineAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, url) = text
            .split_once('=')
            .ok_or("must be a name and an address, such as default=http://127.0.0.1:9500")?;
        let (name, url) = (name.trim(), url.trim());
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=NAME_MAX).contains(&name.len()) || !name.bytes().all(is_allowed) {
            return Err("the name must be 1 to 32 lower-case letters, digits or '-'");
        }
        let uri: Uri = url
            .parse()
            .map_err(|_| "the address must be a URL such as http://127.0.0.1:9500")?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the address must start with http:// or https://"),
        };
        let authority = uri
            .authority()
            .ok_or("the address must name a host, such as http://127.0.0.1:9500")?;
        if authority.as_str().contains('@') {
            return Err("the address must not contain a user or a password");
        }
        if !["", "/"].contains(&uri.path()) || uri.query().is_some() {
            return Err("the address must not have a path, only a host and a port");
        }
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err("the address must name a host, such as http://127.0.0.1:9500");
        }
        let port = authority.port_u16();
        if port == Some(0) || (port.is_none() && authority.as_str() != authority.host()) {
            return Err("the port must be a number from 1 to 65535");
        }
        Ok(Self {
            name: name.to_owned(),
            host: host.to_owned(),
            port: port.unwrap_or(if is_tls { 443 } else { 80 }),
            is_tls,
        })
    }
}

/// Returns what is wrong with an engine list, if anything.
pub fn list_error(addresses: &[EngineAddress]) -> Option<String> {
    if addresses.len() > ENGINES_MAX {
        return Some(format!("at most {ENGINES_MAX} engines are possible"));
    }
    let mut names = BTreeSet::new();
    let repeated = addresses
        .iter()
        .find(|address| !names.insert(address.name.as_str()))?;
    Some(format!("{:?} is named twice", repeated.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_name_host_and_port() {
        for (text, host, port, is_tls) in [
            ("default=http://127.0.0.1:9500", "127.0.0.1", 9500, false),
            ("default = http://engine/", "engine", 80, false),
            (
                "default=https://triton.example",
                "triton.example",
                443,
                true,
            ),
            ("default=http://[::1]:8001", "::1", 8001, false),
        ] {
            let address: EngineAddress = text.parse().unwrap();
            assert_eq!(address.name, "default", "{text}");
            assert_eq!(
                (address.host.as_str(), address.port, address.is_tls),
                (host, port, is_tls),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_address_names_the_mistake() {
        for (text, message) in [
            ("http://127.0.0.1:9500", "a name and an address"),
            ("=http://h", "the name must be"),
            ("Default=http://h", "the name must be"),
            ("a=127.0.0.1:9500", "must start with http://"),
            ("a=ftp://h", "must start with http://"),
            ("a=http://", "must"),
            ("a=http://u:p@h", "user or a password"),
            ("a=http://h/v2", "must not have a path"),
            ("a=http://h?x", "must not have a path"),
            ("a=http://h:99999", "must be"),
            ("a=http://h:0", "the port must be"),
        ] {
            let error = text.parse::<EngineAddress>().unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn repeated_name_is_an_error() {
        let address: EngineAddress = "a=http://h".parse().unwrap();
        assert_eq!(list_error(std::slice::from_ref(&address)), None);
        let error = list_error(&[address.clone(), address.clone()]).unwrap();
        assert_eq!(error, "\"a\" is named twice");
        assert!(
            list_error(&vec![address; ENGINES_MAX + 1])
                .unwrap()
                .contains("16")
        );
    }
}
