//! `GET /v1/me`

use assay_core::Result;
use assay_core::model::org::{Me, PrincipalKind};
use assay_core::model::permissions::{Caller, Principal};
use assay_core::store;

use crate::app::App;

/// Who calls. A key belongs to its organization alone; a person may belong to several.
pub async fn get(app: &App, caller: &Caller) -> Result<Me> {
    let (principal, orgs) = match caller.principal() {
        Principal::ApiKey { .. } => (PrincipalKind::ApiKey, vec![caller.org().clone()]),
        Principal::Session { user_id, .. } => (
            PrincipalKind::Session,
            store::org::of_user(&app.db, user_id).await?,
        ),
    };
    Ok(Me {
        principal,
        org_id: caller.org_id().clone(),
        orgs,
    })
}
