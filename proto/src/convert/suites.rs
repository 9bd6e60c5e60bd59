//! Messages of `SuiteService`.

use assay_core::model::suite::{LadderGrid, Suite, SuiteSequence, Suites};
use assay_core::model::suite_items::{SuiteItem, SuiteItems};
use assay_core::{Error, Result};

use super::{object, timestamp};
use crate::v1;

impl From<Suite> for v1::Suite {
    fn from(suite: Suite) -> Self {
        let Suite {
            suite_id,
            version,
            metric,
            n_items,
            per_item_feedback,
            description,
            hfm_sha,
            release,
            max_submissions_per_day,
            max_submissions,
            access,
            clip,
            ladder,
            n_sealed,
            closes_at,
            board,
            sequence,
            suite_commitment,
        } = suite;
        Self {
            suite_id: suite_id.into(),
            version,
            metric,
            n_items,
            per_item_feedback,
            description,
            hfm_sha,
            release,
            max_submissions_per_day,
            max_submissions,
            access: access.to_string(),
            clip: clip.map(Vec::from).unwrap_or_default(),
            ladder: ladder.map(Into::into),
            n_sealed,
            closes_at: closes_at.map(timestamp),
            board: board.to_string(),
            sequence: sequence
                .map(|SuiteSequence { events, options }| v1::SuiteSequence { events, options }),
            suite_commitment,
        }
    }
}

impl From<LadderGrid> for v1::LadderGrid {
    fn from(grid: LadderGrid) -> Self {
        let LadderGrid {
            start,
            step,
            levels,
        } = grid;
        Self {
            start,
            step,
            levels,
        }
    }
}

impl From<Suites> for v1::ListSuitesResponse {
    fn from(listing: Suites) -> Self {
        let Suites { suites } = listing;
        Self {
            suites: suites.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<SuiteItems> for v1::ListSuiteItemsResponse {
    type Error = Error;
    fn try_from(page: SuiteItems) -> Result<Self> {
        let SuiteItems {
            suite_id,
            suite_version,
            items,
            n_items,
            next_cursor,
        } = page;
        let item = |item| {
            let SuiteItem { item_id, input } = item;
            let input = serde_json::from_str(input.get()).map_err(Error::internal)?;
            Ok(v1::SuiteItem {
                item_id,
                input: Some(object(input)),
            })
        };
        Ok(Self {
            suite_id: suite_id.into(),
            suite_version,
            items: items.into_iter().map(item).collect::<Result<_>>()?,
            n_items,
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        })
    }
}
