//! Organizations that submit to a suite, for its publisher.

use sqlx::PgExecutor;

use crate::model::error::Result;
use crate::model::ids::{OrgId, SuiteId};
use crate::model::timestamp::Timestamp;

/// An organization that has submitted to a suite.
pub struct SubmitterRow {
    /// The organization.
    pub org_id: OrgId,
    /// Its name, if the publisher may see it.
    pub org_name: Option<String>,
    /// `true` if its last scored submission was by the publisher, or if it is the publisher.
    pub by_publisher: bool,
    /// Submissions.
    pub n_submissions: i64,
    /// Submissions that failed.
    pub n_failed: i64,
    /// Entries on boards.
    pub n_entries: i64,
    /// The first submission's time.
    pub first_at: Timestamp,
    /// The last submission's time.
    pub last_at: Timestamp,
}

/// Returns the key of the names under which the publisher sees submitters. `None` if the organization does not own
/// the suite.
pub async fn key(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
) -> Result<Option<Vec<u8>>> {
    let key = sqlx::query_scalar!(
        "
        select submitter_key
        from suite_owners
        where org_id = $1
          and suite_id = $2
        ",
        org_id.as_str(),
        suite_id.as_str()
    );
    Ok(key.fetch_optional(db).await?)
}

/// Returns the submitters of an organization's suite, or of a version, with the newest submission first: at most
/// `limit`, without those after `until`, and without the first `skipped` of the others.
pub async fn list(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    version: Option<&str>,
    (until, skipped): (Option<Timestamp>, i64),
    limit: i64,
) -> Result<Vec<SubmitterRow>> {
    let rows = sqlx::query_as!(
        SubmitterRow,
        r#"
        select
            u.org_id as "org_id: OrgId",
            case
                when u.org_id = o.org_id
                    or entered.n > 0
                    or exists(
                        select from suite_grants g
                        where g.suite_id = o.suite_id
                          -- A later grant does not name who has submitted without one.
                          and (g.is_accepted or g.created_at <= u.first_at)
                          and (
                              g.org_id = u.org_id
                              or g.domain in (
                                  select c.domain
                                  from domain_claims c
                                  where c.org_id = u.org_id
                                    and c.verified_at is not null
                              )
                          )
                    )
                then n.name
            end as org_name,
            coalesce(
                (
                    select (j.result ->> 'by_publisher')::boolean
                    from jobs j
                    where j.org_id = u.org_id
                      and j.suite_id = o.suite_id
                      and j.status = 'succeeded'
                      and j.type = 'eval'
                      and ($3::text is null or j.suite_version = $3)
                    order by j.created_at desc
                    limit 1
                ),
                u.org_id = o.org_id
            ) as "by_publisher!",
            u.n_submissions as "n_submissions!",
            u.n_failed as "n_failed!",
            entered.n as "n_entries!",
            u.first_at as "first_at!: Timestamp",
            u.last_at as "last_at!: Timestamp"
        from suite_owners o
        cross join lateral (
            select
                j.org_id,
                count(*) as n_submissions,
                count(*) filter (where j.status = 'failed') as n_failed,
                min(j.created_at) as first_at,
                max(j.created_at) as last_at
            from jobs j
            where j.suite_id = o.suite_id
              and j.type = 'eval'
              and ($3::text is null or j.suite_version = $3)
            group by j.org_id
            having max(j.created_at) <= coalesce($4::timestamptz, 'infinity')
            order by max(j.created_at) desc, j.org_id
            offset $5
            limit $6
        ) u
        cross join lateral (
            select count(*) as n
            from board_entries e
            where e.org_id = u.org_id
              and e.suite_id = o.suite_id
              and ($3 is null or e.suite_version = $3)
        ) entered
        join orgs n on n.id = u.org_id
        where o.org_id = $1
          and o.suite_id = $2
        order by u.last_at desc, u.org_id
        "#,
        org_id.as_str(),
        suite_id.as_str(),
        version,
        until as Option<Timestamp>,
        skipped,
        limit
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
