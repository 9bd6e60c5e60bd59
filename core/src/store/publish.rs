//! Writing a suite. Only the operator's role may.

use super::PgConnection;
use crate::Result;
use crate::suite::SuiteId;

/// What is published of a suite besides its items.
pub struct NewSuite<'a> {
    /// The suite.
    pub suite_id: &'a SuiteId,
    /// The new version.
    pub version: &'a str,
    /// Its metric.
    pub metric: &'a str,
    /// Whether scores of single items may be read.
    pub per_item_feedback: bool,
    /// For people.
    pub description: &'a str,
    /// How scores are released.
    pub release: &'a str,
    /// How many submissions an organization may make a day, if that is bounded.
    pub max_submissions_per_day: Option<i32>,
    /// Number of items.
    pub n_items: i32,
    /// The SHA-256 of everything that is published.
    pub content_sha256: &'a [u8],
}

/// Stores the suite's row. `false` when this version is there already.
pub async fn insert(db: &mut PgConnection, new: &NewSuite<'_>) -> Result<bool> {
    let NewSuite { suite_id, version, metric, per_item_feedback, description, release, max_submissions_per_day, n_items, content_sha256 } =
        new;
    let done = sqlx::query!(
        "insert into suites (suite_id, version, metric, per_item_feedback, description, n_items, content_sha256, release, max_submissions_per_day)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict do nothing",
        suite_id.as_str(),
        version,
        metric,
        per_item_feedback,
        description,
        n_items,
        content_sha256,
        release,
        *max_submissions_per_day
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The SHA-256 of what was published as this version, if anything was.
pub async fn content_sha256(db: &mut PgConnection, suite_id: &SuiteId, version: &str) -> Result<Option<Vec<u8>>> {
    let found = sqlx::query_scalar!("select content_sha256 from suites where suite_id = $1 and version = $2", suite_id.as_str(), version)
        .fetch_optional(db)
        .await?;
    Ok(found)
}

/// Stores a batch of items with their answers. The slices belong together by index; `input` and `answer` are JSON.
pub async fn insert_items(
    db: &mut PgConnection,
    suite_id: &SuiteId,
    version: &str,
    first: i32,
    item_id: &[&str],
    input: &[&str],
    answer: &[&str],
) -> Result<()> {
    sqlx::query!(
        "with batch as (
             select $3 + (b.place - 1)::integer as ordinal, b.item_id, b.input, b.answer
             from unnest($4::text[], $5::text[], $6::text[]) with ordinality as b(item_id, input, answer, place)
         ), items as (
             insert into suite_items (suite_id, version, ordinal, item_id, input)
             select $1, $2, ordinal, item_id, input::json from batch
         )
         insert into suite_answers (suite_id, version, ordinal, item_id, answer)
         select $1, $2, ordinal, item_id, answer::json from batch",
        suite_id.as_str(),
        version,
        first,
        item_id as &[&str],
        input as &[&str],
        answer as &[&str]
    )
    .execute(db)
    .await?;
    Ok(())
}
