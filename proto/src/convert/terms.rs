//! Messages of `TermsService`.

use assay_core::model::terms::Terms;

use super::timestamp;
use crate::v1;

impl From<Terms> for v1::Terms {
    fn from(terms: Terms) -> Self {
        let Terms {
            version,
            url,
            accepted_at,
            accepted_by,
        } = terms;
        Self {
            version,
            url,
            accepted_at: accepted_at.map(timestamp),
            accepted_by: accepted_by.map(Into::into),
        }
    }
}
