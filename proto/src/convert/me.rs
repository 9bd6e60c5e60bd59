//! Messages of `MeService`.

use assay_core::model::org::{Me, Org};

use super::timestamp;
use crate::v1;

impl From<Me> for v1::Me {
    fn from(me: Me) -> Self {
        let Me {
            principal,
            org_id,
            orgs,
        } = me;
        Self {
            principal: principal.to_string(),
            org_id: org_id.into(),
            orgs: orgs.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Org> for v1::Org {
    fn from(org: Org) -> Self {
        let Org {
            id,
            name,
            plan,
            data_use,
            role,
            created_at,
        } = org;
        Self {
            id: id.into(),
            name,
            plan,
            data_use: data_use.to_string(),
            role: role.to_string(),
            created_at: Some(timestamp(created_at)),
        }
    }
}
