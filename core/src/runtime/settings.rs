//! Both binaries' settings, which are read from the environment.
//!
//! One table lists all settings, so that misspelt names are rejected and a test can compare
//! `docs/configuration.md` with it. A secret's value can also be in a file: `ASSAY_…_FILE`.
//! All errors are collected and reported in one message.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::model::engine_address::{self, EngineAddress};

/// A setting for one or both binaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The environment variable's name.
    pub name: &'static str,
    /// An absent setting's value. `None` if the setting is required.
    pub default: Option<&'static str>,
    /// `true` if the value can also be in a file, and is never printed.
    pub secret: bool,
    /// The setting's meaning, as in `docs/configuration.md`.
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
        /// Every setting, in `docs/configuration.md`'s order.
        pub const ALL: &[Setting] = &[$($name),*];
    };
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@secret) => { false };
    (@secret secret) => { true };
}

settings! {
    DATABASE_URL, secret; "Address of PostgreSQL. Separate several servers with commas, as in `postgres://role:password@db-1,db-2:5433/assay`; the one that accepts writes is used. `assay-api serve` requires a role in `assay_api`, the worker a role in `assay_worker`, and the operator's commands the owner of the schema."
    REDIS_URL, secret; "Address of Redis, such as `redis://:password@host:6379/0`."
    REDIS_PREFIX = "assay"; "Prefix of every key and channel in Redis. Installations with different prefixes can share one Redis."
    ARTIFACTS = "artifacts"; "Artifact store for submissions, uploads and models: a folder, or `s3://bucket/prefix` with credentials, region and endpoint in the usual `AWS_…` variables. The API, the workers and the embedded engine must use the same one."
    LISTEN = "127.0.0.1:8080"; "Address and port on which the API serves REST and gRPC."
    ADMIN_LISTEN = "127.0.0.1:9090"; "Address and port on which the process serves `/metrics`, `/livez` and `/readyz`. Keep it private."
    PUBLIC_URL = ""; "Public address of the API and its pages, without a path, for links in responses and emails. Pages accept forms from this origin. If empty, it is `http://` and the value of `ASSAY_LISTEN`."
    ENV = "development"; "Name of the installation, which `GET /health` returns."
    HFM_SHA = ""; "Build of the scoring and model library. If empty, it is the build of the binary."
    DATABASE_CONNECTIONS = "16"; "Maximum number of connections of one process to PostgreSQL, at least 7. An API process opens all of them when it starts, and reserves a quarter for requests that list or cancel jobs."
    POOL_WAIT_MS = "200"; "Longest wait of a request for a free connection to PostgreSQL, in milliseconds. Then the response is 503."
    TRUSTED_PROXIES = ""; "Networks of trusted proxies, such as `10.0.0.0/8`, separated by commas. The API uses `X-Forwarded-For` of requests from these networks only."
    CORS_ORIGINS = ""; "Origins of web pages that can call the API from a browser, such as `https://app.example.org`, separated by commas. `*` allows all."
    CONNECTIONS_PER_ADDRESS = "200"; "Maximum number of connections of one client address to an API process. Further connections are closed at once. Trusted proxies have no limit."
    REQUEST_MEMORY_MIB = "192"; "Memory of an API process for request bodies that arrive and responses that are not read yet, in MiB. A request beyond it waits up to 5 s for memory; then the response is 503."
    GRPC_REFLECTION = "true"; "`true` lets callers read the contract by gRPC reflection, with or without a credential. `false` disables reflection."
    AUTH_FAILURES_PER_MINUTE = "10"; "Number of failed authentications of one client address in 60 seconds after which the address is throttled."
    SIGN_IN_MAILS_PER_MINUTE = "10"; "Maximum number of sign-in emails that one client address can request in 60 seconds, and of sign-ins with a provider that it can finish."
    DEVICE_LOGINS_PER_MINUTE = "10"; "Maximum number of device logins that one client address can start in 60 seconds."
    SIGN_UP = "open"; "Users who can sign up: `open`: everybody; `invited`: users with an open invite; `domains`: also users whose address has a domain that an organization has verified. Existing users can always sign in. Unless the value is `open`, only owners can create further organizations."
    RESERVED_HANDLES = ""; "File with handles that no organization can have, one a line, in addition to `admin`, `official` and others."
    SUITE_REVIEW = "none"; "Suites of organizations that the operator reviews: `none`; `listed`: a suite becomes `listed` or `public` only after `assay-api suite approve`."
    SMTP_URL = "", secret; "Mail server, such as `smtps://user:password@host:465` or `smtp://localhost:1025`. If empty, emails are written to `ASSAY_MAIL_FOLDER`."
    MAIL_FROM = ""; "Sender of emails, such as `Assay <assay@example.org>`. Required with `ASSAY_SMTP_URL`."
    MAIL_FOLDER = "mail"; "Folder for emails if there is no mail server. Each email is an `.eml` file."
    DNS_SERVER = ""; "DNS server for the verification of domains and for the receivers of webhooks, such as `192.0.2.53:53`. If empty, the DNS server of the system is used."
    DOMAIN_CHECK_DAYS = "7"; "Days between the checks of a verified domain's DNS record. After three consecutive checks that do not find it, `auto_join` is disabled."
    OIDC_ISSUERS = "", secret; "OpenID Connect providers with which users can sign in, in addition to the link by email, as JSON: `[{\"name\": \"uni\", \"title\": \"Example University\", \"issuer\": \"https://login.example.edu\", \"client_id\": \"assay\", \"client_secret\": \"…\"}]`. `name` is part of URLs, `title` is the text on the sign-in page and can be absent. Register the redirect URI `<ASSAY_PUBLIC_URL>/sign-in/oidc/<name>/callback` with each provider. List only providers whose `email_verified` you trust: it signs a user in to the account with that address."
    WEBHOOK_KEY = "", secret; "Key from which the signing secrets of webhooks are derived: at least 32 bytes in base64, such as those of `openssl rand -base64 32`. `assay-api serve` and `assay-api deliver` need the same one. A new key changes all secrets. If empty, there are no webhooks."
    WEBHOOK_DELIVERY = "true"; "`true` lets `assay-api serve` deliver webhooks. `false` leaves that to `assay-api deliver`, whose database role and network can be restricted."
    WEBHOOK_HTTP = "false"; "`true` lets webhooks have URLs that begin with `http://`, for development. `false` requires `https://`."
    WEBHOOK_NETWORKS = ""; "Networks that webhooks may reach although they are not on the public internet, such as `10.1.0.0/16`, separated by commas."
    RECEIPT_KEYS = "", secret; "Private keys that sign score receipts, as `assay-api receipt-key generate` prints them, separated by commas. The first one signs; the others are those before it. Required by `assay-api log`. If empty in `assay-api serve`, it signs no receipts."
    LOG_KEY = "", secret; "Private key of the receipt log, as `assay-api log keygen` prints it. During a rotation two keys, separated by a comma. Required with `ASSAY_RECEIPT_KEYS`."
    LOG_ORIGIN = ""; "Name of the receipt log, such as `assay.example.org/log`, which is also the name of its key. It never changes. Required with `ASSAY_RECEIPT_KEYS`."
    RECEIPT_LOG = "true"; "`true` lets `assay-api serve` sign receipts and write the receipt log, if it has the keys. `false` leaves that to `assay-api log`, so that the API needs no keys."
    LOG_DATABASE_URL = "", secret; "Address of PostgreSQL with a login role in `assay_log` only, with which `assay-api serve` signs receipts and writes the receipt log. Required there with `ASSAY_RECEIPT_KEYS`, unless `ASSAY_RECEIPT_LOG` is `false`."
    CHECKER_DATABASE_URL = "", secret; "Address of PostgreSQL with a login role in `assay_checker` only. Required by `assay-worker check`. With it, `assay-worker run` checks drafts of suites too, one at a time."
    TERMS_VERSION = ""; "Version of the terms that an organization must accept before it creates keys or submits. If empty, there are no terms."
    TERMS_URL = ""; "URL of the terms. Required with `ASSAY_TERMS_VERSION`."
    FREE_UPLOAD_HOURS = "24"; "Hours for which an organization on the plan `free` can submit a completed upload. On other plans it is 7 days."
    JOB_DAYS = "400"; "Days for which a job is stored after its submission, with its attempts and its rows of the usage ledger; at least 93. Jobs that count for an allowance of a suite are not deleted."
    CANCELLED_JOB_DAYS = "93"; "Days for which a cancelled job is stored after its submission; at least 93."
    UPLOAD_DAYS = "30"; "Days for which the row of an upload is stored after its objects were removed. Rows that a stored job refers to are not deleted."
    SESSION_DAYS = "7"; "Days for which a session is stored after its end."
    RECORD_DAYS = "90"; "Days for which revoked keys, expired domain claims and invites that are no longer open are stored."
    WORKER_SLOTS = "4"; "Number of jobs that one worker process scores at once. Up to 16 jobs of at most 64 KiB count as one."
    WORKER_ANSWERS_MIB = "1024"; "Memory of a worker process for cached answers of suites, in MiB. The least recently used answers are removed first. Answers in use are never removed, whatever their size."
    ENGINE_LISTEN = "127.0.0.1:9500"; "Address and port on which the embedded engine, `assay-worker serve`, serves the Open Inference Protocol. It has no authentication: let only the API and the workers reach it."
    ENGINE_MEMORY = "1073741824"; "Memory of the embedded engine for loaded packages, in bytes. The least recently used packages are unloaded first. While a package is loaded, its files count as well."
    ENGINES = ""; "Engines that run models, by the names that packages use: `default=http://127.0.0.1:9500,triton=http://triton:8001`. At most 16. A DNS name with several addresses is called round robin. Without engines, no model is served."
    SERVE_DEADLINE = "5"; "Deadline of a synchronous call to an engine, in seconds, from 0.1 to 60. Then the response is 503."
    DRAIN_SECONDS = "25"; "Seconds that a process may take to finish its work after a shutdown signal."
    OTLP_ENDPOINT = ""; "Address of the collector to which traces are exported by OTLP over gRPC, such as `http://collector:4317`, with headers in the usual `OTEL_EXPORTER_OTLP_HEADERS`. If empty, traces are not exported."
    TRACE_SHARE = "1"; "Share of the traces that are exported, from 0 to 1. A keyed hash of the trace id decides: all API processes export the same traces, and callers cannot influence the choice."
    LOG = "info"; "Log filter: `error`, `warn`, `info` or `debug`, or directives such as `info,sqlx=debug`."
    LOG_FORMAT = "json"; "Format of the logs: `json` or `text`."
}

/// Variables for tests, builds and clients. The binaries ignore them.
const FOREIGN: [&str; 8] = [
    "ASSAY_POSTGRES_BIN",
    "ASSAY_REDIS_SERVER",
    "ASSAY_GIT_SHA",
    "ASSAY_API_KEY",
    "ASSAY_BASE_URL",
    "ASSAY_PROFILE",
    "ASSAY_CACHE",
    "ASSAY_DEBUG",
];

/// A setting reader that collects errors, so that one message reports all.
pub struct Reader {
    given: BTreeMap<String, String>,
    errors: Vec<String>,
}

/// The settings' errors, one line each.
#[derive(Debug, thiserror::Error)]
pub struct BadSettings(Vec<String>);

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the settings are not valid:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl Reader {
    /// Creates a reader for the process's environment.
    pub fn from_env() -> Self {
        let given = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::new(given)
    }

    /// Creates a reader for these variables. Variables whose names do not start with `ASSAY_` are
    /// ignored.
    pub fn new(given: impl IntoIterator<Item = (String, String)>) -> Self {
        let given: BTreeMap<_, _> = given
            .into_iter()
            .filter(|(name, _)| name.starts_with("ASSAY_"))
            .collect();
        let is_known = |name: &str| {
            let setting = |name: &str| ALL.iter().find(|setting| setting.name == name);
            setting(name).is_some()
                || name
                    .strip_suffix("_FILE")
                    .and_then(setting)
                    .is_some_and(|setting| setting.secret)
        };
        let is_foreign = |name: &str| FOREIGN.contains(&name);
        let errors = given
            .keys()
            .filter(|name| !is_known(name) && !is_foreign(name))
            .map(|name| format!("{name}: there is no such setting"))
            .collect();
        Self { given, errors }
    }

    fn text(&mut self, setting: &Setting) -> Option<String> {
        let file = format!("{}_FILE", setting.name);
        let by_file = if setting.secret {
            self.given.get(&file)
        } else {
            None
        };
        match (self.given.get(setting.name), by_file) {
            (Some(_), Some(_)) => self.error(
                &file,
                &format!("{} is set too; set only one of them", setting.name),
            ),
            (Some(value), None) => Some(value.clone()),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => self.error(&file, &format!("cannot be read: {error}")),
            },
            (None, None) => match setting.default {
                Some(default) => Some(default.to_owned()),
                None if setting.secret => self.error(
                    setting.name,
                    &format!("is required (or {file}): {}", setting.help),
                ),
                None => self.error(setting.name, &format!("is required: {}", setting.help)),
            },
        }
    }

    /// Adds an error, and returns `None` for any value type.
    fn error<T>(&mut self, name: &str, message: &str) -> Option<T> {
        self.errors.push(format!("{name}: {message}"));
        None
    }

    /// Returns a setting's value. If it is not valid, adds an error, which [`Reader::finish`]
    /// returns, and returns `T::default()`.
    pub fn get<T: FromStr<Err: fmt::Display> + Default>(&mut self, setting: &Setting) -> T {
        let Some(text) = self.text(setting) else {
            return T::default();
        };
        match text.parse() {
            Ok(value) => value,
            // The message must not contain a secret's value.
            Err(error) if setting.secret => self
                .error(setting.name, &error.to_string())
                .unwrap_or_default(),
            Err(error) => self
                .error(setting.name, &format!("{text:?}: {error}"))
                .unwrap_or_default(),
        }
    }

    /// Returns a list's values, separated by commas.
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
                    .errors
                    .push(format!("{}: {part:?}: {error}", setting.name)),
            }
        }
        values
    }

    /// Returns a number that is at least 1.
    pub fn positive(&mut self, setting: &Setting) -> u32 {
        self.at_least(setting, 1)
    }

    /// Returns a number that is at least `least`.
    pub fn at_least(&mut self, setting: &Setting, least: u32) -> u32 {
        let value = self.get(setting);
        if value < least && !self.has_error(setting) {
            self.errors
                .push(format!("{}: must be at least {least}", setting.name));
        }
        value
    }

    /// Returns seconds between `least` and `most`, which may have decimals.
    pub fn seconds(&mut self, setting: &Setting, least: f64, most: f64) -> Duration {
        let value: f64 = self.get(setting);
        if (least..=most).contains(&value) {
            return Duration::from_secs_f64(value);
        }
        if !self.has_error(setting) {
            self.reject(
                setting,
                &format!("must be a number of seconds from {least} to {most}"),
            );
        }
        Duration::ZERO
    }

    /// Returns the engines.
    pub fn engines(&mut self) -> Vec<EngineAddress> {
        let addresses = self.list(&ENGINES);
        if let Some(message) = engine_address::list_error(&addresses) {
            self.reject(&ENGINES, &message);
        }
        addresses
    }

    fn has_error(&self, setting: &Setting) -> bool {
        self.errors
            .iter()
            .any(|error| error.starts_with(setting.name))
    }

    /// Returns a number from 0 to 1.
    pub fn share(&mut self, setting: &Setting) -> f64 {
        let value = self.get(setting);
        if !(0.0..=1.0).contains(&value) {
            self.reject(setting, "must be a number from 0 to 1");
        }
        value
    }

    /// Returns an address and a port to listen on.
    pub fn address(&mut self, setting: &Setting) -> SocketAddr {
        let unspecified = SocketAddr::from(([127, 0, 0, 1], 0));
        let Some(text) = self.text(setting) else {
            return unspecified;
        };
        match text.parse() {
            Ok(address) => address,
            Err(_) => self
                .error(
                    setting.name,
                    &format!("{text:?}: must be an address and a port, such as 127.0.0.1:8080"),
                )
                .unwrap_or(unspecified),
        }
    }

    /// Adds an error that the caller has found. The message does not contain the value.
    pub fn reject(&mut self, setting: &Setting, message: &str) {
        self.errors.push(format!("{}: {message}", setting.name));
    }

    /// Adds an error for each installation credential that is set, except those that the
    /// process needs.
    pub fn reject_secrets_except(&mut self, needed: &[Setting]) {
        let names = ALL
            .iter()
            .filter(|setting| setting.secret && !needed.contains(setting))
            .flat_map(|setting| [setting.name.to_owned(), format!("{}_FILE", setting.name)]);
        for name in names {
            if self.given.contains_key(&name) {
                self.errors.push(format!(
                    "{name}: must not be set, because this process must not have this credential; \
                     remove it from its environment"
                ));
            }
        }
    }

    /// Finishes the reading.
    ///
    /// # Errors
    /// All errors that were collected.
    pub fn finish(self) -> Result<(), BadSettings> {
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(self.into_errors())
        }
    }

    /// Returns all errors that were collected. The caller has added one.
    pub fn into_errors(self) -> BadSettings {
        BadSettings(self.errors)
    }
}

/// `ASSAY_DATABASE_CONNECTIONS`'s minimum. In an API process, two connections only listen for
/// notifications, three execute statements for many requests, and one is for requests that list or
/// cancel jobs.
const CONNECTIONS_MIN: u32 = 7;

/// The settings that both binaries read.
#[derive(Clone)]
pub struct Common {
    /// PostgreSQL's address, with a role in `assay_api` or `assay_worker`.
    pub database_url: String,
    /// The most connections to PostgreSQL.
    pub database_connections: u32,
    /// Redis's address, which stores job notifications and rate-limit counters.
    pub redis_url: String,
    /// The prefix for every key and channel in Redis.
    pub redis_prefix: String,
    /// The folder or bucket for submissions and uploads.
    pub artifacts: String,
    /// The private address for `/metrics`, `/livez` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The commit that the binary was built from.
    pub git_sha: String,
    /// The build of the scoring library.
    pub hfm_sha: String,
    /// The engines that run models.
    pub engines: Vec<EngineAddress>,
    /// The time in which the process finishes its work after a shutdown signal.
    pub drain: Duration,
    /// The collector to which traces are exported. If empty, they are not exported.
    pub otlp_endpoint: String,
    /// The trace share that is exported, from 0 to 1.
    pub trace_share: f64,
    /// The log filter, such as `info,sqlx=debug`.
    pub log: String,
    /// The log format: `json` or `text`.
    pub log_format: String,
}

impl Common {
    /// Reads the settings. `git_sha` is the commit that the binary was built from.
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
            engines: read.engines(),
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
    fn errors_are_collected_without_secrets() {
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
        let message = read.finish().unwrap_err().to_string();
        for part in [
            "ASSAY_LISTEM: there is no such setting",
            "ASSAY_DATABASE_URL: is required",
            "ASSAY_REDIS_URL_FILE: ASSAY_REDIS_URL is set too",
            "ASSAY_WORKER_SLOTS: \"many\"",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(
            !message.contains("s3cret") && !message.contains("HOME"),
            "{message}"
        );
    }

    #[test]
    fn variables_of_clients_are_ignored() {
        let read = reader(&[
            ("ASSAY_API_KEY", "s"),
            ("ASSAY_BASE_URL", "s"),
            ("ASSAY_PROFILE", "s"),
            ("ASSAY_CACHE", "s"),
            ("ASSAY_DEBUG", "1"),
        ]);
        assert!(read.finish().is_ok());
    }

    #[test]
    fn engines_and_deadline_are_read() {
        let mut read = reader(&[
            ("ASSAY_ENGINES", "default=http://h:1, triton=https://t"),
            ("ASSAY_SERVE_DEADLINE", "2.5"),
        ]);
        let names: Vec<_> = read
            .engines()
            .into_iter()
            .map(|engine| engine.name)
            .collect();
        assert_eq!(names, ["default", "triton"]);
        let deadline = read.seconds(&SERVE_DEADLINE, 0.1, 60.0);
        assert_eq!(deadline, Duration::from_millis(2500));
        assert!(read.finish().is_ok());
    }

    #[test]
    fn invalid_engines_and_deadline_are_reported() {
        let mut read = reader(&[
            ("ASSAY_ENGINES", "a=http://h, a=http://h, b"),
            ("ASSAY_SERVE_DEADLINE", "NaN"),
        ]);
        assert_eq!(read.engines().len(), 2);
        assert_eq!(read.seconds(&SERVE_DEADLINE, 0.1, 60.0), Duration::ZERO);
        let message = read.finish().unwrap_err().to_string();
        for part in [
            "ASSAY_ENGINES: \"b\": must be a name and an address",
            "ASSAY_ENGINES: \"a\" is named twice",
            "ASSAY_SERVE_DEADLINE: must be a number of seconds from 0.1 to 60",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn secrets_can_be_rejected() {
        let mut read = reader(&[
            ("ASSAY_DATABASE_URL", "s3cret"),
            ("ASSAY_REDIS_URL_FILE", "/x"),
            ("ASSAY_LOG", "info"),
        ]);
        read.reject_secrets_except(&[]);
        let message = read.finish().unwrap_err().to_string();
        for part in [
            "ASSAY_DATABASE_URL: must not be set",
            "ASSAY_REDIS_URL_FILE: must not be set",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(
            !message.contains("s3cret") && !message.contains("ASSAY_LOG"),
            "{message}"
        );
    }

    #[test]
    fn secret_is_read_from_file() {
        let file = std::env::temp_dir().join(format!("assay-settings-{}", std::process::id()));
        std::fs::write(&file, "postgres://x\n").unwrap();
        let mut read = reader(&[("ASSAY_DATABASE_URL_FILE", file.to_str().unwrap())]);
        let value: String = read.get(&DATABASE_URL);
        std::fs::remove_file(file).unwrap();
        assert_eq!(value, "postgres://x");
        assert!(read.finish().is_ok());
    }
}
