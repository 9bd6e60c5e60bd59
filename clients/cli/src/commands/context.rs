//! A run's settings, which commands get.

use std::env;

use crate::arguments::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::messages::Messages;
use crate::output::Output;
use crate::profiles::{DEFAULT, Profile, Profiles};

/// A run's settings.
pub struct Context {
    /// All commands' arguments.
    pub global: Global,
    /// The output.
    pub output: Output,
    /// The messages.
    pub messages: Messages,
}

impl Context {
    /// Returns the name of the profile.
    pub fn profile_name(&self) -> &str {
        self.named_profile().unwrap_or(DEFAULT)
    }

    /// Returns the profile's name if the user has named one. An empty variable is not set.
    fn named_profile(&self) -> Option<&str> {
        let name = self.global.profile.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Returns the address if the user has given one. An empty variable is not set.
    fn given_base_url(&self) -> Option<&String> {
        let url = self.global.base_url.as_ref();
        url.filter(|url| !url.is_empty())
    }

    /// Returns the profile, which is empty if it does not exist and was not named.
    pub fn profile(&self) -> Result<Profile> {
        let profiles = Profiles::load()?;
        let name = self.profile_name();
        if let Some(profile) = profiles.get(name) {
            return Ok(profile);
        }
        if self.named_profile().is_none() {
            return Ok(Profile::default());
        }
        let file = profiles.path().display();
        let names = profiles.names().join(", ");
        Err(Failure::new(
            Exit::Usage,
            format!("there is no profile {name:?} in {file}; profiles: {names}"),
        )
        .with_advice(format!("Create it with: assay login --profile {name}")))
    }

    /// Returns a client with the user's credential.
    pub fn client(&self) -> Result<Client> {
        let given_key = env::var("ASSAY_API_KEY").ok();
        let given_key = given_key
            .map(|key| key.trim().to_owned())
            .filter(|key| !key.is_empty());
        // A profile is only read if it is named, or if a setting is missing.
        let is_complete = given_key.is_some() && self.given_base_url().is_some();
        let profile = if is_complete && self.named_profile().is_none() {
            Profile::default()
        } else {
            self.profile()?
        };
        let base_url = self.base_url(&profile)?;
        if let (None, Some(_), Some(of_profile)) = (&given_key, &profile.api_key, &profile.base_url)
            && origin(of_profile) != origin(&base_url)
        {
            let name = self.profile_name();
            return Err(Failure::new(
                Exit::Usage,
                format!("the key of the profile {name:?} is for {of_profile}, not for {base_url}"),
            )
            .with_advice("Set ASSAY_API_KEY, or select a profile with --profile."));
        }
        let Some(key) = given_key.or(profile.api_key) else {
            return Err(Failure::new(Exit::Credential, "the API key is not set").with_advice(
                "Sign in with assay login, set ASSAY_API_KEY, or select a profile with --profile.",
            ));
        };
        if sends_in_the_clear(&base_url) {
            self.messages.progress(&format!(
                "warning: {base_url} has no TLS, so the key can be read on the way; use https://"
            ));
        }
        self.client_with(base_url, Some(key))
    }

    /// Returns a client with this credential, or without one.
    pub fn client_with(&self, base_url: String, credential: Option<String>) -> Result<Client> {
        Client::new(base_url, credential, self.global.org.clone(), self.messages)
    }

    /// Returns the installation's address, without a slash at the end.
    pub fn base_url(&self, profile: &Profile) -> Result<String> {
        let url = self.given_base_url().or(profile.base_url.as_ref());
        let Some(url) = url else {
            return Err(
                Failure::new(Exit::Usage, "the address of the installation is not set")
                    .with_advice(
                        "Sign in with assay login --base-url URL, set ASSAY_BASE_URL, or select a profile with --profile.",
                    ),
            );
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::new(
                Exit::Usage,
                format!("the address must begin with https:// or http://, not {url:?}"),
            ));
        }
        Ok(url.trim_end_matches('/').to_owned())
    }
}

/// Returns the scheme, an address's host and port.
fn origin(url: &str) -> Option<url::Origin> {
    Some(url::Url::parse(url).ok()?.origin())
}

/// Returns `true` if a credential would leave this machine without TLS.
fn sends_in_the_clear(base_url: &str) -> bool {
    let Some(rest) = base_url.strip_prefix("http://") else {
        return false;
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name.parse::<std::net::IpAddr>().map_or(
        name == "localhost" || name.ends_with(".localhost"),
        |address| address.is_loopback(),
    );
    !is_loopback
}

#[cfg(test)]
mod tests {
    use super::sends_in_the_clear;

    #[test]
    fn only_this_machine_is_reached_without_tls() {
        for url in [
            "https://assay.example",
            "http://localhost:8080",
            "http://127.0.0.1",
            "http://[::1]:80/x",
        ] {
            assert!(!sends_in_the_clear(url), "{url}");
        }
        for url in [
            "http://assay.example",
            "http://10.0.0.1:8080",
            "http://localhost.example",
            "http://[2001:db8::1]",
        ] {
            assert!(sends_in_the_clear(url), "{url}");
        }
    }
}
