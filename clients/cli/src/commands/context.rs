//! The settings of a run, which commands get.

use std::env;

use crate::arguments::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::messages::Messages;
use crate::output::Output;
use crate::profiles::{DEFAULT, Profile, Profiles};

/// The settings of a run.
pub struct Context {
    /// The arguments of all commands.
    pub global: Global,
    /// The output.
    pub output: Output,
    /// The messages.
    pub messages: Messages,
}

impl Context {
    /// Returns the name of the profile.
    pub fn profile_name(&self) -> &str {
        self.global.profile.as_deref().unwrap_or(DEFAULT)
    }

    /// Returns the profile, which is empty if it does not exist and was not named.
    pub fn profile(&self) -> Result<Profile> {
        let profiles = Profiles::load()?;
        let name = self.profile_name();
        if let Some(profile) = profiles.get(name) {
            return Ok(profile);
        }
        if self.global.profile.is_none() {
            return Ok(Profile {
                base_url: None,
                api_key: None,
            });
        }
        let file = profiles.path().display();
        let names = profiles.names().join(", ");
        Err(Failure::new(
            Exit::Usage,
            format!("there is no profile {name:?} in {file}; profiles: {names}"),
        )
        .with_advice(format!("Create it with: assay login --profile {name}")))
    }

    /// Returns a client with the credential of the user.
    pub fn client(&self) -> Result<Client> {
        let profile = self.profile()?;
        let base_url = self.base_url(&profile)?;
        let key = env::var("ASSAY_API_KEY").ok().filter(|key| !key.is_empty());
        let Some(key) = key.or(profile.api_key) else {
            return Err(Failure::new(Exit::Credential, "the API key is not set").with_advice(
                "Sign in with assay login, set ASSAY_API_KEY, or select a profile with --profile.",
            ));
        };
        Ok(self.client_with(base_url, Some(key)))
    }

    /// Returns a client with this credential, or without one.
    pub fn client_with(&self, base_url: String, credential: Option<String>) -> Client {
        Client::new(base_url, credential, self.global.org.clone(), self.messages)
    }

    /// Returns the address of the installation, without a slash at the end.
    pub fn base_url(&self, profile: &Profile) -> Result<String> {
        let url = self.global.base_url.as_ref().or(profile.base_url.as_ref());
        let Some(url) = url else {
            return Err(
                Failure::new(Exit::Usage, "the address of the installation is not set")
                    .with_advice(
                        "Pass --base-url, set ASSAY_BASE_URL, or select a profile with --profile.",
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
