//! An installation's OpenID Connect providers, read from its settings.

use std::collections::BTreeSet;

use openidconnect::IssuerUrl;
use serde::Deserialize;
use url::{Host, Url};

/// A provider name's maximum length.
const NAME_MAX: usize = 32;

/// An OpenID Connect provider with which users can sign in.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// The name in URLs: lower-case letters, digits and hyphens.
    pub name: String,
    /// The name on the sign-in page. Empty for `name`.
    #[serde(default)]
    pub title: String,
    /// The provider's URL.
    pub issuer: IssuerUrl,
    /// This installation's id at the provider.
    pub client_id: String,
    /// This installation's secret at the provider.
    pub client_secret: String,
}

impl ProviderSettings {
    /// Reads the providers from JSON. An empty text stands for none.
    ///
    /// # Errors
    /// A message for the operator. It contains no value.
    pub fn read(json: &str) -> Result<Vec<Self>, String> {
        if json.is_empty() {
            return Ok(Vec::new());
        }
        let mut providers: Vec<Self> = serde_json::from_str(json).map_err(|error| {
            format!(
                "must be a JSON list of objects with name, issuer, client_id, client_secret and \
                 optionally title (the error is in line {}, column {})",
                error.line(),
                error.column()
            )
        })?;
        let mut names = BTreeSet::new();
        for (place, provider) in providers.iter_mut().enumerate() {
            provider
                .check()
                .map_err(|message| format!("[{place}].{message}"))?;
            if !names.insert(provider.name.clone()) {
                return Err(format!("[{place}].name is that of another provider"));
            }
            if provider.title.is_empty() {
                provider.title.clone_from(&provider.name);
            }
        }
        Ok(providers)
    }

    /// Returns `true` if the provider is reached by TLS. One on this machine need not be.
    pub fn has_tls(&self) -> bool {
        self.issuer.url().scheme() == "https"
    }

    fn check(&self) -> Result<(), &'static str> {
        let is_slug = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=NAME_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_slug) {
            return Err("name must have 1 to 32 characters of a-z, 0-9 and -");
        }
        if !is_confidential(self.issuer.url()) {
            return Err("issuer must begin with https://");
        }
        if self.client_id.is_empty() || self.client_secret.is_empty() {
            return Err("client_id and client_secret must not be empty");
        }
        Ok(())
    }
}

/// Returns `true` if nobody on the network can read what is sent to this URL: by TLS, or because it
/// is on this machine.
fn is_confidential(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_local)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider() -> serde_json::Value {
        json!({
            "name": "uni", "issuer": "https://login.example.edu", "client_id": "assay", "client_secret": "hidden"
        })
    }

    fn read(change: impl Fn(&mut serde_json::Value)) -> Result<Vec<ProviderSettings>, String> {
        let mut provider = provider();
        change(&mut provider);
        ProviderSettings::read(&json!([provider]).to_string())
    }

    #[test]
    fn providers_are_read() {
        assert!(ProviderSettings::read("").unwrap().is_empty());
        let [uni] = read(|_| ()).unwrap().try_into().ok().unwrap();
        assert_eq!([uni.name.as_str(), &uni.title], ["uni", "uni"]);
        assert_eq!(uni.issuer.as_str(), "https://login.example.edu");
        let [local] = read(|provider| {
            provider["issuer"] = json!("http://127.0.0.1:4000");
            provider["title"] = json!("University");
        })
        .unwrap()
        .try_into()
        .ok()
        .unwrap();
        assert_eq!(local.title, "University");
    }

    #[test]
    fn errors_name_the_field_and_no_value() {
        for (field, value, expected) in [
            ("name", "Uni", "[0].name must have"),
            ("name", "", "[0].name must have"),
            (
                "issuer",
                "http://login.example.edu",
                "[0].issuer must begin",
            ),
            ("issuer", "hidden", "must be a JSON list"),
            ("client_id", "", "[0].client_id and"),
            ("client_secret", "", "[0].client_id and"),
            ("other", "x", "must be a JSON list"),
        ] {
            let error = read(|provider| provider[field] = json!(value))
                .err()
                .unwrap();
            assert!(error.starts_with(expected), "{field}: {error}");
            assert!(!error.contains("hidden"), "{error}");
        }
        let twice = json!([provider(), provider()]).to_string();
        let error = ProviderSettings::read(&twice).err().unwrap();
        assert_eq!(error, "[1].name is that of another provider");
        assert!(
            ProviderSettings::read("hidden")
                .err()
                .unwrap()
                .contains("line 1")
        );
    }
}
