//! What a worker is told at its start.

use assay_core::runtime::settings::{
    BadSettings, Common, Reader, WORKER_ANSWERS_MIB, WORKER_SLOTS,
};

/// The settings of `run`.
#[derive(Clone)]
pub struct Settings {
    /// What the api is told too.
    pub common: Common,
    /// Jobs scored at once.
    pub slots: u32,
    /// Memory for answers, in bytes.
    pub answers_bytes_max: usize,
}

impl Settings {
    /// Reads this process's environment. `git_sha` is the build's own.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        Self::read(Reader::from_env(), git_sha)
    }

    /// Reads the settings from `read`, and checks that there are no others.
    pub fn read(mut read: Reader, git_sha: &str) -> Result<Self, BadSettings> {
        let common = Common::read(&mut read, git_sha);
        let (slots, mib): (u32, u32) = (
            read.positive(&WORKER_SLOTS),
            read.positive(&WORKER_ANSWERS_MIB),
        );
        let settings = Self {
            common,
            slots,
            answers_bytes_max: (mib as usize) << 20,
        };
        read.finish()?;
        Ok(settings)
    }
}
