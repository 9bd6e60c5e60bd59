//! The traffic class of a request, by which the shared resources are divided.
//!
//! The class is looked up by route here and not set where the route is registered. A value that a
//! route sets is visible only inside of it, and [`deadline`](super::deadline) runs outside of all
//! routes. Also, tonic registers a service as one route, and the methods of one service have
//! different classes.

use axum::extract::Request;

use super::route_name;

/// The traffic class of a request, chosen by its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficClass {
    /// Reads or cancels jobs, or reads events. Has connections of its own, so that clients can follow their jobs
    /// while everything else is overloaded. A request that waits for a job holds none meanwhile.
    Jobs,
    /// Submits a job. Gets its permit when its body has arrived.
    Submission,
    /// Sends or reads so much that it may take minutes. The operations themselves limit their
    /// number.
    Large,
    /// Calls an engine. The operation limits the number of calls, and a call holds no connection.
    Serving,
    /// Everything else. Takes well below a second.
    Ordinary,
}

/// The start of the routes and gRPC methods that read or cancel jobs.
const JOBS_PREFIX: [&str; 3] = ["/v1/jobs/", "/assay.v1.JobService/", "/jobs/"];

/// The other routes and gRPC methods that read jobs: lists, and events, which are jobs mostly.
const JOBS: [&str; 4] = [
    "/v1/jobs",
    "/jobs",
    "/v1/events",
    "/assay.v1.EventService/ListEvents",
];

/// The routes and gRPC methods that submit jobs.
const SUBMISSION: [&str; 5] = [
    "/v1/evals",
    "/suites/{suite_id}/submissions/{upload_id}",
    "/v1/predictions",
    "/assay.v1.EvalService/CreateEval",
    "/assay.v1.ServingService/CreatePrediction",
];

/// The routes and gRPC methods that call an engine.
const SERVING: [&str; 7] = [
    "/v1/models/{model_id}/predict",
    "/v1/models/{model_id}/generate",
    "/v1/models/{model_id}/embed",
    "/assay.v1.ServingService/Predict",
    "/assay.v1.ServingService/Generate",
    "/assay.v1.ServingService/StreamGenerate",
    "/assay.v1.ServingService/Embed",
];

/// The routes and gRPC methods that send or read much.
const LARGE: [&str; 10] = [
    "/suites/{suite_id}/submissions",
    "/compare",
    "/v1/uploads/{upload_id}/parts/{number}",
    "/v1/uploads/{upload_id}/complete",
    "/v1/comparisons",
    "/v1/jobs/{job_id}/output",
    "/assay.v1.ComparisonService/CreateComparison",
    "/assay.v1.ServingService/StreamJobOutput",
    "/assay.v1.UploadService/UploadPredictions",
    "/assay.v1.UploadService/CompleteUpload",
];

impl TrafficClass {
    /// Returns the class of a request that the router has matched.
    pub fn of(request: &Request) -> Self {
        let [route, path] = route_name::names(request);
        let [rest_jobs, grpc_jobs, pages_of_jobs] = JOBS_PREFIX;
        // Before jobs, because the output of a job is large.
        if LARGE.contains(&route) || LARGE.contains(&path) {
            Self::Large
        } else if JOBS.contains(&route)
            || JOBS.contains(&path)
            || route.starts_with(rest_jobs)
            || route.starts_with(pages_of_jobs)
            || path.starts_with(grpc_jobs)
        {
            Self::Jobs
        } else if SUBMISSION.contains(&route) || SUBMISSION.contains(&path) {
            Self::Submission
        } else if SERVING.contains(&route) || SERVING.contains(&path) {
            Self::Serving
        } else {
            Self::Ordinary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::protocol;

    #[test]
    fn classified_routes_and_methods_exist() {
        for path in SUBMISSION
            .into_iter()
            .chain(LARGE)
            .chain(SERVING)
            .chain(JOBS)
        {
            assert!(route_name::exists(path), "{path}");
        }
        let [rest_jobs, grpc_jobs, pages_of_jobs] = JOBS_PREFIX;
        assert!(route_name::exists(&format!("{pages_of_jobs}{{job_id}}")));
        assert!(route_name::exists(&format!("{rest_jobs}{{job_id}}")));
        assert!(
            protocol::METHODS
                .iter()
                .any(|method| method.starts_with(grpc_jobs))
        );
    }
}
