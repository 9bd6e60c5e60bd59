//! What the api is told at its start.

use std::net::SocketAddr;
use std::time::Duration;

use assay_core::settings::{self, BadSettings, Reader};
use ipnet::IpNet;

/// The settings of `serve`.
#[derive(Clone)]
pub struct Settings {
    /// As a role in `assay_api`.
    pub database_url: String,
    /// Largest number of connections.
    pub database_connections: u32,
    /// Of the server that holds the limits and the bells.
    pub redis_url: String,
    /// Begins every key and channel.
    pub redis_prefix: String,
    /// Folder of submissions.
    pub artifacts: String,
    /// Where callers are served.
    pub listen: SocketAddr,
    /// Where operators are served.
    pub admin_listen: SocketAddr,
    /// Without a slash at its end.
    pub public_url: String,
    /// Name of the installation.
    pub env: String,
    /// Build of the api.
    pub git_sha: String,
    /// Build of the scoring library.
    pub hfm_sha: String,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Failed authentications from one address before it is throttled.
    pub auth_failures_per_minute: u32,
    /// How long to finish what was begun.
    pub drain: Duration,
}

impl Settings {
    /// Reads the settings. `git_sha` is the build's own.
    pub fn read(read: &mut Reader, git_sha: &str) -> Self {
        let listen = read.address(&settings::LISTEN);
        let public_url: String = read.get(&settings::PUBLIC_URL);
        let hfm_sha: String = read.get(&settings::HFM_SHA);
        Self {
            database_url: read.get(&settings::DATABASE_URL),
            database_connections: read.positive(&settings::DATABASE_CONNECTIONS),
            redis_url: read.get(&settings::REDIS_URL),
            redis_prefix: read.get(&settings::REDIS_PREFIX),
            artifacts: read.get(&settings::ARTIFACTS),
            listen,
            admin_listen: read.address(&settings::ADMIN_LISTEN),
            public_url: if public_url.is_empty() { format!("http://{listen}") } else { public_url.trim_end_matches('/').to_owned() },
            env: read.get(&settings::ENV),
            git_sha: git_sha.to_owned(),
            hfm_sha: if hfm_sha.is_empty() { git_sha.to_owned() } else { hfm_sha },
            trusted_proxies: read.list(&settings::TRUSTED_PROXIES),
            auth_failures_per_minute: read.positive(&settings::AUTH_FAILURES_PER_MINUTE),
            drain: Duration::from_secs(u64::from(read.positive(&settings::DRAIN_SECONDS))),
        }
    }
}

/// The settings of logging, which come first.
pub fn logging(read: &mut Reader) -> (String, String) {
    (read.get(&settings::LOG), read.get(&settings::LOG_FORMAT))
}

/// The one setting that the operator's commands need.
pub fn operator() -> Result<String, BadSettings> {
    let mut read = Reader::from_env();
    let url = read.get(&settings::DATABASE_URL);
    read.finish()?;
    Ok(url)
}
