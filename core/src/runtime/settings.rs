//! Settings of both binaries, read from the environment.
//!
//! One table names them all, so that a misspelt one is noticed and the README can be checked against it. A secret may
//! also be given as a file: `ASSAY_…_FILE`. Faults are collected and told all at once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name in the environment.
    pub name: &'static str,
    /// What holds when it is not given; nothing means that it must be.
    pub default: Option<&'static str>,
    /// Whether it may also be given as a file, and is never shown.
    pub secret: bool,
    /// What it is, for people.
    pub help: &'static str,
}

macro_rules! settings {
    ($($name:ident $(= $default:literal)? $(, $secret:ident)?; $help:literal)*) => {
        $(#[doc = $help]
        pub const $name: Setting = Setting {
            name: concat!("ASSAY_", stringify!($name)),
            default: settings!(@default $($default)?),
            secret: settings!(@secret $($secret)?),
            help: $help,
        };)*
        /// Every setting, in the order of the README's table.
        pub const ALL: &[Setting] = &[$($name),*];
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@secret) => { false };
    (@secret secret) => { true };
}

settings! {
    DATABASE_URL, secret; "Address of PostgreSQL; several servers are separated by commas, as in `postgres://role:password@db-1,db-2:5433/assay`, and the one that accepts writes is used. `serve` wants a role in `assay_api`, the worker one in `assay_worker`, the operator's commands the owner of the schema."
    REDIS_URL, secret; "Address of Redis."
    REDIS_PREFIX = "assay"; "Begins every key and channel in Redis, so that installations can share one."
    ARTIFACTS = "artifacts"; "Where submissions and uploads are kept: a folder, or `s3://bucket/prefix` with credentials, region and endpoint in the usual `AWS_…` variables. Api and workers must see the same one."
    LISTEN = "127.0.0.1:8080"; "Where the api serves REST and gRPC."
    ADMIN_LISTEN = "127.0.0.1:9090"; "Where `/metrics`, `/livez` and `/readyz` are served; keep it private."
    PUBLIC_URL = ""; "Address under which callers reach the api, for links in answers; empty: `http://` and the listening address."
    ENV = "development"; "Name of this installation, told by `GET /health`."
    HFM_SHA = ""; "Build of the scoring and model library; empty: the build of the binary itself."
    DATABASE_CONNECTIONS = "16"; "Largest number of connections to PostgreSQL of one process. An api opens all of them at its start, and keeps a quarter for those who ask after jobs or cancel them."
    POOL_WAIT_MS = "200"; "Milliseconds that a request waits for a connection to PostgreSQL, where all are at work, before it is refused with 503."
    TRUSTED_PROXIES = ""; "Networks, such as `10.0.0.0/8`, separated by commas, whose `X-Forwarded-For` is believed."
    CORS_ORIGINS = ""; "Origins, such as `https://app.example.org`, separated by commas, whose pages may call from a browser; `*`: all."
    CONNECTIONS_PER_ADDRESS = "200"; "Connections that one client address may have to an API process; more are closed at once. Trusted proxies may have any number."
    REQUEST_MEMORY_MIB = "192"; "Mebibytes that an API process holds at most for request bodies that arrive and for responses that are not read yet; requests beyond wait 5 s for room and then get 503."
    GRPC_REFLECTION = "true"; "Whether gRPC reflection describes the contract to callers, with or without a credential."
    AUTH_FAILURES_PER_MINUTE = "10"; "Failed authentications from one address in 60 seconds before it is throttled."
    SIGN_IN_MAILS_PER_MINUTE = "10"; "Mails to sign in with that may be asked for from one address in 60 seconds."
    SIGN_UP = "open"; "Who may sign up: `open`: everybody; `invited`: those who have an open invite; `domains`: also those whose address has a domain that an organization has verified. Existing users always sign in. Unless it is `open`, only owners create further organizations."
    SMTP_URL = "", secret; "Mail server, such as `smtps://user:password@host:465` or `smtp://localhost:1025`; empty: mails are written to `ASSAY_MAIL_FOLDER`."
    MAIL_FROM = ""; "Sender of mails, such as `Assay <assay@example.org>`; required with `ASSAY_SMTP_URL`."
    MAIL_FOLDER = "mail"; "Folder to which mails are written, one `.eml` each, when there is no mail server."
    DNS_SERVER = ""; "Name server, such as `192.0.2.53:53`, that is asked when a domain is verified; empty: the system's."
    DOMAIN_CHECK_DAYS = "7"; "Days after which the record of a verified domain is looked up again. After three checks in a row that do not find it, `auto_join` is disabled."
    TERMS_VERSION = ""; "Version of the terms that organizations must accept before they make keys and submit; empty: there are no terms."
    TERMS_URL = ""; "Where the terms can be read; required with `ASSAY_TERMS_VERSION`."
    FREE_UPLOAD_HOURS = "24"; "Hours that a completed upload of an organization on the plan `free` can be submitted; on other plans it is 7 days."
    JOB_DAYS = "400"; "Days that a job is stored after its submission, with its attempts and its rows of the usage ledger; at least 93. Jobs that count for an allowance of a suite stay."
    CANCELLED_JOB_DAYS = "93"; "The same for cancelled jobs; at least 93."
    UPLOAD_DAYS = "30"; "Days that the row of an upload is stored after its objects were removed. Uploads that a stored job names stay."
    SESSION_DAYS = "7"; "Days that a session is stored after its end."
    RECORD_DAYS = "90"; "Days that revoked keys, ended invites and expired domain claims are stored."
    WORKER_SLOTS = "4"; "Jobs that one worker process scores at once."
    WORKER_ANSWERS_MIB = "1024"; "Memory, in MiB, for the answers of suites, kept from one job to the next; those used longest ago go first. What is in use stays, whatever its size."
    DRAIN_SECONDS = "25"; "How long a process that was told to end may finish what it has begun."
    OTLP_ENDPOINT = ""; "Where traces are exported to, by OTLP over gRPC, such as `http://collector:4317` (headers in the usual `OTEL_EXPORTER_OTLP_HEADERS`); empty: nowhere."
    TRACE_SHARE = "1"; "Share of the traces that is exported, from 0 to 1. A keyed hash of the trace's id decides: all API processes export the same ones, and callers cannot choose."
    LOG = "info"; "What is logged: `error`, `warn`, `info`, `debug`, or directives such as `info,sqlx=debug`."
    LOG_FORMAT = "json"; "`json` or `text`."
}

/// Reads settings and collects what is wrong with them.
pub struct Reader {
    given: BTreeMap<String, String>,
    faults: Vec<String>,
}

/// All that is wrong with the settings, a line each.
#[derive(Debug, thiserror::Error)]
pub struct BadSettings(Vec<String>);

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the settings are not right:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl Reader {
    /// Reads this process's environment.
    pub fn from_env() -> Self {
        let given = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::new(given)
    }

    /// Reads the given variables; those that do not begin with `ASSAY_` are not ours.
    pub fn new(given: impl IntoIterator<Item = (String, String)>) -> Self {
        let given: BTreeMap<_, _> = given
            .into_iter()
            .filter(|(name, _)| name.starts_with("ASSAY_"))
            .collect();
        let known = |name: &str| {
            let setting = |name: &str| ALL.iter().find(|setting| setting.name == name);
            setting(name).is_some()
                || name
                    .strip_suffix("_FILE")
                    .and_then(setting)
                    .is_some_and(|setting| setting.secret)
        };
        // What finds servers for the launcher, and what a build is told, is not the business of these binaries.
        let foreign = |name: &str| {
            ["ASSAY_POSTGRES_BIN", "ASSAY_REDIS_SERVER", "ASSAY_GIT_SHA"].contains(&name)
        };
        let faults = given
            .keys()
            .filter(|name| !known(name) && !foreign(name))
            .map(|name| format!("{name}: there is no such setting"))
            .collect();
        Self { given, faults }
    }

    fn text(&mut self, setting: &Setting) -> Option<String> {
        let file = format!("{}_FILE", setting.name);
        let by_file = if setting.secret {
            self.given.get(&file)
        } else {
            None
        };
        match (self.given.get(setting.name), by_file) {
            (Some(_), Some(_)) => self.fault(
                &file,
                &format!("{} is given too; give one of them", setting.name),
            ),
            (Some(value), None) => Some(value.clone()),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => self.fault(&file, &format!("cannot be read: {error}")),
            },
            (None, None) => match setting.default {
                Some(default) => Some(default.to_owned()),
                None if setting.secret => self.fault(
                    setting.name,
                    &format!("is required (or {file}): {}", setting.help),
                ),
                None => self.fault(setting.name, &format!("is required: {}", setting.help)),
            },
        }
    }

    fn fault<T>(&mut self, name: &str, message: &str) -> Option<T> {
        self.faults.push(format!("{name}: {message}"));
        None
    }

    /// A setting's value. Where it is wrong the fault is noted and `T::default()` stands in until [`Reader::finish`].
    pub fn get<T: FromStr<Err: fmt::Display> + Default>(&mut self, setting: &Setting) -> T {
        let Some(text) = self.text(setting) else {
            return T::default();
        };
        match text.parse() {
            Ok(value) => value,
            // The value of a secret is not repeated.
            Err(error) if setting.secret => self
                .fault(setting.name, &error.to_string())
                .unwrap_or_default(),
            Err(error) => self
                .fault(setting.name, &format!("{text:?}: {error}"))
                .unwrap_or_default(),
        }
    }

    /// A setting that is a list, separated by commas.
    pub fn list<T: FromStr<Err: fmt::Display>>(&mut self, setting: &Setting) -> Vec<T> {
        let text = self.text(setting).unwrap_or_default();
        let mut values = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            match part.parse() {
                Ok(value) => values.push(value),
                Err(error) => self
                    .faults
                    .push(format!("{}: {part:?}: {error}", setting.name)),
            }
        }
        values
    }

    /// A number that must not be 0.
    pub fn positive(&mut self, setting: &Setting) -> u32 {
        self.at_least(setting, 1)
    }

    /// A number that must not be less than `least`.
    pub fn at_least(&mut self, setting: &Setting, least: u32) -> u32 {
        let value = self.get(setting);
        if value < least
            && !self
                .faults
                .iter()
                .any(|fault| fault.starts_with(setting.name))
        {
            self.faults
                .push(format!("{}: must be at least {least}", setting.name));
        }
        value
    }

    /// A number from 0 to 1.
    pub fn share(&mut self, setting: &Setting) -> f64 {
        let value = self.get(setting);
        if !(0.0..=1.0).contains(&value) {
            self.refuse(setting, "must be a number from 0 to 1");
        }
        value
    }

    /// An address to listen on.
    pub fn address(&mut self, setting: &Setting) -> SocketAddr {
        let unspecified = SocketAddr::from(([127, 0, 0, 1], 0));
        let Some(text) = self.text(setting) else {
            return unspecified;
        };
        match text.parse() {
            Ok(address) => address,
            Err(_) => self
                .fault(
                    setting.name,
                    &format!("{text:?}: must be an address and a port, such as 127.0.0.1:8080"),
                )
                .unwrap_or(unspecified),
        }
    }

    /// Notes a fault that only its reader can see. The value is not repeated.
    pub fn refuse(&mut self, setting: &Setting, message: &str) {
        self.faults.push(format!("{}: {message}", setting.name));
    }

    /// All is read: the faults, if there are any.
    pub fn finish(self) -> Result<(), BadSettings> {
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(BadSettings(self.faults))
        }
    }
}

/// Two connections only listen; the rest is for work.
const CONNECTIONS_MIN: u32 = 4;

/// What both binaries are told.
#[derive(Clone)]
pub struct Common {
    /// As a role in `assay_api` or `assay_worker`.
    pub database_url: String,
    /// Largest number of connections.
    pub database_connections: u32,
    /// Of the server that holds the bells and the limits.
    pub redis_url: String,
    /// Begins every key and channel.
    pub redis_prefix: String,
    /// Folder or bucket of submissions.
    pub artifacts: String,
    /// Where operators are served.
    pub admin_listen: SocketAddr,
    /// Build of this binary.
    pub git_sha: String,
    /// Build of the scoring library.
    pub hfm_sha: String,
    /// How long to finish what was begun.
    pub drain: Duration,
    /// Where traces are exported to; empty: nowhere.
    pub otlp_endpoint: String,
    /// Which share of them, from 0 to 1.
    pub trace_share: f64,
    /// What is logged.
    pub log: String,
    /// `json` or `text`.
    pub log_format: String,
}

impl Common {
    /// Reads them. `git_sha` is the build's own.
    pub fn read(read: &mut Reader, git_sha: &str) -> Self {
        let hfm_sha: String = read.get(&HFM_SHA);
        Self {
            database_url: read.get(&DATABASE_URL),
            database_connections: read.at_least(&DATABASE_CONNECTIONS, CONNECTIONS_MIN),
            redis_url: read.get(&REDIS_URL),
            redis_prefix: read.get(&REDIS_PREFIX),
            artifacts: read.get(&ARTIFACTS),
            admin_listen: read.address(&ADMIN_LISTEN),
            git_sha: git_sha.to_owned(),
            hfm_sha: if hfm_sha.is_empty() {
                git_sha.to_owned()
            } else {
                hfm_sha
            },
            drain: Duration::from_secs(u64::from(read.positive(&DRAIN_SECONDS))),
            otlp_endpoint: read.get(&OTLP_ENDPOINT),
            trace_share: read.share(&TRACE_SHARE),
            log: read.get(&LOG),
            log_format: read.get(&LOG_FORMAT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(given: &[(&str, &str)]) -> Reader {
        Reader::new(
            given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn all_faults_are_told_at_once_and_secrets_are_not() {
        let mut read = reader(&[
            ("ASSAY_LISTEM", "x"),
            ("ASSAY_WORKER_SLOTS", "many"),
            ("ASSAY_REDIS_URL", "s3cret"),
            ("ASSAY_REDIS_URL_FILE", "/x"),
            ("HOME", "/"),
        ]);
        let _: String = read.get(&DATABASE_URL);
        let _: String = read.get(&REDIS_URL);
        let _ = read.positive(&WORKER_SLOTS);
        let told = read.finish().unwrap_err().to_string();
        for part in [
            "ASSAY_LISTEM: there is no such setting",
            "ASSAY_DATABASE_URL: is required",
            "ASSAY_REDIS_URL_FILE: ASSAY_REDIS_URL is given too",
            "ASSAY_WORKER_SLOTS: \"many\"",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("s3cret") && !told.contains("HOME"), "{told}");
    }

    #[test]
    fn a_secret_can_be_a_file() {
        let file = std::env::temp_dir().join(format!("assay-settings-{}", std::process::id()));
        std::fs::write(&file, "postgres://x\n").unwrap();
        let mut read = reader(&[("ASSAY_DATABASE_URL_FILE", file.to_str().unwrap())]);
        let value: String = read.get(&DATABASE_URL);
        std::fs::remove_file(file).unwrap();
        assert_eq!(value, "postgres://x");
        assert!(read.finish().is_ok());
    }
}
