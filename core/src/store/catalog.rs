//! Models of the catalog.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::catalog::ModelFile;
use crate::model::error::Result;

/// Returns all models by id, each in its latest published version.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<ModelFile>> {
    let cards = sqlx::query_scalar!(
        r#"
        select card as "card: Json<ModelFile>"
        from (
            select distinct on (id) id, card
            from models
            order by id, published_at desc
        ) m
        order by id
        "#
    )
    .fetch_all(db)
    .await?;
    Ok(cards.into_iter().map(|Json(card)| card).collect())
}

/// Returns the latest published version of a model.
pub async fn find(db: impl PgExecutor<'_>, id: &str) -> Result<Option<ModelFile>> {
    let card = sqlx::query_scalar!(
        r#"
            select card as "card: Json<ModelFile>"
            from models
            where id = $1
            order by published_at desc
            limit 1
            "#,
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(card.map(|Json(card)| card))
}

/// Stores a version. Returns `false` if it exists already.
pub async fn insert(db: impl PgExecutor<'_>, file: &ModelFile) -> Result<bool> {
    let done = sqlx::query!(
        "
        insert into models (id, version, card)
        values ($1, $2, $3)
        on conflict do nothing
        ",
        file.id,
        file.version,
        Json(file) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns a published version of a model.
pub async fn version(
    db: impl PgExecutor<'_>,
    id: &str,
    version: &str,
) -> Result<Option<ModelFile>> {
    let card = sqlx::query_scalar!(
        r#"
        select card as "card: Json<ModelFile>"
        from models
        where id = $1
          and version = $2
        "#,
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(card.map(|Json(card)| card))
}
