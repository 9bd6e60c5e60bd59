//! What the api is told at its start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::auth::SignUp;
use assay_core::model::terms::CurrentTerms;
use assay_core::runtime::settings::{self, BadSettings, Common, Reader};
use ipnet::IpNet;
use lettre::message::Mailbox;
use lettre::{AsyncSmtpTransport, Tokio1Executor};

use crate::http::origin::Origin;

/// The settings of `serve`.
#[derive(Clone)]
pub struct Settings {
    /// What the worker is told too.
    pub common: Common,
    /// Where callers are served.
    pub listen: SocketAddr,
    /// Without a slash at its end.
    pub public_url: String,
    /// Name of the installation.
    pub env: String,
    /// How long a request waits for a connection to the database before it is refused.
    pub pool_wait: Duration,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whose pages may call from a browser.
    pub cors_origins: Vec<Origin>,
    /// The number of connections that one client address may have.
    pub connections_per_address: u32,
    /// The bytes that requests and responses may hold in memory.
    pub request_memory: u64,
    /// Whether gRPC reflection is served.
    pub grpc_reflection: bool,
    /// Failed authentications from one address before it is throttled.
    pub auth_failures_per_minute: u32,
    /// Mails to sign in with that may be asked for from one address.
    pub sign_in_mails_per_minute: u32,
    /// Who may sign up.
    pub sign_up: SignUp,
    /// How mails go out.
    pub mail: MailSettings,
    /// The name server that is asked; nothing: the system's.
    pub dns_server: Option<SocketAddr>,
    /// After how many days the record of a verified domain is looked up again.
    pub domain_check_days: i32,
    /// The terms that hold now, if there are any.
    pub terms: Option<Arc<CurrentTerms>>,
    /// How many hours a completed upload can be submitted on the plan `free`.
    pub free_upload_hours: u32,
    /// How long rows are stored.
    pub retention: Retention,
}

/// How many days rows are stored whose time is over.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Finished jobs, after their submission.
    pub job_days: u32,
    /// Cancelled jobs, after their submission.
    pub cancelled_job_days: u32,
    /// Uploads, after their objects were removed.
    pub upload_days: u32,
    /// Sessions, after their end.
    pub session_days: u32,
    /// Revoked keys, ended invites and expired domain claims.
    pub record_days: u32,
}

/// The usage by day is shown for 92 days, and the current day. The rows that it is computed from are stored with the jobs.
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

/// See [`Settings`].
#[derive(Clone)]
pub struct MailSettings {
    /// The mail server; it holds a password. Nothing: mails are written to the folder.
    pub smtp_url: Option<String>,
    /// Whom mails are from.
    pub from: Mailbox,
    /// Where mails are written without a mail server.
    pub folder: String,
}

impl Settings {
    /// Reads this process's environment. `git_sha` is the build's own.
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
            grpc_reflection: read.get(&settings::GRPC_REFLECTION),
            auth_failures_per_minute: read.positive(&settings::AUTH_FAILURES_PER_MINUTE),
            sign_in_mails_per_minute: read.positive(&settings::SIGN_IN_MAILS_PER_MINUTE),
            sign_up: sign_up(&mut read),
            mail: MailSettings::read(&mut read),
            dns_server: dns_server(&mut read),
            domain_check_days: i32::try_from(read.positive(&settings::DOMAIN_CHECK_DAYS))
                .unwrap_or(i32::MAX),
            terms: terms(&mut read),
            free_upload_hours: read.positive(&settings::FREE_UPLOAD_HOURS),
            retention: Retention::read(&mut read),
        };
        read.finish()?;
        Ok(settings)
    }
}

impl MailSettings {
    fn read(read: &mut Reader) -> Self {
        let smtp_url = some(read.get(&settings::SMTP_URL));
        let from = some(read.get(&settings::MAIL_FROM));
        match (&smtp_url, &from) {
            (Some(url), _) if AsyncSmtpTransport::<Tokio1Executor>::from_url(url).is_err() => {
                read.refuse(
                    &settings::SMTP_URL,
                    "must be an address such as smtps://user:password@host:465",
                );
            }
            (Some(_), None) => read.refuse(&settings::MAIL_FROM, "is required with ASSAY_SMTP_URL"),
            _ => {}
        }
        let ours = Mailbox {
            name: Some(String::from("Assay")),
            email: lettre::address::Address::new_dangerous("assay", "localhost"),
        };
        let from = from
            .map_or(Ok(ours.clone()), |text| text.parse())
            .unwrap_or_else(|_| {
                read.refuse(
                    &settings::MAIL_FROM,
                    "must be a sender such as Assay <assay@example.org>",
                );
                ours
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
        read.refuse(&settings::SIGN_UP, "must be open, invited or domains");
        SignUp::Invited
    })
}

fn dns_server(read: &mut Reader) -> Option<SocketAddr> {
    let parsed = some(read.get(&settings::DNS_SERVER))?.parse();
    parsed
        .map_err(|_| {
            read.refuse(
                &settings::DNS_SERVER,
                "must be an address and a port, such as 192.0.2.53:53",
            );
        })
        .ok()
}

fn terms(read: &mut Reader) -> Option<Arc<CurrentTerms>> {
    match (
        some(read.get(&settings::TERMS_VERSION)),
        some(read.get(&settings::TERMS_URL)),
    ) {
        (Some(version), Some(url)) => Some(Arc::new(CurrentTerms { version, url })),
        (None, None) => None,
        (Some(_), None) => {
            read.refuse(&settings::TERMS_URL, "is required with ASSAY_TERMS_VERSION");
            None
        }
        (None, Some(_)) => {
            read.refuse(&settings::TERMS_VERSION, "is required with ASSAY_TERMS_URL");
            None
        }
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// What the operator's command that reconciles the artifact store needs: the address of the database, and the store.
pub fn reconciliation() -> Result<(String, String), BadSettings> {
    let mut read = Reader::from_env();
    let (url, artifacts) = (
        read.get(&settings::DATABASE_URL),
        read.get(&settings::ARTIFACTS),
    );
    read.finish()?;
    Ok((url, artifacts))
}

/// The one setting that the operator's other commands need.
pub fn operator() -> Result<String, BadSettings> {
    let mut read = Reader::from_env();
    let url = read.get(&settings::DATABASE_URL);
    read.finish()?;
    Ok(url)
}
