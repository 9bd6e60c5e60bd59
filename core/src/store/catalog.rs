//! Models.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::catalog::ModelFile;
use crate::model::error::Result;

/// All models, each in its version published last, by id.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<ModelFile>> {
    let cards = sqlx::query_scalar!(
        r#"select card as "card: Json<ModelFile>" from (select distinct on (id) id, card from models order by id, published_at desc) m order by id"#
    )
    .fetch_all(db)
    .await?;
    Ok(cards.into_iter().map(|Json(card)| card).collect())
}

/// A model in its version published last.
pub async fn find(db: impl PgExecutor<'_>, id: &str) -> Result<Option<ModelFile>> {
    let card =
        sqlx::query_scalar!(r#"select card as "card: Json<ModelFile>" from models where id = $1 order by published_at desc limit 1"#, id)
            .fetch_optional(db)
            .await?;
    Ok(card.map(|Json(card)| card))
}

/// Stores a version. `false` when it is there already.
pub async fn insert(db: impl PgExecutor<'_>, file: &ModelFile) -> Result<bool> {
    let done = sqlx::query!(
        "insert into models (id, version, card) values ($1, $2, $3) on conflict do nothing",
        file.id,
        file.version,
        Json(file) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What was published as this version.
pub async fn version(
    db: impl PgExecutor<'_>,
    id: &str,
    version: &str,
) -> Result<Option<ModelFile>> {
    let card = sqlx::query_scalar!(
        r#"select card as "card: Json<ModelFile>" from models where id = $1 and version = $2"#,
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(card.map(|Json(card)| card))
}
