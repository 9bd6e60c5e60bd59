//! The settings of the API process and of the operator's commands, read from the environment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::auth::SignUp;
use assay_core::model::engine_address::EngineAddress;
use assay_core::model::suite_edits::SuiteReview;
use assay_core::model::terms::CurrentTerms;
use assay_core::model::webhook_secret::WebhookKey;
use assay_core::model::webhook_target::TargetRules;
use assay_core::runtime::settings::{self, BadSettings, Common, Reader, Setting};
use assay_receipts::log::LogKeys;
use ipnet::IpNet;
use lettre::message::Mailbox;
use lettre::{AsyncSmtpTransport, Tokio1Executor};

use crate::http::origin::Origin;
use crate::openid::ProviderSettings;
use crate::receipt_log::publication::LogIdentity;
use crate::receipt_log::signing::ReceiptKeys;

/// The settings of `serve`.
#[derive(Clone)]
pub struct Settings {
    /// The settings that the worker has too.
    pub common: Common,
    /// The address and port for clients.
    pub listen: SocketAddr,
    /// The public URL of the API for links in responses and emails, without a trailing slash.
    pub public_url: String,
    /// The name of the installation, which `GET /health` returns.
    pub env: String,
    /// The longest time that a request waits for a database connection before it is refused.
    pub pool_wait: Duration,
    /// The networks of proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The origins whose pages may call the API from a browser.
    pub cors_origins: Vec<Origin>,
    /// The largest number of connections of one client address.
    pub connections_per_address: u32,
    /// The memory budget of requests and responses in bytes.
    pub request_memory: u64,
    /// The deadline of a call to an engine that a request waits for.
    pub serve_deadline: Duration,
    /// `true` if gRPC reflection is served.
    pub grpc_reflection: bool,
    /// The number of failed authentications per minute after which an address is throttled.
    pub auth_failures_per_minute: u32,
    /// The number of sign-in emails per minute that one address may request.
    pub sign_in_mails_per_minute: u32,
    /// The number of device logins per minute that one address may start.
    pub device_logins_per_minute: u32,
    /// The users that may sign up.
    pub sign_up: SignUp,
    /// The handles that no organization can have, besides those that are built in.
    pub reserved_handles: Arc<[String]>,
    /// The suites of organizations that the operator reviews.
    pub suite_review: SuiteReview,
    /// The OpenID Connect providers with which users can sign in.
    pub sign_in_providers: Vec<ProviderSettings>,
    /// The transport of emails.
    pub mail: MailSettings,
    /// The name server for look-ups; `None` for the system's.
    pub dns_server: Option<SocketAddr>,
    /// The number of days after which the record of a verified domain is looked up again.
    pub domain_check_days: i32,
    /// The terms of service that users must accept, if any.
    pub terms: Option<Arc<CurrentTerms>>,
    /// The number of hours for which a completed upload can be submitted on the plan `free`.
    pub free_upload_hours: u32,
    /// The retention periods of rows.
    pub retention: Retention,
    /// The key of the secrets of webhooks. Without it there are no webhooks.
    pub webhook_key: Option<WebhookKey>,
    /// The rules for the targets of webhooks.
    pub webhook_targets: TargetRules,
    /// `true` if this process delivers webhooks.
    pub delivers_webhooks: bool,
    /// The keys with which this process signs receipts and writes the log, if it does.
    pub signing: Option<OwnSigning>,
}

/// Retention periods in days, after which rows are deleted.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Days from the submission of a succeeded or failed job.
    pub job_days: u32,
    /// Days from the submission of a cancelled job.
    pub cancelled_job_days: u32,
    /// Days from the removal of an upload's objects.
    pub upload_days: u32,
    /// Days from the end of a session.
    pub session_days: u32,
    /// Days from the end of a key, invite or domain claim.
    pub record_days: u32,
}

/// Smallest retention period of jobs. The daily usage covers 92 days and the current one, and is
/// computed from rows that are deleted with the jobs.
const JOB_DAYS_MIN: u32 = 93;

impl Retention {
    fn read(read: &mut Reader) -> Self {
        Self {
            job_days: read.at_least(&settings::JOB_DAYS, JOB_DAYS_MIN),
            cancelled_job_days: read.at_least(&settings::CANCELLED_JOB_DAYS, JOB_DAYS_MIN),
            upload_days: read.positive(&settings::UPLOAD_DAYS),
            session_days: read.positive(&settings::SESSION_DAYS),
            record_days: read.positive(&settings::RECORD_DAYS),
        }
    }
}

/// The settings of emails.
#[derive(Clone)]
pub struct MailSettings {
    /// The URL of the mail server, which contains its password. Without it, emails are written to
    /// the folder.
    pub smtp_url: Option<String>,
    /// The sender of emails.
    pub from: Mailbox,
    /// The folder for emails if there is no mail server.
    pub folder: String,
}

impl Settings {
    /// Reads the settings from the environment. `git_sha` is the commit of the build.
    pub fn from_env(git_sha: &str) -> Result<Self, BadSettings> {
        Self::read(Reader::from_env(), git_sha)
    }

    /// Reads the settings from `read`, and checks that there are no others.
    pub fn read(mut read: Reader, git_sha: &str) -> Result<Self, BadSettings> {
        let listen = read.address(&settings::LISTEN);
        let public_url: String = read.get(&settings::PUBLIC_URL);
        let settings = Self {
            common: Common::read(&mut read, git_sha),
            listen,
            public_url: if public_url.is_empty() {
                format!("http://{listen}")
            } else {
                public_url.trim_end_matches('/').to_owned()
            },
            env: read.get(&settings::ENV),
            pool_wait: Duration::from_millis(u64::from(read.positive(&settings::POOL_WAIT_MS))),
            trusted_proxies: read.list(&settings::TRUSTED_PROXIES),
            cors_origins: read.list(&settings::CORS_ORIGINS),
            connections_per_address: read.positive(&settings::CONNECTIONS_PER_ADDRESS),
            request_memory: u64::from(read.positive(&settings::REQUEST_MEMORY_MIB)) * 1024 * 1024,
            serve_deadline: read.seconds(&settings::SERVE_DEADLINE, 0.1, 60.0),
            grpc_reflection: read.get(&settings::GRPC_REFLECTION),
            auth_failures_per_minute: read.positive(&settings::AUTH_FAILURES_PER_MINUTE),
            sign_in_mails_per_minute: read.positive(&settings::SIGN_IN_MAILS_PER_MINUTE),
            device_logins_per_minute: read.positive(&settings::DEVICE_LOGINS_PER_MINUTE),
            sign_up: sign_up(&mut read),
            sign_in_providers: sign_in_providers(&mut read),
            mail: MailSettings::read(&mut read),
            dns_server: dns_server(&mut read),
            domain_check_days: i32::try_from(read.positive(&settings::DOMAIN_CHECK_DAYS))
                .unwrap_or(i32::MAX),
            reserved_handles: reserved_handles(&mut read),
            suite_review: suite_review(&mut read),
            terms: terms(&mut read),
            free_upload_hours: read.positive(&settings::FREE_UPLOAD_HOURS),
            retention: Retention::read(&mut read),
            webhook_key: webhook_key(&mut read),
            webhook_targets: webhook_targets(&mut read),
            delivers_webhooks: read.get(&settings::WEBHOOK_DELIVERY),
            signing: own_signing(&mut read),
        };
        read.finish()?;
        Ok(settings)
    }
}

/// The settings of `deliver`.
#[derive(Clone)]
pub struct DelivererSettings {
    /// The address of PostgreSQL, with a role in `assay_delivery`.
    pub database_url: String,
    /// The key of the secrets of webhooks.
    pub key: WebhookKey,
    /// The rules for the targets of webhooks.
    pub targets: TargetRules,
    /// The name server for look-ups; `None` for the system's.
    pub dns_server: Option<SocketAddr>,
    /// The private address of `/metrics`, `/livez` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The time in which the process finishes its attempts after a shutdown signal.
    pub drain: Duration,
    /// The log filter, such as `info,sqlx=debug`.
    pub log: String,
    /// The format of the logs: `json` or `text`.
    pub log_format: String,
}

impl DelivererSettings {
    /// Reads the settings from the environment.
    pub fn from_env() -> Result<Self, BadSettings> {
        Self::read(Reader::from_env())
    }

    /// Reads the settings from `read`, and checks that there are no others. The process connects to
    /// addresses that users choose, so it must not have other credentials.
    pub fn read(mut read: Reader) -> Result<Self, BadSettings> {
        read.reject_secrets_except(&[settings::DATABASE_URL, settings::WEBHOOK_KEY]);
        let database_url = read.get(&settings::DATABASE_URL);
        let key = webhook_key(&mut read);
        if key.is_none() {
            read.reject(&settings::WEBHOOK_KEY, "is required: the key of the API");
        }
        let targets = webhook_targets(&mut read);
        let dns_server = dns_server(&mut read);
        let admin_listen = read.address(&settings::ADMIN_LISTEN);
        let drain = Duration::from_secs(u64::from(read.positive(&settings::DRAIN_SECONDS)));
        let log = read.get(&settings::LOG);
        let log_format = read.get(&settings::LOG_FORMAT);
        match key {
            Some(key) => {
                read.finish()?;
                Ok(Self {
                    database_url,
                    key,
                    targets,
                    dns_server,
                    admin_listen,
                    drain,
                    log,
                    log_format,
                })
            }
            None => Err(read.into_errors()),
        }
    }
}

/// The keys of receipts and of their log.
pub struct SigningSettings {
    /// The keys that sign receipts.
    pub receipt_keys: ReceiptKeys,
    /// The key that signs checkpoints, and the name of the log.
    pub identity: LogIdentity,
}

impl SigningSettings {
    fn read(read: &mut Reader) -> Option<Self> {
        let receipt_keys = required(read, &settings::RECEIPT_KEYS)?;
        let log_key = required(read, &settings::LOG_KEY);
        let origin = required(read, &settings::LOG_ORIGIN);
        let (log_key, origin) = log_key.zip(origin)?;
        let receipt_keys = ReceiptKeys::parse(&receipt_keys)
            .map_err(|message| read.reject(&settings::RECEIPT_KEYS, &message))
            .ok();
        let keys = LogKeys::parse(&log_key, &origin)
            .map_err(|message| read.reject(&settings::LOG_KEY, &message))
            .ok();
        let (receipt_keys, keys) = receipt_keys.zip(keys)?;
        Some(Self {
            receipt_keys,
            identity: LogIdentity { origin, keys },
        })
    }
}

/// The database address and the keys with which `serve` signs receipts and writes their log.
#[derive(Clone)]
pub struct OwnSigning {
    /// The address of PostgreSQL, with a role in `assay_log`.
    pub database_url: String,
    /// The keys.
    pub keys: Arc<SigningSettings>,
}

/// Reads the keys of `serve`, which are optional.
fn own_signing(read: &mut Reader) -> Option<OwnSigning> {
    let writes_log: bool = read.get(&settings::RECEIPT_LOG);
    let receipt_keys: String = read.get(&settings::RECEIPT_KEYS);
    if !writes_log || receipt_keys.is_empty() {
        return None;
    }
    let database_url = required(read, &settings::LOG_DATABASE_URL);
    let keys = SigningSettings::read(read);
    let (database_url, keys) = database_url.zip(keys)?;
    Some(OwnSigning {
        database_url,
        keys: keys.into(),
    })
}

fn required(read: &mut Reader, setting: &Setting) -> Option<String> {
    let value = non_empty(read.get(setting));
    if value.is_none() {
        read.reject(setting, "is required to sign receipts");
    }
    value
}

/// The settings of `log`.
pub struct LogSettings {
    /// The address of PostgreSQL, with a role in `assay_log`.
    pub database_url: String,
    /// The artifact store.
    pub artifacts: String,
    /// The keys.
    pub signing: SigningSettings,
    /// The private address of `/metrics`, `/livez` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The time in which the process finishes its checkpoint after a shutdown signal.
    pub drain: Duration,
    /// The log filter, such as `info,sqlx=debug`.
    pub log: String,
    /// The format of the logs: `json` or `text`.
    pub log_format: String,
}

impl LogSettings {
    /// Reads the settings from the environment, and checks that there are no others. The process
    /// holds the signing keys, so it must not have other credentials.
    pub fn from_env() -> Result<Self, BadSettings> {
        let mut read = Reader::from_env();
        read.reject_secrets_except(&[
            settings::DATABASE_URL,
            settings::RECEIPT_KEYS,
            settings::LOG_KEY,
        ]);
        let database_url = read.get(&settings::DATABASE_URL);
        let artifacts = read.get(&settings::ARTIFACTS);
        let signing = SigningSettings::read(&mut read);
        let admin_listen = read.address(&settings::ADMIN_LISTEN);
        let drain = Duration::from_secs(u64::from(read.positive(&settings::DRAIN_SECONDS)));
        let log = read.get(&settings::LOG);
        let log_format = read.get(&settings::LOG_FORMAT);
        match signing {
            Some(signing) => {
                read.finish()?;
                Ok(Self {
                    database_url,
                    artifacts,
                    signing,
                    admin_listen,
                    drain,
                    log,
                    log_format,
                })
            }
            None => Err(read.into_errors()),
        }
    }
}

fn webhook_key(read: &mut Reader) -> Option<WebhookKey> {
    non_empty(read.get(&settings::WEBHOOK_KEY))?
        .parse()
        .map_err(|message: String| read.reject(&settings::WEBHOOK_KEY, &message))
        .ok()
}

fn webhook_targets(read: &mut Reader) -> TargetRules {
    TargetRules {
        allows_http: read.get(&settings::WEBHOOK_HTTP),
        networks: read.list(&settings::WEBHOOK_NETWORKS),
    }
}

impl MailSettings {
    fn read(read: &mut Reader) -> Self {
        let smtp_url = non_empty(read.get(&settings::SMTP_URL));
        let from = non_empty(read.get(&settings::MAIL_FROM));
        match (&smtp_url, &from) {
            (Some(url), _) if AsyncSmtpTransport::<Tokio1Executor>::from_url(url).is_err() => {
                read.reject(
                    &settings::SMTP_URL,
                    "must be an address such as smtps://user:password@host:465",
                );
            }
            (Some(_), None) => read.reject(&settings::MAIL_FROM, "is required with ASSAY_SMTP_URL"),
            _ => {}
        }
        let default = Mailbox {
            name: Some(String::from("Assay")),
            email: lettre::address::Address::new_dangerous("assay", "localhost"),
        };
        let from = from
            .map_or(Ok(default.clone()), |text| text.parse())
            .unwrap_or_else(|_| {
                read.reject(
                    &settings::MAIL_FROM,
                    "must be a sender such as Assay <assay@example.org>",
                );
                default
            });
        Self {
            smtp_url,
            from,
            folder: read.get(&settings::MAIL_FOLDER),
        }
    }
}

fn sign_up(read: &mut Reader) -> SignUp {
    let text: String = read.get(&settings::SIGN_UP);
    text.parse().unwrap_or_else(|_| {
        read.reject(&settings::SIGN_UP, "must be open, invited or domains");
        SignUp::Invited
    })
}

fn suite_review(read: &mut Reader) -> SuiteReview {
    let text: String = read.get(&settings::SUITE_REVIEW);
    text.parse().unwrap_or_else(|_| {
        read.reject(&settings::SUITE_REVIEW, "must be none or listed");
        SuiteReview::Listed
    })
}

fn sign_in_providers(read: &mut Reader) -> Vec<ProviderSettings> {
    let text: String = read.get(&settings::OIDC_ISSUERS);
    ProviderSettings::read(&text).unwrap_or_else(|message| {
        read.reject(&settings::OIDC_ISSUERS, &message);
        Vec::new()
    })
}

fn dns_server(read: &mut Reader) -> Option<SocketAddr> {
    let parsed = non_empty(read.get(&settings::DNS_SERVER))?.parse();
    parsed
        .map_err(|_| {
            read.reject(
                &settings::DNS_SERVER,
                "must be an address and a port, such as 192.0.2.53:53",
            );
        })
        .ok()
}

/// Reads the file with reserved handles, one a line.
fn reserved_handles(read: &mut Reader) -> Arc<[String]> {
    let Some(path) = non_empty(read.get(&settings::RESERVED_HANDLES)) else {
        return Arc::default();
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let lines = text.lines().map(str::trim);
            lines
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect()
        }
        Err(error) => {
            read.reject(
                &settings::RESERVED_HANDLES,
                &format!("cannot be read: {error}"),
            );
            Arc::default()
        }
    }
}

fn terms(read: &mut Reader) -> Option<Arc<CurrentTerms>> {
    match (
        non_empty(read.get(&settings::TERMS_VERSION)),
        non_empty(read.get(&settings::TERMS_URL)),
    ) {
        (Some(version), Some(url)) => Some(Arc::new(CurrentTerms { version, url })),
        (None, None) => None,
        (Some(_), None) => {
            read.reject(&settings::TERMS_URL, "is required with ASSAY_TERMS_VERSION");
            None
        }
        (None, Some(_)) => {
            read.reject(&settings::TERMS_VERSION, "is required with ASSAY_TERMS_URL");
            None
        }
    }
}

/// Returns `None` for an empty value, which means that the setting is not set.
fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Reads the settings of the command that reconciles the artifact store: the URLs of the database
/// and of the store.
pub fn reconciliation() -> Result<(String, String), BadSettings> {
    let mut read = Reader::from_env();
    let url = read.get(&settings::DATABASE_URL);
    let artifacts = read.get(&settings::ARTIFACTS);
    read.finish()?;
    Ok((url, artifacts))
}

/// The settings of `doctor`: those of the process that it examines.
pub struct DoctorSettings {
    /// The address of PostgreSQL.
    pub database_url: String,
    /// The maximum number of connections to PostgreSQL.
    pub database_connections: u32,
    /// The address of Redis, for a process that uses it.
    pub redis_url: Option<String>,
    /// The prefix of every key and channel in Redis.
    pub redis_prefix: String,
    /// The artifact store, for a process that uses it.
    pub artifacts: Option<String>,
    /// The address of PostgreSQL for the receipt log, if it is another one.
    pub log_database_url: Option<String>,
    /// The keys of receipts, if the process has them.
    pub signing: Option<SigningSettings>,
}

impl DoctorSettings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// All settings that are missing or not valid.
    pub fn from_env(uses_redis: bool, uses_artifacts: bool) -> Result<Self, BadSettings> {
        let mut read = Reader::from_env();
        let has_keys = non_empty(read.get(&settings::RECEIPT_KEYS)).is_some();
        let doctor = Self {
            database_url: read.get(&settings::DATABASE_URL),
            database_connections: read.positive(&settings::DATABASE_CONNECTIONS),
            redis_url: uses_redis.then(|| read.get(&settings::REDIS_URL)),
            redis_prefix: read.get(&settings::REDIS_PREFIX),
            artifacts: uses_artifacts.then(|| read.get(&settings::ARTIFACTS)),
            log_database_url: non_empty(read.get(&settings::LOG_DATABASE_URL)),
            signing: has_keys.then(|| SigningSettings::read(&mut read)).flatten(),
        };
        read.finish()?;
        Ok(doctor)
    }
}

/// The settings of the command that publishes the package of a model.
pub struct Publication {
    /// The URL of the database.
    pub database_url: String,
    /// The artifact store.
    pub artifacts: String,
    /// The engines, one of which computes the golden requests.
    pub engines: Vec<EngineAddress>,
}

/// Reads the settings of the command that publishes the package of a model.
pub fn publication() -> Result<Publication, BadSettings> {
    let mut read = Reader::from_env();
    let publication = Publication {
        database_url: read.get(&settings::DATABASE_URL),
        artifacts: read.get(&settings::ARTIFACTS),
        engines: read.engines(),
    };
    read.finish()?;
    Ok(publication)
}

/// Reads the one setting of the operator's other commands, the URL of the database.
pub fn operator() -> Result<String, BadSettings> {
    let mut read = Reader::from_env();
    let url = read.get(&settings::DATABASE_URL);
    read.finish()?;
    Ok(url)
}
