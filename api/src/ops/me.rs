//! The caller of a request: `GET /v1/me`.

use assay_core::Result;
use assay_core::model::org::{Me, PrincipalKind};
use assay_core::model::permissions::{Caller, Principal};
use assay_core::store;

use crate::app::App;

/// Returns the caller and its organizations. An API key belongs to one organization, a user to any
/// number.
pub async fn get(app: &App, caller: &Caller) -> Result<Me> {
    let (principal, orgs) = match caller.principal() {
        Principal::ApiKey { .. } => (PrincipalKind::ApiKey, vec![caller.org().clone()]),
        Principal::Session { user_id, .. } => (
            PrincipalKind::Session,
            store::org::for_user(&app.db.get(), user_id).await?,
        ),
    };
    Ok(Me {
        principal,
        org_id: caller.org_id().clone(),
        orgs,
    })
}
