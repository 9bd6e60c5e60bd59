//! Models of the catalog. An organization sees the platform's models and its own; of two with the
//! same id, its own.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::catalog::ModelFile;
use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::published_model::{Package, ServedVersion};

/// Returns the models that an organization sees by id, each in its latest published version.
pub async fn list(db: impl PgExecutor<'_>, org_id: &OrgId) -> Result<Vec<ModelFile>> {
    let cards = sqlx::query_scalar!(
        r#"
        select card as "card!: Json<ModelFile>"
        from (
            select distinct on (id) id, card
            from (
                select id, card, published_at, true as is_own
                from org_models
                where org_id = $1
                union all
                select id, card, published_at, false
                from models
            ) m
            order by id, is_own desc, published_at desc
        ) m
        order by id
        "#,
        org_id.as_str()
    )
    .fetch_all(db)
    .await?;
    Ok(cards.into_iter().map(|Json(card)| card).collect())
}

/// Returns a version of a model that an organization sees: the given one, or the one published
/// last.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    id: &str,
    version: Option<&str>,
) -> Result<Option<ServedVersion>> {
    let row = sqlx::query!(
        r#"
        select
            card as "card!: Json<ModelFile>",
            package as "package: Json<Package>"
        from (
            select card, package, published_at, true as is_own
            from org_models
            where org_id = $1
              and id = $2
              and ($3::text is null or version = $3)
            union all
            select card, package, published_at, false
            from models
            where id = $2
              and ($3::text is null or version = $3)
        ) m
        order by is_own desc, published_at desc
        limit 1
        "#,
        org_id.as_str(),
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| ServedVersion {
        file: row.card.0,
        package: row.package.map(|Json(package)| package),
    }))
}

/// Stores a version of one of the platform's models. Returns `false` if it exists already.
pub async fn insert(db: impl PgExecutor<'_>, version: &ServedVersion) -> Result<bool> {
    let ServedVersion { file, package } = version;
    let done = sqlx::query!(
        "
        insert into models (id, version, card, package)
        values ($1, $2, $3, $4)
        on conflict do nothing
        ",
        file.id,
        file.version,
        Json(file) as _,
        package.as_ref().map(Json) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Stores a version of a model that only one organization sees. Returns `false` if it exists
/// already.
pub async fn insert_own(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    file: &ModelFile,
    package: &Package,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        insert into org_models (org_id, id, version, card, package)
        values ($1, $2, $3, $4, $5)
        on conflict do nothing
        ",
        org_id.as_str(),
        file.id,
        file.version,
        Json(file) as _,
        Json(package) as _
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns a published version of one of the platform's models.
pub async fn version(
    db: impl PgExecutor<'_>,
    id: &str,
    version: &str,
) -> Result<Option<ServedVersion>> {
    let row = sqlx::query!(
        r#"
        select
            card as "card: Json<ModelFile>",
            package as "package: Json<Package>"
        from models
        where id = $1
          and version = $2
        "#,
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| ServedVersion {
        file: row.card.0,
        package: row.package.map(|Json(package)| package),
    }))
}

/// Returns a published version of a model that only one organization sees.
pub async fn own_version(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    id: &str,
    version: &str,
) -> Result<Option<ServedVersion>> {
    let row = sqlx::query!(
        r#"
        select
            card as "card: Json<ModelFile>",
            package as "package: Json<Package>"
        from org_models
        where org_id = $1
          and id = $2
          and version = $3
        "#,
        org_id.as_str(),
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| ServedVersion {
        file: row.card.0,
        package: Some(row.package.0),
    }))
}
