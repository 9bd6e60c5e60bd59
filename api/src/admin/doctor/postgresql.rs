//! The PostgreSQL checks.

use assay_core::Timestamp;
use assay_core::store::doctor::{Examination, Server, WrongSetting};
use assay_core::store::{self, migrations, presence};

use super::checks::{Area, Check, check_clock};
use super::process::Process;
use crate::settings::DoctorSettings;

/// The oldest supported version of PostgreSQL.
const POSTGRESQL_MIN: i32 = 15;

/// The age from which an open transaction is a finding, in seconds: it keeps events and vacuum back.
const TRANSACTION_MAX: f64 = 300.0;

/// The connections of a process in addition to `ASSAY_DATABASE_CONNECTIONS`.
const OTHER_CONNECTIONS: i64 = 6;

/// Checks PostgreSQL. Returns `true` if a process can use it: the checks that follow need that.
pub(super) async fn check_database(
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
