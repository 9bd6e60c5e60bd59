//! The schema's own version.

use sqlx::migrate::Migrator;

use super::PgPool;
use crate::{Error, Result};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// Brings the database's schema to this build's version. Safe to run twice and by several at once.
pub async fn migrate(pool: &PgPool) -> Result<u64> {
    MIGRATIONS.run(pool).await.map_err(Error::internal)?;
    Ok(MIGRATIONS.iter().count() as u64)
}

/// How many of this build's migrations the database has not seen.
pub async fn pending(pool: &PgPool) -> Result<usize> {
    let there = sqlx::query_scalar!("select to_regclass('_sqlx_migrations') is not null as \"there!\"").fetch_one(pool).await?;
    if !there {
        return Ok(MIGRATIONS.iter().count());
    }
    let applied = sqlx::query_scalar!("select version from _sqlx_migrations where success").fetch_all(pool).await?;
    Ok(MIGRATIONS.iter().filter(|migration| !applied.contains(&migration.version)).count())
}

/// Whether the role that this process connects with could read answers. The api refuses to serve when it can.
pub async fn can_read_answers(pool: &PgPool) -> Result<bool> {
    let may = sqlx::query_scalar!(
        r#"select has_table_privilege('suite_answers', 'select')
                  -- Rights that it could take up by "set role".
                  or pg_has_role('assay_worker', 'member')
                  or pg_has_role((select relowner from pg_class where oid = 'suite_answers'::regclass), 'member') as "may!""#
    )
    .fetch_one(pool)
    .await?;
    Ok(may)
}
