//! Accepted terms.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{OrgId, UserId};
use crate::model::timestamp::Timestamp;

/// One version's acceptance.
pub struct Acceptance {
    /// The acceptance time.
    pub accepted_at: Timestamp,
    /// The user who accepted it for the organization.
    pub accepted_by: UserId,
}

/// Returns whether and when the organization accepted a version, if there is one.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    version: &str,
) -> Result<Option<Acceptance>> {
    let acceptance = sqlx::query_as!(
        Acceptance,
        r#"
        select
            accepted_at as "accepted_at: Timestamp",
            accepted_by as "accepted_by: UserId"
        from terms_acceptances
        where org_id = $1
          and version = $2
        "#,
        org_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(acceptance)
}

/// Records a version's acceptance. The first acceptance stays: returns `false` if there is one
/// already.
pub async fn accept(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    version: &str,
    accepted_by: &UserId,
) -> Result<bool> {
    let done = sqlx::query!(
        "
        insert into terms_acceptances (org_id, version, accepted_by)
        values ($1, $2, $3)
        on conflict (org_id, version) do nothing
        ",
        org_id.as_str(),
        version,
        accepted_by.as_str()
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}
