//! The dependencies that all attempts share.

use assay_core::runtime::artifacts::Artifacts;
use assay_core::runtime::trace_export::Spans;
use assay_core::store::PrimaryPool;
use assay_core::store::combined_requests::CombinedRequests;
use assay_core::store::work::SuccessfulAttempt;
use assay_engine_client::Engines;

use crate::answer_cache::AnswerCache;

/// Dependencies that attempts have.
pub struct AttemptContext {
    /// The connection pool, with a role that can read answers.
    pub db: PrimaryPool,
    /// The store for submissions, item scores and outputs.
    pub artifacts: Artifacts,
    /// The suites' cached answers.
    pub answers: AnswerCache,
    /// The engines that run models.
    pub engines: Engines,
    /// The scoring and model library's build, which results report.
    pub hfm_sha: String,
    /// The results of attempts, which share statements.
    pub results: CombinedRequests<SuccessfulAttempt, bool>,
    /// The exporter of trace spans.
    pub spans: Spans,
}
