//! Allowance holders: who shares an organization's limits.

use crate::model::email_domain;
use crate::model::error::Result;
use crate::model::ids::OrgId;
use crate::store::PgConnection;

/// Returns who holds the organization's allowances now.
pub async fn holders(db: &mut PgConnection, org_id: &OrgId) -> Result<Vec<String>> {
    let row = sqlx::query!(
        r#"
        select
            case when shares_creator then creator end as creator,
            domains as "domains!"
        from org_allowance_holders
        where org_id = $1
        "#,
        org_id.as_str()
    )
    .fetch_one(db)
    .await?;
    Ok(named_holders(org_id, row.creator.as_deref(), &row.domains))
}

/// Returns who holds an organization's allowances: the organization, the user who created it,
/// and its domains.
pub(super) fn named_holders(
    org_id: &OrgId,
    creator: Option<&str>,
    domains: &[String],
) -> Vec<String> {
    let mut holders = vec![format!("org:{org_id}")];
    holders.extend(creator.map(|user_id| format!("user:{user_id}")));
    holders.extend(
        domains
            .iter()
            .map(|domain| format!("domain:{}", email_domain::registrable(domain))),
    );
    holders.sort_unstable();
    holders.dedup();
    holders
}
