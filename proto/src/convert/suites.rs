//! Messages of `SuiteService`.

use assay_core::model::suite::{LadderGrid, Suite, SuiteSequence, Suites};

use super::timestamp;
use crate::v1;

impl From<Suite> for v1::Suite {
    fn from(suite: Suite) -> Self {
        let Suite {
            suite_id,
            version,
            metric,
            lower_is_better,
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
            lower_is_better,
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
