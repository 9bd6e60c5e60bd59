//! What a worker is told at its start.

use std::net::SocketAddr;
use std::time::Duration;

use assay_core::settings::{self, Reader};

/// The settings of `run`.
#[derive(Clone)]
pub struct Settings {
    /// As a role in `assay_worker`.
    pub database_url: String,
    /// Largest number of connections.
    pub database_connections: u32,
    /// Of the server that holds the bells.
    pub redis_url: String,
    /// Begins every key and channel.
    pub redis_prefix: String,
    /// Folder of submissions.
    pub artifacts: String,
    /// Where operators are served.
    pub admin_listen: SocketAddr,
    /// Build of the worker.
    pub git_sha: String,
    /// Build of the scoring library.
    pub hfm_sha: String,
    /// Jobs scored at once.
    pub slots: u32,
    /// How long to finish what was begun.
    pub drain: Duration,
}

impl Settings {
    /// Reads the settings. `git_sha` is the build's own.
    pub fn read(read: &mut Reader, git_sha: &str) -> Self {
        let hfm_sha: String = read.get(&settings::HFM_SHA);
        Self {
            database_url: read.get(&settings::DATABASE_URL),
            database_connections: read.positive(&settings::DATABASE_CONNECTIONS),
            redis_url: read.get(&settings::REDIS_URL),
            redis_prefix: read.get(&settings::REDIS_PREFIX),
            artifacts: read.get(&settings::ARTIFACTS),
            admin_listen: read.address(&settings::ADMIN_LISTEN),
            git_sha: git_sha.to_owned(),
            hfm_sha: if hfm_sha.is_empty() { git_sha.to_owned() } else { hfm_sha },
            slots: read.positive(&settings::WORKER_SLOTS),
            drain: Duration::from_secs(u64::from(read.positive(&settings::DRAIN_SECONDS))),
        }
    }
}
