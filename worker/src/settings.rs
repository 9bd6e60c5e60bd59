//! A worker's settings.

use assay_core::runtime::settings::{
    BadSettings, Common, Reader, WORKER_ANSWERS_MIB, WORKER_SLOTS,
};

/// The `assay-worker run` settings.
#[derive(Clone)]
pub struct Settings {
    /// The settings that the API has too.
    pub common: Common,
    /// Jobs that are scored at the same time.
    pub slots: u32,
    /// Maximum memory for cached answers, in bytes.
    pub answers_bytes_max: usize,
}

impl Settings {
    /// Reads the settings from this process's environment. `git_sha` is the build's
    /// commit.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        Self::read(Reader::from_env(), git_sha)
    }

    /// Reads the settings from `reader`. Fails if one is invalid, or if there are unknown ones.
    pub fn read(mut reader: Reader, git_sha: &str) -> Result<Self, BadSettings> {
        let common = Common::read(&mut reader, git_sha);
        let (slots, mib): (u32, u32) = (
            reader.positive(&WORKER_SLOTS),
            reader.positive(&WORKER_ANSWERS_MIB),
        );
        let settings = Self {
            common,
            slots,
            answers_bytes_max: (mib as usize) << 20,
        };
        reader.finish()?;
        Ok(settings)
    }
}
