//! A worker's settings.

use std::net::SocketAddr;
use std::time::Duration;

use assay_core::runtime::settings::{
    ADMIN_LISTEN, BadSettings, CHECKER_DATABASE_URL, Common, DRAIN_SECONDS, LOG, LOG_FORMAT,
    Reader, WORKER_ANSWERS_MIB, WORKER_SLOTS,
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
    /// The address of PostgreSQL with a role in `assay_checker`, if this process checks drafts too.
    pub checker_database_url: Option<String>,
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
            checker_database_url: read_checker_url(&mut reader),
        };
        reader.finish()?;
        Ok(settings)
    }
}

/// Returns the address of the checker's database, or `None` if it is not set.
fn read_checker_url(reader: &mut Reader) -> Option<String> {
    let url: String = reader.get(&CHECKER_DATABASE_URL);
    (!url.is_empty()).then_some(url)
}

/// The `assay-worker check` settings.
#[derive(Clone)]
pub struct CheckerSettings {
    /// The address of PostgreSQL, with a role in `assay_checker`.
    pub database_url: String,
    /// The private address of `/metrics`, `/livez` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The time in which the process finishes its check after a shutdown signal.
    pub drain: Duration,
    /// The commit that the binary was built from.
    pub git_sha: String,
    /// The log filter, such as `info,sqlx=debug`.
    pub log: String,
    /// The log format: `json` or `text`.
    pub log_format: String,
}

impl CheckerSettings {
    /// Reads the settings from the environment, and checks that there are no other credentials: the process reads files of strangers.
    /// `git_sha` is the build's commit.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        let mut reader = Reader::from_env();
        reader.reject_secrets_except(&[CHECKER_DATABASE_URL]);
        let database_url = read_checker_url(&mut reader);
        if database_url.is_none() {
            reader.reject(&CHECKER_DATABASE_URL, "is required");
        }
        let settings = Self {
            database_url: database_url.unwrap_or_default(),
            admin_listen: reader.address(&ADMIN_LISTEN),
            drain: Duration::from_secs(u64::from(reader.positive(&DRAIN_SECONDS))),
            git_sha: git_sha.to_owned(),
            log: reader.get(&LOG),
            log_format: reader.get(&LOG_FORMAT),
        };
        reader.finish()?;
        Ok(settings)
    }
}
