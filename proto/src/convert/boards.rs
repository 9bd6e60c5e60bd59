//! Messages of `LeaderboardService`.

use assay_core::model::board::{Board, BoardMethod, BoardRow, Entries, Entry};

use super::timestamp;
use crate::v1;

impl From<Entry> for v1::Entry {
    fn from(entry: Entry) -> Self {
        let Entry {
            id,
            org_id,
            job_id,
            suite_id,
            suite_version,
            name,
            url,
            entered_by,
            entered_at,
            withdrawn_at,
            removed_at,
            removed_reason,
        } = entry;
        Self {
            id: id.into(),
            org_id: org_id.into(),
            job_id: job_id.into(),
            suite_id: suite_id.into(),
            suite_version,
            name,
            url,
            entered_by,
            entered_at: Some(timestamp(entered_at)),
            withdrawn_at: withdrawn_at.map(timestamp),
            removed_at: removed_at.map(timestamp),
            removed_reason,
        }
    }
}

impl From<Entries> for v1::ListEntriesResponse {
    fn from(page: Entries) -> Self {
        let Entries {
            entries,
            next_before,
        } = page;
        Self {
            entries: entries.into_iter().map(Into::into).collect(),
            next_before: next_before.map(timestamp),
        }
    }
}

impl From<Board> for v1::Board {
    fn from(found: Board) -> Self {
        let Board {
            suite_id,
            suite_version,
            metric,
            lower_is_better,
            release,
            board,
            status,
            closes_at,
            as_of,
            visibility,
            method,
            n_entries,
            n_items,
            entries,
            next_cursor,
        } = found;
        let BoardMethod {
            test,
            correction,
            level,
        } = method;
        Self {
            suite_id: suite_id.into(),
            suite_version,
            metric,
            lower_is_better,
            release,
            board: board.to_string(),
            status: status.to_string(),
            closes_at: closes_at.map(timestamp),
            as_of: as_of.map(timestamp),
            visibility: visibility.to_string(),
            method: Some(v1::BoardMethod {
                test: test.to_owned(),
                correction: correction.to_owned(),
                level,
            }),
            n_entries,
            n_items,
            entries: entries.into_iter().map(Into::into).collect(),
            next_cursor: next_cursor.map(|cursor| cursor.to_string()),
        }
    }
}

impl From<BoardRow> for v1::BoardRow {
    fn from(row: BoardRow) -> Self {
        let BoardRow {
            entry_id,
            name,
            org_name,
            org_domain,
            url,
            tier,
            rank_low,
            rank_high,
            value,
            ci95,
            n_missing,
            n_submissions,
            n_withdrawn,
            entered_at,
            withdrawn_at,
            receipt_id,
        } = row;
        Self {
            entry_id: entry_id.into(),
            name,
            org_name,
            org_domain,
            url,
            tier,
            rank_low,
            rank_high,
            value,
            ci95: ci95.map(Vec::from).unwrap_or_default(),
            n_missing,
            n_submissions,
            n_withdrawn,
            entered_at: Some(timestamp(entered_at)),
            withdrawn_at: withdrawn_at.map(timestamp),
            receipt_id: receipt_id.map(Into::into),
        }
    }
}
