//! What a worker is told at its start.

use assay_core::settings::{BadSettings, Common, Reader, WORKER_SLOTS};

/// The settings of `run`.
#[derive(Clone)]
pub struct Settings {
    /// What the api is told too.
    pub common: Common,
    /// Jobs scored at once.
    pub slots: u32,
}

impl Settings {
    /// Reads this process's environment. `git_sha` is the build's own.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        let mut read = Reader::from_env();
        let settings = Self { common: Common::read(&mut read, git_sha), slots: read.positive(&WORKER_SLOTS) };
        read.finish()?;
        Ok(settings)
    }
}
