//! A route response's peak memory: the rows, the resources made from them, and their JSON or
//! message.
//!
//! A route that is not listed has [`ORDINARY`] bytes. An operation whose responses differ too much,
//! such as a page with items or jobs, determines its page size and reserves it in addition.

use axum::extract::Request;

use super::{operation, route_name};

/// The memory for an ordinary response, in bytes.
const ORDINARY: u64 = 256 * KIB;

const KIB: u64 = 1024;

/// The memory for a page with small rows, in bytes: three times its longest JSON.
const PAGE: u64 = 1024 * KIB;

/// The memory for a job's state, in bytes: its longest JSON. Clients wait for many jobs at once.
const JOB_STATE: u64 = 36 * KIB;

/// The memory for an upload part's row, in bytes. Clients keep many uploads open.
const UPLOAD_PART: u64 = 4 * KIB;

/// The operations and pages with other responses than ordinary ones. The figures are three times
/// the longest JSON that the OpenAPI document allows.
const LISTED: [(&str, u64); 28] = [
    ("/v1/suites/{suite_id}", PAGE),
    ("/v1/grants/accept", PAGE),
    ("/v1/suites/{suite_id}/submitters", PAGE),
    ("/v1/suites/{suite_id}/board", 4 * 1024 * KIB),
    ("/suites/{suite_id}/board", 4 * 1024 * KIB),
    ("/v1/jobs/{job_id}/items", 2 * 1024 * KIB),
    ("/v1/jobs/{job_id}/trace", PAGE),
    ("/jobs/{job_id}", PAGE),
    ("/jobs/{job_id}/trace.json", PAGE),
    ("/v1/entries", PAGE),
    ("/v1/keys", PAGE),
    ("/keys", PAGE),
    ("/v1/uploads", PAGE),
    ("/v1/audit", PAGE),
    ("/v1/invites", PAGE),
    ("/v1/domains", PAGE),
    ("/domains", PAGE),
    ("/v1/members", PAGE),
    ("/members", PAGE),
    ("/v1/webhooks/{webhook_id}/deliveries", PAGE),
    ("/suites", PAGE),
    ("/v1/jobs/{job_id}", JOB_STATE),
    ("/v1/jobs/{job_id}/events", JOB_STATE),
    ("/v1/uploads/{upload_id}/parts/{number}", UPLOAD_PART),
    ("/v1/drafts", PAGE),
    ("/v1/drafts/{draft_id}", PAGE),
    ("/v1/drafts/{draft_id}/check", PAGE),
    ("/v1/drafts/{draft_id}/publish", PAGE),
];

/// Returns a request response's peak memory, in bytes.
pub fn of(request: &Request) -> u64 {
    let route = route_name::route(request);
    let names = [
        operation::find(request).map_or(route, |found| found.path),
        route,
    ];
    LISTED
        .iter()
        .find(|(listed, _)| names.contains(listed))
        .map_or(ORDINARY, |(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn listed_routes_and_methods_exist() {
        for (path, _) in LISTED {
            assert!(route_name::exists(path), "{path}");
        }
        let distinct: HashSet<&str> = LISTED.map(|(path, _)| path).into();
        assert_eq!(distinct.len(), LISTED.len());
    }
}
