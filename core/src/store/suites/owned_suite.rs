//! Suites as their publishers change them, for all versions.

use assay_eval::suite::SuiteMetadata;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::model::error::Result;
use crate::model::error_details::SuiteAccess;
use crate::model::ids::{OrgId, SuiteId};
use crate::model::suite::{SuiteErratum, SuiteVisibility};
use crate::model::timestamp::Timestamp;

/// An organization's suite.
#[derive(Debug, Clone)]
pub struct OwnedSuite {
    /// The organizations that can see the suite.
    pub visibility: SuiteVisibility,
    /// The organizations that can submit.
    pub access: SuiteAccess,
    /// The texts.
    pub metadata: Json<SuiteMetadata>,
    /// The notes about errors, the oldest first.
    pub errata: Json<Vec<SuiteErratum>>,
    /// The last change.
    pub updated_at: Timestamp,
    /// `true` if the current version has a ladder, or counts submissions.
    pub limits_disclosure: bool,
    /// The time.
    pub now: Timestamp,
}

/// Returns the organization's suite, and locks it until the transaction ends.
pub async fn lock(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &SuiteId,
) -> Result<Option<OwnedSuite>> {
    let row = sqlx::query_as!(
        OwnedSuite,
        r#"
        select
            o.visibility as "visibility: SuiteVisibility",
            o.access as "access: SuiteAccess",
            o.metadata as "metadata: Json<SuiteMetadata>",
            o.errata as "errata: Json<Vec<SuiteErratum>>",
            o.updated_at as "updated_at: Timestamp",
            (
                select s.ladder_step is not null or num_nonnulls(s.max_submissions, s.max_submissions_per_day) > 0
                from suites s
                where s.suite_id = o.suite_id
                order by s.published_at desc
                limit 1
            ) as "limits_disclosure!",
            clock_timestamp() as "now!: Timestamp"
        from suite_owners o
        where o.org_id = $1
          and o.suite_id = $2
          and o.removed_at is null
        for no key update
        "#,
        org_id.as_str(),
        suite_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row)
}

/// Returns a suite's publisher. `None` if it is the operator's, or does not exist.
pub async fn owner(db: &mut PgConnection, suite_id: &SuiteId) -> Result<Option<OrgId>> {
    let owner = sqlx::query_scalar!(
        r#"select org_id as "org_id!: OrgId" from suite_owners where suite_id = $1 and org_id is not null"#,
        suite_id.as_str()
    );
    Ok(owner.fetch_optional(db).await?)
}

/// Writes the organization's suite.
pub async fn update(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &SuiteId,
    suite: &OwnedSuite,
) -> Result<()> {
    sqlx::query!(
        "
        update suite_owners
        set
            visibility = $3,
            access = $4,
            metadata = $5,
            errata = $6,
            updated_at = clock_timestamp()
        where org_id = $1
          and suite_id = $2
        ",
        org_id.as_str(),
        suite_id.as_str(),
        suite.visibility as SuiteVisibility,
        suite.access as SuiteAccess,
        &suite.metadata as &Json<SuiteMetadata>,
        &suite.errata as &Json<Vec<SuiteErratum>>
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns `true` if the suite has this version.
pub async fn has_version(db: &mut PgConnection, suite_id: &SuiteId, version: &str) -> Result<bool> {
    let has = sqlx::query_scalar!(
        r#"select exists(select from suites where suite_id = $1 and version = $2) as "has!""#,
        suite_id.as_str(),
        version
    );
    Ok(has.fetch_one(db).await?)
}
