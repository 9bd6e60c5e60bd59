//! Schema migrations, and checks on the schema's state.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::model::error::{BestEffort as _, Code, Error, Result};
use crate::store::db::try_lock;
use crate::store::{PgPool, disconnect, event};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../migrations");
    // Migrations only add. An older build accepts a newer schema, so that a release can be rolled
    // back.
    migrations.set_ignore_missing(true);
    migrations
});

/// The time that a migration waits for a lock. Other statements on the table queue behind it, and a
/// request waits for a lock for at most 2 s. The migration therefore lets them pass and retries.
const LOCK_TIMEOUT: &str = "1500ms";

/// The time for which a migration that is blocked by a lock is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(600);

/// The baseline's last migration, the first release's schema. Until that release, a change
/// edits the baseline in place, so databases from before the change do not match it.
const LAST_OF_BASELINE: i64 = 10;

/// Migrates the schema to this build's version, and returns this build's migration count.
/// Safe to run repeatedly and concurrently.
///
/// # Errors
/// If the database was created before the first release. Nothing is changed then.
pub async fn migrate(pool: &PgPool) -> Result<u64> {
    apply(pool, &MIGRATIONS).await?;
    build_indexes(pool, &INDEXES).await?;
    event::adopt_restored(&mut *pool.acquire().await?).await?;
    Ok(MIGRATIONS.iter().count() as u64)
}

/// Applies the missing migrations. A migration that is blocked by a lock is retried, so that other
/// statements do not queue behind it.
pub async fn apply(pool: &PgPool, migrations: &Migrator) -> Result<()> {
    let started_at = Instant::now();
    let options = pool
        .connect_options()
        .as_ref()
        .clone()
        .options([("lock_timeout", LOCK_TIMEOUT)]);
    loop {
        // A new connection for each attempt: closing it releases the lock that serializes
        // concurrent migrations.
        let mut connection = options.connect().await?;
        let done = migrations.run(&mut connection).await;
        connection.close().await.best_effort("closing a connection");
        match done {
            Ok(()) => return Ok(()),
            Err(error) if is_lock_conflict(&error) && started_at.elapsed() < RETRY_TIMEOUT => {
                tracing::info!("migration blocked by a lock, retrying");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(MigrateError::VersionMismatch(..=LAST_OF_BASELINE)) => {
                let message =
                    "This database was created before the first release. Create a new one.";
                return Err(Error::new(Code::InvalidState, message));
            }
            Err(error) => return Err(Error::internal(error)),
        }
    }
}

/// An index that is built concurrently: its name, and the statement that builds it.
pub type Index = (&'static str, &'static str);

/// Indexes on tables that are too large to be locked while an index is built. Without them, queries
/// are slower but correct. The baseline's indexes are in its migrations.
const INDEXES: [Index; 0] = [];

/// The advisory lock for the process that builds indexes: the letters "index".
const INDEXING: i64 = 0x69_6e_64_65_78;

/// Builds the missing indexes. A migration cannot do that, because it is a transaction. Safe to run
/// repeatedly and concurrently.
pub async fn build_indexes(pool: &PgPool, indexes: &[Index]) -> Result<()> {
    let mut db = pool.connect_options().as_ref().clone().connect().await?;
    // Polls instead of waiting in a statement, because building an index waits until all earlier
    // statements end.
    while !try_lock(&mut db, INDEXING).await? {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for &(name, statement) in indexes {
        let is_valid = sqlx::query_scalar!(
            r#"
            select i.indisvalid
            from pg_index i
            where i.indexrelid = to_regclass($1)
            "#,
            name
        )
        .fetch_optional(&mut db)
        .await?;
        match is_valid {
            Some(true) => continue,
            // The process that built it was interrupted.
            Some(false) => {
                sqlx::raw_sql(AssertSqlSafe(format!("drop index concurrently {name}")))
                    .execute(&mut db)
                    .await?;
            }
            None => {}
        }
        tracing::info!(name, "building index");
        sqlx::raw_sql(statement).execute(&mut db).await?;
    }
    disconnect(db).await;
    Ok(())
}

fn is_lock_conflict(error: &MigrateError) -> bool {
    let (MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = error else {
        return false;
    };
    cause
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Returns how many migrations in this build the database has not applied.
pub async fn pending(pool: &PgPool) -> Result<usize> {
    let exists =
        sqlx::query_scalar!(r#"select to_regclass('_sqlx_migrations') is not null as "exists!""#)
            .fetch_one(pool)
            .await?;
    if !exists {
        return Ok(MIGRATIONS.iter().count());
    }
    let applied = sqlx::query_scalar!("select version from _sqlx_migrations where success")
        .fetch_all(pool)
        .await?;
    Ok(MIGRATIONS
        .iter()
        .filter(|migration| !applied.contains(&migration.version))
        .count())
}

/// The tables with answers, with what is computed from them before it is disclosed, and with files that have answers. The role of the API
/// must have no right to read them, nor to learn about their rows by a foreign key or a trigger.
const SECRET_TABLES: [&str; 10] = [
    "escrow_chunks",
    "sealed_results",
    "suite_answers",
    "suite_baseline_scores",
    "suite_catalog",
    "suite_floors",
    "suite_hidden_groups",
    "suite_openings",
    "suite_retest",
    "board_pairs",
];

/// Returns `true` if this process's role could read gold answers. The API refuses to start
/// with such a role.
pub async fn can_read_answers(pool: &PgPool) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"
        select
            exists(
                select from unnest($1::text[]) t(name)
                where has_any_column_privilege(t.name, 'select, references')
                   or has_table_privilege(t.name, 'trigger')
            )
            -- Rights that the role could acquire by "set role".
            or pg_has_role('assay_worker', 'member')
            or pg_has_role('assay_checker', 'member')
            or pg_has_role(
                (select relowner from pg_class where oid = 'suite_answers'::regclass),
                'member'
            ) as "may!"
        "#,
        &SECRET_TABLES.map(String::from)
    )
    .fetch_one(pool)
    .await?;
    Ok(may)
}

/// Returns `true` if this process's role could read or change a table other than the delivery
/// tables. The deliverer refuses to start with such a role.
pub async fn can_read_more_than_deliveries(pool: &PgPool) -> Result<bool> {
    let tables = [
        "webhooks",
        "webhook_payloads",
        "webhook_deliveries",
        "webhooks_with_pending_deliveries",
    ];
    can_use_more_than(pool, "assay_delivery", &tables).await
}

/// Returns `true` if this process's role could read or change a table other than the receipt
/// log's. The log's process refuses to start with such a role.
pub async fn can_do_more_than_log(pool: &PgPool) -> Result<bool> {
    let tables = [
        "receipts",
        "suite_commitments",
        "receipt_keys",
        "log_entries",
        "log_checkpoints",
    ];
    can_use_more_than(pool, "assay_log", &tables).await
}

/// Returns `true` if this process's role could read or change a table other than those of drafts and of what they become. The checker refuses
/// to start with such a role.
pub async fn can_do_more_than_check(pool: &PgPool) -> Result<bool> {
    let tables = [
        "boards",
        "domain_claims",
        "draft_parts",
        "drafts",
        "escrow_chunks",
        "events",
        "opened_answers",
        "opened_retest",
        "orgs",
        "plan_limits",
        "shared_events",
        "suite_answers",
        "suite_baseline_scores",
        "suite_baselines",
        "suite_catalog",
        "suite_clusters",
        "suite_commitments",
        "suite_contents",
        "suite_floors",
        "suite_grants",
        "suite_hidden_groups",
        "suite_items",
        "suite_openings",
        "suite_owners",
        "suite_retest",
        "suite_retirements",
        "suites",
    ];
    can_use_more_than(pool, "assay_checker", &tables).await
}

/// Returns `true` if this process's role has more rights than a role, or any right on a table
/// other than these.
async fn can_use_more_than(pool: &PgPool, role: &str, tables: &[&str]) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"
        select
            -- Rights that the role could acquire by "set role".
            exists(
                select from pg_roles
                where rolname not in (current_user, $1)
                  and pg_has_role(oid, 'member')
            )
            or exists(
                select from pg_class
                where relnamespace in (
                    select oid from pg_namespace
                    where nspname <> 'information_schema'
                      and not starts_with(nspname, 'pg_')
                )
                  and relkind in ('r', 'v', 'm', 'p', 'f')
                  and relname <> '_sqlx_migrations'
                  and relname <> all($2::text[])
                  -- Extensions grant the rights on their own tables to everybody.
                  and not exists (
                      select from pg_depend
                      where classid = 'pg_class'::regclass
                        and objid = pg_class.oid
                        and deptype = 'e'
                  )
                  and (
                      has_any_column_privilege(oid, 'select, insert, update')
                      or has_table_privilege(oid, 'delete, truncate')
                  )
            ) as "may!"
        "#,
        role,
        tables as &[&str]
    )
    .fetch_one(pool)
    .await?;
    Ok(may)
}
