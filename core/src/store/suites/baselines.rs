//! Baselines: their publication, and what the API and the workers read of them.

use std::ops::Range;

use assay_eval::score::Figures;
use assay_eval::suite::Baseline;
use sqlx::PgExecutor;

use crate::model::baselines::{BaselineKind, BoardBaseline};
use crate::model::error::{Error, Result};
use crate::model::public_name::NameKeys;
use crate::model::suite::SuiteId;
use crate::store::PgConnection;

/// Stores a version's baseline. `disclosed` are the figures of its open items under the suite's
/// policy. For the operator.
pub async fn insert(
    db: &mut PgConnection,
    content_id: i64,
    place: usize,
    baseline: &Baseline,
    disclosed: &Figures,
) -> Result<()> {
    let place = i32::try_from(place).map_err(Error::internal)?;
    let count = |count: i64| i32::try_from(count).map_err(Error::internal);
    let Baseline {
        name,
        kind,
        url,
        predictions_sha256: _,
        score,
    } = baseline;
    let keys = NameKeys::of(name);
    sqlx::query!(
        "
        insert into suite_baselines (
            content_id,
            place,
            name,
            name_key,
            name_shown,
            kind,
            url,
            value,
            stderr,
            ci95,
            n_missing
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ",
        content_id,
        place,
        name,
        keys.folded,
        keys.shown,
        BaselineKind::from(*kind).as_str(),
        url.as_deref(),
        disclosed.value,
        disclosed.estimate.map(|estimate| estimate.stderr),
        disclosed.estimate.map(|estimate| estimate.ci95.to_vec()) as _,
        count(score.n_missing)?
    )
    .execute(&mut *db)
    .await?;
    let open = (false, &score.figures, score.n_missing, &score.items);
    let sealed = score
        .sealed
        .as_ref()
        .map(|sealed| (true, &sealed.figures, sealed.n_missing, &sealed.items));
    for (is_sealed, figures, n_missing, items) in std::iter::once(open).chain(sealed) {
        let mut item_scores = Vec::new();
        items.write(|bytes| item_scores.extend_from_slice(bytes));
        sqlx::query!(
            "
            insert into suite_baseline_scores (
                content_id,
                place,
                is_sealed,
                value,
                stderr,
                ci95,
                n_missing,
                item_scores
            )
            values ($1, $2, $3, $4, $5, $6, $7, $8)
            ",
            content_id,
            place,
            is_sealed,
            figures.value,
            figures.estimate.map(|estimate| estimate.stderr),
            figures.estimate.map(|estimate| estimate.ci95.to_vec()) as _,
            count(n_missing)?,
            item_scores
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}

/// A version's baseline.
#[derive(Debug, Clone)]
pub struct BaselinePlace {
    /// The suite's id.
    pub suite_id: SuiteId,
    /// The version.
    pub suite_version: String,
    /// Its place among the version's baselines.
    pub place: i32,
}

/// A baseline that a job is compared with.
#[derive(Debug, Clone)]
pub struct ComparedBaseline {
    /// Its place among the version's baselines.
    pub place: i32,
    /// Its disclosed value over the open items.
    pub value: f64,
    /// `true` if the value has a standard error.
    pub has_stderr: bool,
}

/// Returns a version's baseline by its name.
pub async fn compared(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
    name: &str,
) -> Result<Option<ComparedBaseline>> {
    let found = sqlx::query_as!(
        ComparedBaseline,
        r#"
        select
            place,
            value,
            stderr is not null as "has_stderr!"
        from suite_baselines
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and name = $3
        "#,
        suite_id.as_str(),
        version,
        name
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// Reads a byte range from a baseline's item scores over the open items, without the bytes after their
/// end. `None` if they may not be read.
pub async fn item_scores(
    db: impl PgExecutor<'_>,
    baseline: &BaselinePlace,
    bytes: Range<u64>,
) -> Result<Option<Vec<u8>>> {
    let number = |number: u64| i32::try_from(number).map_err(Error::internal);
    let found = sqlx::query_scalar!(
        r#"
        select substring(item_scores from $4 + 1 for $5) as "bytes!"
        from compared_baseline_scores
        where content_id = (select content_id from suites where suite_id = $1 and version = $2)
          and place = $3
        "#,
        baseline.suite_id.as_str(),
        baseline.suite_version,
        baseline.place,
        number(bytes.start)?,
        number(bytes.end - bytes.start)?
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// Returns a version's baselines with their figures over the items in its board's tests. None before a
/// version with sealed items has closed.
pub async fn for_board(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Vec<BoardBaseline>> {
    let rows = sqlx::query!(
        r#"
        select
            b.name,
            b.kind as "kind: BaselineKind",
            b.url,
            case when s.n_sealed > 0 then c.value else b.value end as "value!",
            case when s.n_sealed > 0 then c.ci95 else b.ci95 end as ci95
        from suites s
        join suite_baselines b using (content_id)
        left join closed_baseline_scores c using (content_id, place)
        where s.suite_id = $1
          and s.version = $2
          and (s.n_sealed = 0 or c.place is not null)
        order by b.place
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_all(db)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| BoardBaseline {
            name: row.name,
            kind: row.kind,
            url: row.url,
            value: row.value,
            ci95: row.ci95.and_then(|ends| ends.try_into().ok()),
        })
        .collect())
}

/// A baseline that entries are tested against.
pub struct TestedBaseline {
    /// Its name.
    pub name: String,
    /// The exact value over the items in the tests.
    pub value: f64,
    /// `true` if the value has a standard error.
    pub has_stderr: bool,
    /// The item scores over these items.
    pub item_scores: Vec<u8>,
}

/// Returns a version's baselines in their order, for the tests of its board: over the sealed items, if
/// there are any. For workers.
pub async fn tested(
    db: impl PgExecutor<'_>,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Vec<TestedBaseline>> {
    let found = sqlx::query_as!(
        TestedBaseline,
        r#"
        select
            b.name,
            c.value,
            c.stderr is not null as "has_stderr!",
            c.item_scores
        from suites s
        join suite_baselines b using (content_id)
        join suite_baseline_scores c
            on c.content_id = b.content_id
            and c.place = b.place
            and c.is_sealed = (s.n_sealed > 0)
        where s.suite_id = $1
          and s.version = $2
        order by b.place
        "#,
        suite_id.as_str(),
        version
    )
    .fetch_all(db)
    .await?;
    Ok(found)
}
