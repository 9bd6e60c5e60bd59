//! `assay-api doctor`: what is in force of that which a process depends on. It reads the settings of
//! that process, changes nothing that stays, and names a remedy for each finding.

use std::fmt;
use std::time::Instant;

use assay_core::Timestamp;
use assay_core::model::random;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::redis_doctor::RedisExamination;
use assay_core::store::doctor::{Examination, Server, WrongSetting};
use assay_core::store::{self, PoolProfile, migrations, presence, receipt_log};
use bytes::Bytes;
use serde::Serialize;

use crate::admin::error::{Result, refused};
use crate::receipt_log::publication::read_checkpoint;
use crate::settings::{DoctorSettings, SigningSettings};

/// The oldest supported version of PostgreSQL.
const POSTGRESQL_MIN: i32 = 15;

/// The largest accepted difference between two clocks, in seconds.
const CLOCK_MAX: f64 = 1.0;

/// The age from which an open transaction is a finding, in seconds: it keeps events and vacuum back.
const TRANSACTION_MAX: f64 = 300.0;

/// The connections of a process in addition to `ASSAY_DATABASE_CONNECTIONS`.
const OTHER_CONNECTIONS: i64 = 6;

/// A process of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Process {
    /// `assay-api serve`
    Api,
    /// `assay-worker run`
    Worker,
    /// `assay-api deliver`
    Deliverer,
    /// `assay-api log`
    Log,
}

impl Process {
    /// Returns the role that the login role of the process must be a member of.
    const fn role(self) -> &'static str {
        match self {
            Self::Api => "assay_api",
            Self::Worker => "assay_worker",
            Self::Deliverer => "assay_delivery",
            Self::Log => "assay_log",
        }
    }

    const fn profile(self) -> PoolProfile {
        match self {
            Self::Worker => PoolProfile::WORK,
            Self::Api | Self::Deliverer | Self::Log => PoolProfile::REQUESTS,
        }
    }

    const fn uses_redis(self) -> bool {
        matches!(self, Self::Api | Self::Worker)
    }

    const fn uses_artifacts(self) -> bool {
        !matches!(self, Self::Deliverer)
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok,
    /// The installation works, but less well or less safely.
    Warn,
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// One check, and what to do about its finding.
#[derive(Debug, Serialize)]
struct Check {
    area: &'static str,
    check: &'static str,
    outcome: Outcome,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// The checks of one area.
struct Area<'a> {
    name: &'static str,
    checks: &'a mut Vec<Check>,
}

impl Area<'_> {
    fn add(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        problem: Option<(Outcome, String)>,
    ) {
        let (outcome, remedy) = problem.unzip();
        self.checks.push(Check {
            area: self.name,
            check,
            outcome: outcome.unwrap_or(Outcome::Ok),
            found: found.into(),
            remedy,
        });
    }

    /// Adds a check that fails unless `is_good`.
    fn require(
        &mut self,
        check: &'static str,
        is_good: bool,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = (!is_good).then(|| (Outcome::Fail, remedy.into()));
        self.add(check, found, problem);
    }

    /// Adds a check that warns unless `is_good`.
    fn advise(
        &mut self,
        check: &'static str,
        is_good: bool,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let problem = (!is_good).then(|| (Outcome::Warn, remedy.into()));
        self.add(check, found, problem);
    }
}

/// Checks everything that a process depends on, and prints one line per check.
///
/// # Errors
/// If the settings are not valid, or a check fails.
pub async fn run(process: Process, as_json: bool) -> Result<()> {
    let settings = DoctorSettings::from_env(process.uses_redis(), process.uses_artifacts())?;
    let mut checks = Vec::new();
    let has_database = check_database(process, &settings, &mut checks).await;
    if let Some(url) = &settings.redis_url {
        check_redis(url, &settings.redis_prefix, &mut checks).await;
    }
    if let Some(location) = &settings.artifacts {
        check_artifacts(location, &mut checks).await;
        if let (Some(signing), true) = (&settings.signing, has_database) {
            check_receipts(&settings, location, signing, &mut checks).await;
        }
    }
    print(&checks, as_json)?;
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Fail)
        .count();
    match failed {
        0 => Ok(()),
        1 => Err(refused("1 check failed")),
        n => Err(refused(format!("{n} checks failed"))),
    }
}

fn print(checks: &[Check], as_json: bool) -> Result<()> {
    if as_json {
        let text = serde_json::to_string_pretty(checks).map_err(assay_core::Error::internal)?;
        println!("{text}");
        return Ok(());
    }
    for Check {
        area,
        check,
        outcome,
        found,
        remedy,
    } in checks
    {
        println!("{outcome:<4}  {area:<10}  {check:<22}  {found}");
        if let Some(remedy) = remedy {
            println!("      {:<10}  {:<22}  → {remedy}", "", "");
        }
    }
    Ok(())
}

/// Checks PostgreSQL. Returns `true` if a process can use it: the checks that follow need that.
async fn check_database(
    process: Process,
    settings: &DoctorSettings,
    checks: &mut Vec<Check>,
) -> bool {
    let mut area = Area {
        name: "postgresql",
        checks,
    };
    let url = &settings.database_url;
    let mut db = match Examination::connect(url, process.profile()).await {
        Ok(db) => db,
        Err(error) => {
            let remedy = "check the host, the password and pg_hba.conf of ASSAY_DATABASE_URL";
            area.require("connection", false, error.cause_or_message(), remedy);
            return false;
        }
    };
    match db.server().await {
        Ok(server) => {
            check_server(process, settings, &server, &mut area);
            if server.is_read_only {
                return false;
            }
        }
        Err(error) => area.require(
            "state",
            false,
            error.cause_or_message(),
            "let the role read pg_settings, pg_stat_activity and pg_index, as every role may by default",
        ),
    }
    let is_usable = check_session(&mut db, &mut area).await;
    db.close().await;
    if is_usable {
        check_schema(process, settings, &mut area).await;
    }
    is_usable
}

fn check_server(process: Process, settings: &DoctorSettings, server: &Server, area: &mut Area<'_>) {
    area.require(
        "version",
        server.version / 10_000 >= POSTGRESQL_MIN,
        &server.version_text,
        format!("upgrade to PostgreSQL {POSTGRESQL_MIN} or later"),
    );
    let found = if server.is_read_only {
        "only reads"
    } else {
        "accepts writes"
    };
    area.require(
        "primary",
        !server.is_read_only,
        found,
        "name the primary in ASSAY_DATABASE_URL, or all servers separated by commas; unset default_transaction_read_only",
    );
    area.require(
        "role",
        !server.is_privileged,
        &server.role,
        format!(
            "alter role {} nosuperuser nocreaterole nocreatedb nobypassrls noreplication, or connect with another login role",
            server.role
        ),
    );
    area.require(
        "rights",
        server.assay_roles == [process.role()],
        match server.assay_roles.is_empty() {
            true => String::from("member of no role of Assay"),
            false => format!("member of {}", server.assay_roles.join(", ")),
        },
        format!(
            "grant {} to {}, and no other role of Assay",
            process.role(),
            server.role
        ),
    );
    area.require(
        "durability",
        server.unsafe_settings.is_empty(),
        match server.unsafe_settings.is_empty() {
            true => String::from("fsync, full_page_writes and synchronous_commit"),
            false => server.unsafe_settings.join(", "),
        },
        "set it to on: a crash of the server would lose jobs that were acknowledged",
    );
    area.require(
        "autovacuum",
        server.has_autovacuum,
        if server.has_autovacuum { "on" } else { "off" },
        "set autovacuum and track_counts to on: tables grow without bound",
    );
    let free = i64::from(server.connections_max) - server.connections;
    let per_process = i64::from(settings.database_connections) + OTHER_CONNECTIONS;
    area.require(
        "max_connections",
        free >= per_process,
        format!("{} of {} are free", free.max(0), server.connections_max),
        format!(
            "raise max_connections, or lower ASSAY_DATABASE_CONNECTIONS: a further process, as a rolling update starts it, opens up \
             to {per_process}"
        ),
    );
    area.require(
        "encoding",
        server.encoding == "UTF8",
        &server.encoding,
        "create the database again with encoding 'UTF8'",
    );
    area.require(
        "collation",
        server.collation_is_current,
        if server.collation_is_current { "as the indexes were built" } else { "newer than the indexes" },
        "reindex database, then alter database … refresh collation version: indexes on text may miss rows",
    );
    area.require(
        "indexes",
        server.invalid_indexes.is_empty(),
        match server.invalid_indexes.is_empty() {
            true => String::from("all valid"),
            false => format!("not valid: {}", server.invalid_indexes.join(", ")),
        },
        "reindex index concurrently each of them",
    );
    area.advise(
        "oldest transaction",
        server.oldest_transaction_seconds < TRANSACTION_MAX,
        format!("{:.0} s", server.oldest_transaction_seconds),
        "end it: select pid, query from pg_stat_activity order by xact_start; it holds back events and vacuum",
    );
    check_clock(area, server.now.unix_micros() as f64 / 1e6 - now());
}

/// Returns the time of this process in seconds since 1970.
fn now() -> f64 {
    Timestamp::now().unix_micros() as f64 / 1e6
}

fn check_clock(area: &mut Area<'_>, ahead: f64) {
    area.require(
        "clock",
        ahead.abs() <= CLOCK_MAX,
        format!("{ahead:+.3} s against this process"),
        "synchronize the clocks of all machines with NTP",
    );
}

/// Checks what a connection must keep. Returns `true` if its settings are in force.
async fn check_session(db: &mut Examination, area: &mut Area<'_>) -> bool {
    let mut is_usable = false;
    match db.wrong_settings().await {
        Ok(wrong) => {
            is_usable = wrong.is_empty();
            let found: Vec<_> = wrong.iter().map(WrongSetting::to_string).collect();
            area.require(
                "settings",
                wrong.is_empty(),
                if wrong.is_empty() { "in force".into() } else { found.join(", ") },
                "let the pooler pass the startup parameter `options` on, or connect to PostgreSQL itself",
            );
        }
        Err(error) => area.require("settings", false, error.cause_or_message(), "see the error"),
    }
    let stay = db.sessions_stay().await.unwrap_or(false);
    area.require(
        "sessions",
        stay,
        if stay { "stay" } else { "change their server process" },
        "ASSAY_DATABASE_URL leads to a pooler in transaction mode: use session mode, or connect to PostgreSQL itself",
    );
    let arrive = db.notifications_arrive().await.unwrap_or(false);
    area.require(
        "listener",
        arrive,
        if arrive {
            "notifications arrive"
        } else {
            "no notification arrived within 5 s"
        },
        "use session mode in the pooler: `listen` needs a session",
    );
    is_usable
}

/// Checks the migrations, and that the role has no right that the process must not have.
async fn check_schema(process: Process, settings: &DoctorSettings, area: &mut Area<'_>) {
    let profile = process.profile();
    let Ok(pool) = store::pool(&settings.database_url, 2, "assay-doctor", profile) else {
        return;
    };
    match migrations::pending(&pool).await {
        Ok(pending) => area.require(
            "migrations",
            pending == 0,
            format!("{pending} not applied"),
            "run assay-api migrate with the owner of the schema",
        ),
        Err(error) => {
            let remedy = "run assay-api migrate with the owner of the schema, and see the error";
            return area.require("migrations", false, error.cause_or_message(), remedy);
        }
    }
    let too_much = match process {
        Process::Api => migrations::can_read_answers(&pool).await,
        Process::Worker => Ok(false),
        Process::Deliverer => migrations::can_read_more_than_deliveries(&pool).await,
        Process::Log => migrations::can_do_more_than_log(&pool).await,
    };
    let (is_good, found) = match too_much {
        Ok(false) => (true, "no more than needed".into()),
        Ok(true) => (
            false,
            "more than the process may have, such as gold answers".into(),
        ),
        Err(error) => (false, error.cause_or_message()),
    };
    area.require(
        "least rights",
        is_good,
        found,
        format!(
            "revoke every grant and every membership but that in {}",
            process.role()
        ),
    );
    if let (Process::Api, Ok(n)) = (process, presence::count(&pool).await) {
        area.add("API processes", format!("{n} run"), None);
    }
    pool.close().await;
}

async fn check_redis(url: &str, prefix: &str, checks: &mut Vec<Check>) {
    let mut area = Area {
        name: "redis",
        checks,
    };
    let mut redis = match RedisExamination::connect(url, prefix).await {
        Ok(redis) => redis,
        Err(error) => {
            let remedy = "check the host, the password and TLS of ASSAY_REDIS_URL";
            return area.require("connection", false, error.cause_or_message(), remedy);
        }
    };
    match redis.server().await {
        Ok(server) => {
            area.add("version", &server.version, None);
            area.require(
                "role",
                server.role == "master",
                &server.role,
                "ASSAY_REDIS_URL must lead to the primary: a replica refuses writes, and jobs then wait for polling",
            );
            area.require(
                "mode",
                server.mode != "cluster",
                &server.mode,
                "use a Redis without cluster mode: keys of one queue must be on one server",
            );
            area.require(
                "maxmemory-policy",
                server.maxmemory_policy == "noeviction",
                &server.maxmemory_policy,
                "config set maxmemory-policy noeviction: Redis would drop notifications and counters",
            );
            let milliseconds = server.round_trip.as_secs_f64() * 1e3;
            area.advise(
                "round trip",
                milliseconds < 5.0,
                format!("{milliseconds:.2} ms"),
                "place Redis near the API processes: each request waits for one round trip",
            );
            check_clock(&mut area, server.clock_ahead_seconds);
        }
        Err(error) => area.require(
            "state",
            false,
            error.cause_or_message(),
            "let the user run INFO and TIME",
        ),
    }
    let (found, refused) = match redis.refused_keys().await {
        Ok(refused) if refused.is_empty() => (format!("{prefix}.* can be written"), false),
        Ok(refused) => {
            let refused: Vec<_> = refused
                .iter()
                .map(|(form, why)| format!("{form}: {why}"))
                .collect();
            (refused.join("; "), true)
        }
        Err(error) => (error.cause_or_message(), true),
    };
    area.require(
        "writes",
        !refused,
        found,
        format!("let the user write: acl setuser … ~{prefix}* &{prefix}* +@all, and the server accept writes"),
    );
    let arrive = redis.messages_arrive().await.unwrap_or(false);
    area.require(
        "messages",
        arrive,
        if arrive {
            "arrive"
        } else {
            "no message arrived within 2 s"
        },
        format!("let the user publish and subscribe: acl setuser … &{prefix}*"),
    );
}

async fn check_artifacts(location: &str, checks: &mut Vec<Check>) {
    let mut area = Area {
        name: "artifacts",
        checks,
    };
    let start = Instant::now();
    let (found, is_good) = match use_artifacts(location).await {
        Ok(()) => (
            format!(
                "written, read, listed and deleted in {:.0} ms",
                start.elapsed().as_secs_f64() * 1e3
            ),
            true,
        ),
        Err(message) => (message, false),
    };
    area.require(
        "store",
        is_good,
        found,
        "the folder of ASSAY_ARTIFACTS must exist and be writable; for a bucket, check AWS_… and the rights to get, put, list and \
         delete objects",
    );
}

/// Writes an object, reads it and a part of it, lists it, and deletes it.
async fn use_artifacts(location: &str) -> std::result::Result<(), String> {
    let failed = |what: &'static str| {
        move |error: assay_core::Error| format!("{what}: {}", error.cause_or_message())
    };
    let artifacts = Artifacts::at(location).map_err(failed("opening"))?;
    let suffix = random::base62(16).map_err(|error| error.to_string())?;
    let folder = format!("doctor/{suffix}");
    let key = format!("{folder}/object");
    let bytes = Bytes::from(vec![7; 1000]);
    artifacts
        .put(&key, bytes.clone())
        .await
        .map_err(failed("writing"))?;
    let read = artifacts.get(&key).await.map_err(failed("reading"))?;
    let part = artifacts
        .get_range(&key, 10..20)
        .await
        .map_err(failed("reading a part"))?;
    let listed = artifacts
        .list_under(&folder)
        .await
        .map_err(failed("listing"))?;
    artifacts.delete(&key).await.map_err(failed("deleting"))?;
    artifacts
        .delete_under(&folder)
        .await
        .map_err(failed("deleting"))?;
    let left = artifacts.get(&key).await.map_err(failed("reading"))?;
    let is_right = read == Some(bytes)
        && part.is_some_and(|part| part.len() == 10)
        && listed.len() == 1
        && left.is_none();
    is_right.then_some(()).ok_or_else(|| {
        "the store does not return what was written, or keeps what was deleted".into()
    })
}

/// Checks the receipt log: its role, and that the database continues the published checkpoint.
async fn check_receipts(
    settings: &DoctorSettings,
    location: &str,
    signing: &SigningSettings,
    checks: &mut Vec<Check>,
) {
    let mut area = Area {
        name: "receipts",
        checks,
    };
    let url = settings
        .log_database_url
        .as_ref()
        .unwrap_or(&settings.database_url);
    let compare = async {
        let pool = store::pool(url, 1, "assay-doctor", PoolProfile::REQUESTS)?;
        if migrations::can_do_more_than_log(&pool).await? {
            return Ok(Err("its role may do more than write the log".to_owned()));
        }
        let state = receipt_log::state(&pool).await?;
        pool.close().await;
        let artifacts = Artifacts::at(location)?;
        let published = match read_checkpoint(&artifacts, &signing.identity).await? {
            Ok(checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.tree.size()),
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        let entries = u64::try_from(state.entries).unwrap_or_default();
        Ok::<_, assay_core::Error>(if entries < published {
            Err(format!(
                "the database has {entries} entries, the published checkpoint {published}"
            ))
        } else {
            Ok(format!("{published} of {entries} entries are published"))
        })
    };
    let (found, is_good) = match compare.await {
        Ok(Ok(found)) => (found, true),
        Ok(Err(problem)) => (problem, false),
        Err(error) => (error.cause_or_message(), false),
    };
    area.require(
        "log",
        is_good,
        found,
        "after a restore, run assay-api log recover; a login role in assay_log alone belongs in ASSAY_LOG_DATABASE_URL",
    );
}
