//! The schema's own version.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::PgPool;
use crate::model::error::{BestEffort as _, Error, Result};

static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../migrations");
    // Migrations only add: a build takes a schema that is newer than itself, so that one can go back to it.
    migrations.set_ignore_missing(true);
    migrations
});

/// How long a migration waits for a lock. Everybody else who wants the table waits behind it, and a request no longer than two
/// seconds; so it lets them by and comes again.
const LOCK_TIMEOUT: &str = "1500ms";

/// How long it comes again.
const INDEX_TIMEOUT: Duration = Duration::from_secs(600);

/// Brings the database's schema to this build's version. Safe to run twice and by several at once. Where somebody holds a
/// table for long, it is tried again and again rather than that others wait behind it.
pub async fn migrate(pool: &PgPool) -> Result<u64> {
    let began = Instant::now();
    let options = pool
        .connect_options()
        .as_ref()
        .clone()
        .options([("lock_timeout", LOCK_TIMEOUT)]);
    loop {
        // A connection of its own for each try: with it ends the lock by which those who migrate take turns.
        let mut connection = options.connect().await?;
        let done = MIGRATIONS.run(&mut connection).await;
        connection.close().await.best_effort("ending a connection");
        match done {
            Ok(()) => break,
            Err(error) if waited_in_vain(&error) && began.elapsed() < INDEX_TIMEOUT => {
                tracing::info!("somebody holds what a migration needs; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(Error::internal(error)),
        }
    }
    build_indexes(pool).await?;
    Ok(MIGRATIONS.iter().count() as u64)
}

/// Indexes of tables that are too large to be locked while an index is built, by name. A build without them is slower and not wrong.
const INDEXES: [(&str, &str); 1] = [(
    "jobs_status_idx",
    "create index concurrently if not exists jobs_status_idx on jobs (org_id, status, created_at)",
)];

/// The advisory lock of the process that builds indexes: the letters "index".
const INDEXING: i64 = 0x69_6e_64_65_78;

/// Builds the indexes that are missing. That cannot be done in a migration, which is a transaction.
async fn build_indexes(pool: &PgPool) -> Result<()> {
    let mut db = pool.connect_options().as_ref().clone().connect().await?;
    // It must not wait in a statement: building waits for the end of all statements that began before.
    while !super::try_lock(&mut db, INDEXING).await? {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (name, statement) in INDEXES {
        let is_valid = sqlx::query_scalar!(
            r#"select i.indisvalid from pg_index i where i.indexrelid = to_regclass($1)"#,
            name
        )
        .fetch_optional(&mut db)
        .await?;
        match is_valid {
            Some(true) => continue,
            // Somebody ended the process that built it.
            Some(false) => {
                sqlx::raw_sql(AssertSqlSafe(format!("drop index concurrently {name}")))
                    .execute(&mut db)
                    .await?;
            }
            None => {}
        }
        tracing::info!(name, "building an index");
        sqlx::raw_sql(statement).execute(&mut db).await?;
    }
    super::disconnect(db).await;
    Ok(())
}

fn waited_in_vain(error: &MigrateError) -> bool {
    let (MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)) = error else {
        return false;
    };
    cause
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "55P03" || code == "40P01")
}

/// How many of this build's migrations the database has not seen.
pub async fn pending(pool: &PgPool) -> Result<usize> {
    let there =
        sqlx::query_scalar!("select to_regclass('_sqlx_migrations') is not null as \"there!\"")
            .fetch_one(pool)
            .await?;
    if !there {
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

/// Whether the role that this process connects with could read answers. The api refuses to serve when it can.
pub async fn can_read_answers(pool: &PgPool) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"select has_any_column_privilege('suite_answers', 'select')
                  or has_any_column_privilege('sealed_results', 'select')
                  -- Rights that it could take up by "set role".
                  or pg_has_role('assay_worker', 'member')
                  or pg_has_role((select relowner from pg_class where oid = 'suite_answers'::regclass), 'member') as "may!""#
    )
    .fetch_one(pool)
    .await?;
    Ok(may)
}
