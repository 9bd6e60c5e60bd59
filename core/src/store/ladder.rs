//! Ladders: what each organization was told last of a suite that releases scores by one.

use super::work::{Claim, Phase, succeed};
use super::{PgConnection, PgPool};
use crate::job::EvalResult;
use crate::{Ladder, OrgId, Result};

/// Ends a job with what the ladder lets be told of its result, and climbs. `false`: the attempt was fenced out, and nothing
/// was written. Jobs of one organization end one after the other.
pub async fn succeed_on_ladder(
    pool: &PgPool,
    claim: &Claim,
    ladder: Ladder,
    scored: &EvalResult,
    scores_key: Option<&str>,
    phases: &[Phase],
) -> Result<bool> {
    let mut transaction = pool.begin().await?;
    let best = hold(&mut transaction, &claim.org_id, claim).await?;
    let value = ladder.climb(best, scored.value);
    let done = succeed(&mut *transaction, claim, &scored.clone().on_ladder(value), scores_key, phases).await?;
    if done {
        climb(&mut transaction, &claim.org_id, claim, value).await?;
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(done)
}

/// Locks the organization's ladder for the job's version of the suite, and gives what was told last.
async fn hold(db: &mut PgConnection, org_id: &OrgId, claim: &Claim) -> Result<Option<f64>> {
    let best = sqlx::query_scalar!(
        "insert into suite_ladders as l (org_id, suite_id, suite_version) values ($1, $2, $3)
         on conflict (org_id, suite_id, suite_version) do update set best = l.best
         returning best",
        org_id.as_str(),
        claim.suite_id.as_str(),
        claim.suite_version
    )
    .fetch_one(db)
    .await?;
    Ok(best)
}

async fn climb(db: &mut PgConnection, org_id: &OrgId, claim: &Claim, best: f64) -> Result<()> {
    sqlx::query!(
        "update suite_ladders set best = $4 where org_id = $1 and suite_id = $2 and suite_version = $3",
        org_id.as_str(),
        claim.suite_id.as_str(),
        claim.suite_version,
        best
    )
    .execute(db)
    .await?;
    Ok(())
}
