//! A request's traffic class, by which the shared resources are divided.
//!
//! The class is looked up by route here and not set where the route is registered. A value that a
//! route sets is visible only inside of it, and [`deadline`](super::deadline) runs outside of all
//! routes.

use assay_proto::operations::Traffic;
use axum::extract::Request;

use super::operation;
use super::route_name;

pub use assay_proto::operations::Traffic as TrafficClass;

/// The pages that read or cancel jobs.
const JOB_PAGES: &str = "/jobs";

/// The page that submits a job.
const SUBMISSION_PAGE: &str = "/suites/{suite_id}/submissions/{upload_id}";

/// The pages that send or read much.
const LARGE_PAGES: [&str; 2] = ["/suites/{suite_id}/submissions", "/compare"];

/// Returns the class of a request that the router has matched.
pub fn traffic_class(request: &Request) -> TrafficClass {
    if let Some(operation) = operation::find(request) {
        return operation.traffic;
    }
    let route = route_name::route(request);
    let is_job = |rest: &str| rest.is_empty() || rest.starts_with('/');
    if LARGE_PAGES.contains(&route) {
        Traffic::Large
    } else if route.strip_prefix(JOB_PAGES).is_some_and(is_job) {
        Traffic::Jobs
    } else if route == SUBMISSION_PAGE {
        Traffic::Submission
    } else {
        Traffic::Ordinary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classified_pages_exist() {
        let routes = include_str!("../dashboard/mod.rs");
        for page in LARGE_PAGES.into_iter().chain([JOB_PAGES, SUBMISSION_PAGE]) {
            assert!(routes.contains(&format!("\"{page}\"")), "{page}");
        }
    }
}
