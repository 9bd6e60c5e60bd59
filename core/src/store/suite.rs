//! What everyone may read of suites.

use serde_json::value::RawValue;
use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::Result;
use crate::suite::{SuiteId, SuiteItem};

/// A suite's row in one version.
#[derive(Debug, Clone)]
pub struct SuiteRow {
    /// The suite.
    pub suite_id: SuiteId,
    /// The version.
    pub version: String,
    /// Its metric.
    pub metric: String,
    /// Number of items.
    pub n_items: i32,
    /// Whether scores of single items may be read.
    pub per_item_feedback: bool,
    /// For people.
    pub description: String,
    /// How scores are released.
    pub release: String,
    /// How many submissions an organization may make a day, if that is bounded.
    pub max_submissions_per_day: Option<i32>,
}

/// The current version of each suite, by id.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<SuiteRow>> {
    let rows = sqlx::query_as!(
        SuiteRow,
        r#"select distinct on (suite_id) suite_id as "suite_id: SuiteId", version, metric, n_items, per_item_feedback, description,
                  release, max_submissions_per_day
           from suites order by suite_id, published_at desc"#
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}

/// A suite in the given version, or in its current one.
pub async fn find(db: impl PgExecutor<'_>, suite_id: &SuiteId, version: Option<&str>) -> Result<Option<SuiteRow>> {
    let row = sqlx::query_as!(
        SuiteRow,
        r#"select suite_id as "suite_id: SuiteId", version, metric, n_items, per_item_feedback, description, release, max_submissions_per_day
           from suites where suite_id = $1 and ($2::text is null or version = $2)
           order by published_at desc limit 1"#,
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// At most `limit` items of a version from the given ordinal on.
pub async fn items(db: impl PgExecutor<'_>, suite_id: &SuiteId, version: &str, from: i32, limit: u32) -> Result<Vec<SuiteItem>> {
    let rows = sqlx::query!(
        r#"select item_id, input as "input: Json<Box<RawValue>>" from suite_items
           where suite_id = $1 and version = $2 and ordinal >= $3 order by ordinal limit $4"#,
        suite_id.as_str(),
        version,
        from,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|row| SuiteItem { item_id: row.item_id, input: row.input.0 }).collect())
}

/// The ids of at most `limit` items of a version from the given ordinal on.
pub async fn item_ids(db: impl PgExecutor<'_>, suite_id: &SuiteId, version: &str, from: i32, limit: u32) -> Result<Vec<String>> {
    let ids = sqlx::query_scalar!(
        "select item_id from suite_items where suite_id = $1 and version = $2 and ordinal >= $3 order by ordinal limit $4",
        suite_id.as_str(),
        version,
        from,
        i64::from(limit)
    )
    .fetch_all(db)
    .await?;
    Ok(ids)
}
