//! What the api is told at its start.

use std::net::SocketAddr;

use assay_core::settings::{self, BadSettings, Common, Reader};
use ipnet::IpNet;

use crate::layers::cors::Origin;

/// The settings of `serve`.
#[derive(Clone)]
pub struct Settings {
    /// What the worker is told too.
    pub common: Common,
    /// Where callers are served.
    pub listen: SocketAddr,
    /// Without a slash at its end.
    pub public_url: String,
    /// Name of the installation.
    pub env: String,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whose pages may call from a browser.
    pub cors_origins: Vec<Origin>,
    /// Failed authentications from one address before it is throttled.
    pub auth_failures_per_minute: u32,
}

impl Settings {
    /// Reads this process's environment. `git_sha` is the build's own.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        let mut read = Reader::from_env();
        let listen = read.address(&settings::LISTEN);
        let public_url: String = read.get(&settings::PUBLIC_URL);
        let settings = Self {
            common: Common::read(&mut read, git_sha),
            listen,
            public_url: if public_url.is_empty() { format!("http://{listen}") } else { public_url.trim_end_matches('/').to_owned() },
            env: read.get(&settings::ENV),
            trusted_proxies: read.list(&settings::TRUSTED_PROXIES),
            cors_origins: read.list(&settings::CORS_ORIGINS),
            auth_failures_per_minute: read.positive(&settings::AUTH_FAILURES_PER_MINUTE),
        };
        read.finish()?;
        Ok(settings)
    }
}

/// The one setting that the operator's commands need.
pub fn operator() -> Result<String, BadSettings> {
    let mut read = Reader::from_env();
    let url = read.get(&settings::DATABASE_URL);
    read.finish()?;
    Ok(url)
}
