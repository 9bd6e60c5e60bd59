//! What of the things that all share a request is let near, by its route alone.

use axum::extract::{MatchedPath, Request};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficClass {
    /// Asks after a job, or cancels it: that goes on when there is too much of everything else, with connections of its
    /// own. Who waits for a job in a request holds nothing meanwhile.
    Jobs,
    /// Submits: its turn begins when its body has arrived.
    Submission,
    /// Sends or reads through much, for minutes; how many do is limited where it is done.
    Large,
    /// Everything else, which takes moments.
    Ordinary,
}

/// Routes and rpcs in which much is sent or read.
const LARGE: [&str; 6] = [
    "/v1/uploads/{upload_id}/parts/{number}",
    "/v1/uploads/{upload_id}/complete",
    "/v1/comparisons",
    "/assay.v1.ComparisonService/CreateComparison",
    "/assay.v1.UploadService/UploadPredictions",
    "/assay.v1.UploadService/CompleteUpload",
];

impl TrafficClass {
    /// That of a request whose route was found.
    pub fn of(request: &Request) -> Self {
        let rpc = request.uri().path();
        let path = request
            .extensions()
            .get::<MatchedPath>()
            .map_or(rpc, MatchedPath::as_str);
        match path {
            "/v1/jobs" => Self::Jobs,
            _ if path.starts_with("/v1/jobs/") || rpc.starts_with("/assay.v1.JobService/") => {
                Self::Jobs
            }
            "/v1/evals" => Self::Submission,
            _ if rpc == "/assay.v1.EvalService/CreateEval" => Self::Submission,
            _ if LARGE.contains(&path) || LARGE.contains(&rpc) => Self::Large,
            _ => Self::Ordinary,
        }
    }
}
