//! Catalog models. An organization sees the platform's models and its own; of two with the
//! same id, its own.

use sqlx::PgExecutor;
use sqlx::types::Json;

use crate::model::catalog::ModelFile;
use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::model::published_model::{Package, ServedVersion, VisibleVersion};

/// A version that was visible some time ago.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedModel<'a> {
    /// The id of the model.
    pub id: &'a str,
    /// The version that the caller requested. `None`: the current one.
    pub requested_version: Option<&'a str>,
    /// The version that was found.
    pub version: &'a str,
    /// `true` if it was the organization's own.
    pub is_own: bool,
}

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

/// Returns a model version that an organization sees: the given one, or the one published
/// last.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    id: &str,
    version: Option<&str>,
) -> Result<Option<VisibleVersion>> {
    let row = sqlx::query!(
        r#"
        select
            is_own as "is_own!",
            card as "card!: Json<ModelFile>",
            package as "package: Json<Package>"
        from visible_model($1, $2, $3)
        "#,
        org_id.as_str(),
        id,
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| VisibleVersion {
        published: ServedVersion {
            file: row.card.0,
            package: row.package.map(|Json(package)| package),
        },
        is_own: row.is_own,
    }))
}

/// Returns `true` if an organization sees exactly this version: as the requested one, or as the one
/// published last.
pub async fn is_visible(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    model: &ExpectedModel<'_>,
) -> Result<bool> {
    let visible = sqlx::query_scalar!(
        r#"
        select exists(
            select from visible_model($1, $2, $3)
            where version = $4
              and is_own = $5
        ) as "visible!"
        "#,
        org_id.as_str(),
        model.id,
        model.requested_version,
        model.version,
        model.is_own
    )
    .fetch_one(db)
    .await?;
    Ok(visible)
}

/// Stores a version for a platform model. Returns `false` if it exists already.
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

/// Stores a model version that only one organization sees. Returns `false` if it exists
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

/// Returns a platform model's published version.
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

/// Returns the published version for a model that only one organization sees.
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
