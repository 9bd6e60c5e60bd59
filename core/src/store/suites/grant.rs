//! Grants, with which other organizations see a suite and submit to it.

use sqlx::{PgConnection, PgExecutor};

use crate::model::error::Result;
use crate::model::grant::{Grant, GrantKind};
use crate::model::ids::{GrantId, OrgId, SuiteId};
use crate::model::secret::SecretHash;
use crate::model::timestamp::Timestamp;

/// A new grant's target.
#[derive(Debug, Clone)]
pub enum Target {
    /// An organization, which need not exist.
    Org(OrgId),
    /// All organizations that have verified a domain.
    Domain(String),
    /// The organizations that accept a link.
    Link {
        /// Organizations that can accept it.
        max_uses: i32,
        /// Days until it expires.
        days: i32,
    },
}

impl Target {
    /// Returns the columns `org_id` and `domain`.
    fn columns(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Org(org_id) => (Some(org_id.as_str()), None),
            Self::Domain(domain) => (None, Some(domain)),
            Self::Link { .. } => (None, None),
        }
    }
}

/// Counts the grants to an organization's suite. `None` if it does not own the suite.
pub async fn count(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
) -> Result<Option<i64>> {
    let count = sqlx::query_scalar!(
        r#"
        select (select count(*) from suite_grants g where g.suite_id = o.suite_id) as "count!"
        from suite_owners o
        where o.org_id = $1
          and o.suite_id = $2
        "#,
        org_id.as_str(),
        suite_id.as_str()
    );
    Ok(count.fetch_optional(db).await?)
}

/// A stored grant.
struct GrantRow {
    id: GrantId,
    suite_id: SuiteId,
    org_id: Option<String>,
    org_name: Option<String>,
    domain: Option<String>,
    max_uses: Option<i32>,
    uses: i32,
    expires_at: Option<Timestamp>,
    created_by: Option<String>,
    created_at: Timestamp,
}

impl From<GrantRow> for Grant {
    fn from(row: GrantRow) -> Self {
        Self {
            id: row.id,
            suite_id: row.suite_id,
            kind: match (&row.org_id, &row.domain) {
                (Some(_), _) => GrantKind::Org,
                (None, Some(_)) => GrantKind::Domain,
                (None, None) => GrantKind::Link,
            },
            org_id: row.org_id,
            org_name: row.org_name,
            domain: row.domain,
            max_uses: row.max_uses.map(i64::from),
            uses: row.max_uses.map(|_| row.uses.into()),
            expires_at: row.expires_at,
            created_by: row.created_by,
            created_at: row.created_at,
        }
    }
}

/// Returns the grants to an organization's suite, or only one, the newest first.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    only: Option<&GrantId>,
    limit: i64,
) -> Result<Vec<Grant>> {
    let rows = sqlx::query_as!(
        GrantRow,
        r#"
        select
            g.id as "id: GrantId",
            g.suite_id as "suite_id: SuiteId",
            g.org_id,
            (select o.name from orgs o where o.id = g.org_id and g.is_accepted) as "org_name?",
            g.domain,
            g.max_uses,
            g.uses,
            g.expires_at as "expires_at: Timestamp",
            g.created_by,
            g.created_at as "created_at: Timestamp"
        from suite_grants g
        where g.suite_id = $2
          and exists(select from suite_owners o where o.suite_id = g.suite_id and o.org_id = $1)
          and ($3::text is null or g.id = $3)
        order by g.created_at desc, g.id desc
        limit $4
        "#,
        org_id.as_str(),
        suite_id.as_str(),
        only.map(GrantId::as_str),
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Grant::from).collect())
}

/// Returns the grant that an organization's suite has for the target.
pub async fn find(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    target: &Target,
) -> Result<Option<GrantId>> {
    if matches!(target, Target::Link { .. }) {
        return Ok(None);
    }
    let (granted, domain) = target.columns();
    let id = sqlx::query_scalar!(
        r#"
        select g.id as "id: GrantId"
        from suite_grants g
        join suite_owners o on o.suite_id = g.suite_id
        where o.org_id = $1
          and g.suite_id = $2
          and (g.org_id = $3 or g.domain = $4)
        "#,
        org_id.as_str(),
        suite_id.as_str(),
        granted,
        domain
    );
    Ok(id.fetch_optional(db).await?)
}

/// Inserts a grant to an organization's suite. `token` is a link's.
pub async fn insert(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite_id: &SuiteId,
    (id, created_by): (&GrantId, &str),
    target: &Target,
    token: Option<&SecretHash>,
) -> Result<()> {
    let (granted, domain) = target.columns();
    let (max_uses, days) = match target {
        Target::Link { max_uses, days } => (Some(*max_uses), Some(*days)),
        Target::Org(_) | Target::Domain(_) => (None, None),
    };
    sqlx::query!(
        "
        insert into suite_grants (id, suite_id, org_id, domain, token_hash, max_uses, expires_at, created_by)
        select $3, suite_id, $4, $5, $6, $7, clock_timestamp() + $8::integer * interval '1 day', $9
        from suite_owners
        where org_id = $1
          and suite_id = $2
        ",
        org_id.as_str(),
        suite_id.as_str(),
        id.as_str(),
        granted,
        domain,
        token.map(SecretHash::as_bytes),
        max_uses,
        days,
        created_by
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Deletes a grant, and returns the suite.
pub async fn delete(
    db: &mut PgConnection,
    org_id: &OrgId,
    grant_id: &GrantId,
) -> Result<Option<SuiteId>> {
    let suite_id = sqlx::query_scalar!(
        r#"
        delete from suite_grants g
        using suite_owners o
        where o.suite_id = g.suite_id
          and o.org_id = $1
          and g.id = $2
        returning g.suite_id as "suite_id: SuiteId"
        "#,
        org_id.as_str(),
        grant_id.as_str()
    );
    Ok(suite_id.fetch_optional(db).await?)
}

/// Gives an organization a grant with a link's token, unless it has one already, and counts the use. Returns the suite, and whether the grant
/// is new. `None` if the link does not exist, was used, or has expired. Concurrent requests wait for each other.
pub async fn accept(
    db: &mut PgConnection,
    org_id: &OrgId,
    token: &SecretHash,
    id: &GrantId,
) -> Result<Option<(SuiteId, bool)>> {
    let link = sqlx::query!(
        r#"
        /* all tenants: the token proves the right, and the next statement inserts the organization's grant */
        select
            id as "id: GrantId",
            suite_id as "suite_id: SuiteId",
            uses < max_uses and expires_at > clock_timestamp() as "is_open!",
            created_by
        from suite_grants
        where token_hash = $1
        for no key update
        "#,
        token.as_bytes()
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(link) = link else {
        return Ok(None);
    };
    let suite_id = link.suite_id;
    // After the lock: another request may have accepted the link meanwhile.
    let has_right = sqlx::query_scalar!(
        r#"
        select exists(
            select from suite_owners where org_id = $1 and suite_id = $2
            union all
            select from suite_grants where org_id = $1 and suite_id = $2
        ) as "has_right!"
        "#,
        org_id.as_str(),
        suite_id.as_str()
    )
    .fetch_one(&mut *db)
    .await?;
    if has_right {
        return Ok(Some((suite_id, false)));
    }
    if !link.is_open {
        return Ok(None);
    }
    let inserted = sqlx::query!(
        "
        insert into suite_grants (id, suite_id, org_id, is_accepted, created_by)
        values ($2, $3, $1, true, $4)
        on conflict do nothing
        ",
        org_id.as_str(),
        id.as_str(),
        suite_id.as_str(),
        link.created_by
    )
    .execute(&mut *db)
    .await?;
    let is_new = inserted.rows_affected() == 1;
    if is_new {
        sqlx::query!(
            "/* all tenants: the token of the link proves the right */ update suite_grants set uses = uses + 1 where id = $1",
            link.id.as_str()
        )
        .execute(db)
        .await?;
    }
    Ok(Some((suite_id, is_new)))
}
