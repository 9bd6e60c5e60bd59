//! The embedded engine's settings.

use std::net::SocketAddr;
use std::time::Duration;

use assay_core::runtime::settings::{
    ADMIN_LISTEN, ARTIFACTS, BadSettings, DRAIN_SECONDS, ENGINE_LISTEN, ENGINE_MEMORY, LOG,
    LOG_FORMAT, Reader,
};

/// The `assay-worker serve` settings.
#[derive(Clone)]
pub struct Settings {
    /// The Open Inference Protocol's address.
    pub listen: SocketAddr,
    /// The private address for `/metrics`, `/livez` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The folder or bucket with the packages.
    pub artifacts: String,
    /// Maximum memory for loaded packages, in bytes.
    pub memory: u64,
    /// The time in which the process finishes its work after a shutdown signal.
    pub drain: Duration,
    /// The commit that the binary was built from.
    pub git_sha: String,
    /// The log filter, such as `info`.
    pub log: String,
    /// The log format: `json` or `text`.
    pub log_format: String,
}

impl Settings {
    /// Reads the settings from this process's environment. `git_sha` is the build's
    /// commit.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        Self::read(Reader::from_env(), git_sha)
    }

    /// Reads the settings from `reader`.
    ///
    /// # Errors
    /// If one is invalid, if there are unknown ones, or if there is a credential: the process
    /// computes with packages that it does not trust.
    pub fn read(mut reader: Reader, git_sha: &str) -> Result<Self, BadSettings> {
        reader.reject_secrets_except(&[]);
        let settings = Self {
            listen: reader.address(&ENGINE_LISTEN),
            admin_listen: reader.address(&ADMIN_LISTEN),
            artifacts: reader.get(&ARTIFACTS),
            memory: reader.get(&ENGINE_MEMORY),
            drain: Duration::from_secs(u64::from(reader.positive(&DRAIN_SECONDS))),
            git_sha: git_sha.to_owned(),
            log: reader.get(&LOG),
            log_format: reader.get(&LOG_FORMAT),
        };
        reader.finish()?;
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Settings, BadSettings> {
        let given = given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::read(Reader::new(given), "test")
    }

    #[test]
    fn defaults_need_no_setting() {
        let settings = read(&[]).unwrap();
        assert!(settings.listen.ip().is_loopback() && settings.admin_listen.ip().is_loopback());
        assert_eq!(settings.memory, 1 << 30);
    }

    #[test]
    fn credentials_are_rejected() {
        for name in [
            "ASSAY_DATABASE_URL",
            "ASSAY_DATABASE_URL_FILE",
            "ASSAY_REDIS_URL",
            "ASSAY_SMTP_URL",
        ] {
            let error = read(&[(name, "x")]).err().unwrap().to_string();
            assert!(
                error.contains(&format!("{name}: must not be set")),
                "{error}"
            );
        }
    }
}
