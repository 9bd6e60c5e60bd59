//! Suites as their publishers change them, for all versions.

use assay_eval::suite::SuiteMetadata;
use sqlx::PgConnection;
use sqlx::types::Json;

use crate::model::error::Result;
use crate::model::error_details::SuiteAccess;
use crate::model::ids::{OrgId, SuiteId};
use crate::model::suite::{SuiteErratum, SuiteVisibility};
use crate::model::suite_edits::EditableSuite;
use crate::model::timestamp::Timestamp;

/// A publisher's suite.
#[derive(Debug, Clone)]
pub struct OwnedSuite {
    /// The part that the publisher can change.
    pub editable: EditableSuite,
    /// The notes about errors, the oldest first.
    pub errata: Json<Vec<SuiteErratum>>,
    /// The last change.
    pub updated_at: Timestamp,
    /// `true` if the current version has a ladder, or counts submissions.
    pub limits_disclosure: bool,
    /// `true` if the operator has deleted the items and answers.
    pub is_removed: bool,
    /// `true` if the operator has approved a wider visibility than `private`.
    pub was_approved: bool,
    /// The time.
    pub now: Timestamp,
}

/// Returns the organization's suite, or the operator's without an organization, and locks it until the transaction ends.
pub async fn lock(
    db: &mut PgConnection,
    owner: Option<&OrgId>,
    suite_id: &SuiteId,
) -> Result<Option<OwnedSuite>> {
    let row = sqlx::query!(
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
            o.removed_at is not null as "is_removed!",
            o.approved_at is not null as "was_approved!",
            clock_timestamp() as "now!: Timestamp"
        from suite_owners o
        where o.org_id is not distinct from $1
          and o.suite_id = $2
        for no key update
        "#,
        owner.map(OrgId::as_str),
        suite_id.as_str()
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| OwnedSuite {
        editable: EditableSuite {
            visibility: row.visibility,
            access: row.access,
            metadata: row.metadata.0,
        },
        errata: row.errata,
        updated_at: row.updated_at,
        limits_disclosure: row.limits_disclosure,
        is_removed: row.is_removed,
        was_approved: row.was_approved,
        now: row.now,
    }))
}

/// Writes a suite that the transaction has locked.
pub async fn update(db: &mut PgConnection, suite_id: &SuiteId, suite: &OwnedSuite) -> Result<()> {
    let EditableSuite {
        visibility,
        access,
        metadata,
    } = &suite.editable;
    sqlx::query!(
        "
        update suite_owners
        set
            visibility = $2,
            access = $3,
            metadata = $4,
            errata = $5,
            updated_at = clock_timestamp()
        where suite_id = $1
        ",
        suite_id.as_str(),
        *visibility as SuiteVisibility,
        *access as SuiteAccess,
        Json(metadata) as _,
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
