//! Publishers' requests to retire versions. The API stores them, and the checker executes them: the role that serves
//! requests can open nothing.

use sqlx::PgExecutor;

use super::commitment::{self, NotRetired};
use crate::model::error::{Error, Result};
use crate::model::ids::{OrgId, SuiteId};
use crate::model::retirement::{RetirementOutcome, key_hash};
use crate::model::suite::NamedVersion;
use crate::model::timestamp::Timestamp;
use crate::store::{PgConnection, PgPool};

/// Attempts at a request before it fails.
const ATTEMPTS_MAX: i32 = 3;

/// A version's readiness to retire, as far as the API can see it.
pub struct Retirability {
    /// `true` if the operator has removed the version.
    pub is_removed: bool,
    /// `true` if the version has retired.
    pub is_retired: bool,
    /// `true` if its answers are public.
    pub is_opened: bool,
    /// The close time, if it is to come.
    pub closes_at: Option<Timestamp>,
    /// `true` if the version has sealed items.
    pub is_sealed: bool,
    /// `true` if its board is computed at the close, and is not final.
    pub has_open_board: bool,
    /// `true` if a request for the version waits.
    pub is_waiting: bool,
    /// The number of requests for the suite with a wrong or unchecked key in the last hour.
    pub n_wrong_keys: i64,
    /// The time from which one of them no longer counts.
    pub resets_at: Option<Timestamp>,
    /// The time.
    pub now: Timestamp,
}

/// Returns what keeps a version from retiring. `None` if the organization has no such suite or version.
pub async fn retirability(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    suite_id: &SuiteId,
    version: &str,
) -> Result<Option<Retirability>> {
    let found = sqlx::query_as!(
        Retirability,
        r#"
        select
            s.removed_at is not null as "is_removed!",
            c.retired_at is not null as "is_retired!",
            c.salt is not null as "is_opened!",
            case when s.closes_at > clock_timestamp() then s.closes_at end as "closes_at: Timestamp",
            s.n_sealed > 0 as "is_sealed!",
            coalesce(b.mode = 'at_close' and not b.is_final, false) as "has_open_board!",
            exists(
                select from suite_retirements r
                where r.suite_id = s.suite_id
                  and r.suite_version = s.version
                  and r.outcome is null
            ) as "is_waiting!",
            w.n as "n_wrong_keys!",
            w.first_at + interval '1 hour' as "resets_at: Timestamp",
            clock_timestamp() as "now!: Timestamp"
        from suite_owners o
        join suites s on s.suite_id = o.suite_id
        join suite_commitments c on c.suite_id = s.suite_id and c.suite_version = s.version
        left join boards b on b.suite_id = s.suite_id and b.suite_version = s.version
        cross join lateral (
            select
                count(*) as n,
                min(r.requested_at) as first_at
            from suite_retirements r
            where r.org_id = $1
              and r.suite_id = $2
              and r.key_hash is not null
              and coalesce(r.outcome = 'wrong_key', true)
              and r.requested_at > clock_timestamp() - interval '1 hour'
        ) w
        where o.org_id = $1
          and o.suite_id = $2
          and s.version = $3
        "#,
        org_id.as_str(),
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    Ok(found)
}

/// Stores a request with this id. Without a key's hash, the answers stay hidden.
pub async fn insert(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    id: &str,
    suite: &NamedVersion,
    key_hash: Option<[u8; 32]>,
) -> Result<()> {
    sqlx::query!(
        "
        insert into suite_retirements (id, org_id, suite_id, suite_version, key_hash)
        values ($1, $2, $3, $4, $5)
        ",
        id,
        org_id.as_str(),
        suite.suite_id.as_str(),
        suite.version,
        key_hash.as_ref().map(<[u8; 32]>::as_slice)
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Returns the outcome of the organization's request, with the versions that share answers. `None` while it waits.
pub async fn outcome(
    db: impl PgExecutor<'_>,
    org_id: &OrgId,
    id: &str,
) -> Result<Option<(RetirementOutcome, Vec<String>)>> {
    let row = sqlx::query!(
        r#"
        select
            outcome as "outcome: RetirementOutcome",
            shared_versions
        from suite_retirements
        where org_id = $1
          and id = $2
        "#,
        org_id.as_str(),
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(row.and_then(|row| Some((row.outcome?, row.shared_versions))))
}

/// A request that waits.
struct Waiting {
    id: String,
    org_id: OrgId,
    suite: NamedVersion,
    key_hash: Option<Vec<u8>>,
}

/// Executes the request that has waited longest, in one transaction. Returns `false` if none waits.
///
/// # Errors
/// If it cannot be executed. It is tried again a minute later, at most three times.
pub async fn execute_next(pool: &PgPool) -> Result<bool> {
    let row = sqlx::query!(
        r#"
        /* all tenants: the checker executes the requests of every publisher */
        update suite_retirements
        set
            attempts = attempts + 1,
            claimed_until = clock_timestamp() + interval '30 minutes',
            outcome = case when attempts >= $1 then 'failed' end
        where id = (
            select id
            from suite_retirements
            where outcome is null
              and coalesce(claimed_until <= clock_timestamp(), true)
            order by attempts, requested_at
            limit 1
            for no key update skip locked
        )
        returning
            id,
            org_id as "org_id: OrgId",
            suite_id as "suite_id: SuiteId",
            suite_version,
            key_hash,
            outcome is not null as "has_failed!"
        "#,
        ATTEMPTS_MAX
    )
    .fetch_optional(pool)
    .await?;
    let Some(row) = row else {
        return Ok(false);
    };
    if row.has_failed {
        return Ok(true);
    }
    let request = Waiting {
        id: row.id,
        org_id: row.org_id,
        suite: NamedVersion {
            suite_id: row.suite_id,
            version: row.suite_version,
        },
        key_hash: row.key_hash,
    };
    let executed = execute_and_commit(pool, &request).await;
    if executed.is_err() {
        sqlx::query!(
            "
            update suite_retirements
            set claimed_until = clock_timestamp() + interval '1 minute'
            where org_id = $1
              and id = $2
            ",
            request.org_id.as_str(),
            request.id
        )
        .execute(pool)
        .await?;
    }
    executed.map(|()| true)
}

async fn execute_and_commit(pool: &PgPool, request: &Waiting) -> Result<()> {
    let mut transaction = pool.begin().await?;
    let (outcome, shared) = execute(&mut transaction, request).await?;
    sqlx::query!(
        "
        update suite_retirements
        set
            outcome = $3,
            shared_versions = $4
        where org_id = $1
          and id = $2
        ",
        request.org_id.as_str(),
        request.id,
        outcome as RetirementOutcome,
        &shared
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    let NamedVersion { suite_id, version } = &request.suite;
    tracing::info!(%suite_id, version, outcome = outcome.as_str(), "retirement executed");
    Ok(())
}

async fn execute(
    db: &mut PgConnection,
    request: &Waiting,
) -> Result<(RetirementOutcome, Vec<String>)> {
    let Waiting {
        org_id,
        suite,
        key_hash: sent,
        ..
    } = request;
    let opens_answers = sent.is_some();
    let is_allowed = match sent {
        Some(sent) => is_opening_key(db, org_id, suite, sent).await?,
        None => owns(db, org_id, suite).await?,
    };
    if !is_allowed {
        return Ok((RetirementOutcome::WrongKey, Vec::new()));
    }
    if opens_answers {
        let same_key = commitment::versions_with_same_key(db, suite).await?;
        let mut shared: Vec<String> = same_key
            .into_iter()
            .map(|other| format!("{} {}", other.suite_id, other.version))
            .collect();
        if shared.is_empty() {
            let versions = std::slice::from_ref(&suite.version);
            let same_answers = commitment::shared_answers(db, &suite.suite_id, versions).await?;
            shared = same_answers.into_iter().map(|one| one.version).collect();
        }
        if !shared.is_empty() {
            return Ok((RetirementOutcome::AnswersShared, shared));
        }
    }
    let outcome = match commitment::retire(db, suite, opens_answers).await? {
        Ok(_) | Err(NotRetired::Before) => RetirementOutcome::Done,
        Err(NotRetired::Closes { .. }) => RetirementOutcome::NotClosed,
        Err(NotRetired::BoardNotFinal) => RetirementOutcome::BoardNotFinal,
        Err(NotRetired::Removed) => RetirementOutcome::Removed,
        Err(NotRetired::Missing) => return Err(Error::internal("a version has no commitment")),
    };
    Ok((outcome, Vec::new()))
}

async fn owns(db: &mut PgConnection, org_id: &OrgId, suite: &NamedVersion) -> Result<bool> {
    let owns = sqlx::query_scalar!(
        r#"select exists(select from suite_owners where org_id = $1 and suite_id = $2) as "owns!""#,
        org_id.as_str(),
        suite.suite_id.as_str()
    );
    Ok(owns.fetch_one(db).await?)
}

/// Returns `true` if the hash is that of the stored opening key of the organization's suite.
async fn is_opening_key(
    db: &mut PgConnection,
    org_id: &OrgId,
    suite: &NamedVersion,
    sent: &[u8],
) -> Result<bool> {
    let NamedVersion { suite_id, version } = suite;
    let salt = sqlx::query_scalar!(
        "
        select p.salt
        from suite_owners o
        join suites s on s.suite_id = o.suite_id
        join suite_openings p on p.content_id = s.content_id
        where o.org_id = $1
          and s.suite_id = $2
          and s.version = $3
        ",
        org_id.as_str(),
        suite_id.as_str(),
        version
    )
    .fetch_optional(db)
    .await?;
    let salt: Option<[u8; 32]> = salt.and_then(|salt| salt.try_into().ok());
    // The hashes are of 32 secret bytes, so the time of their comparison reveals nothing.
    Ok(salt.is_some_and(|salt| key_hash(&salt, suite_id, version) == sent))
}
