//! A suite version's scoring: its metric and its disclosure policy.

use crate::clusters::Average;
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::{Clip, Metric};

/// The version of the scorer in this build. A worker scores only suites that need at most its version:
///
/// 1. items that are independent;
/// 2. clusters, averages over clusters, slices, and retests;
/// 3. answers that are distributions, named options, and the metrics of distributions; quantiles; skill and
///    catalogs.
pub const SCORER: i32 = 3;

/// The rules by which a suite's version is scored and its scores are disclosed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scoring {
    /// The metric that a score reports as its value.
    pub metric: Metric,
    /// The bounds of one item's loss, if the suite has them.
    pub clip: Option<Clip>,
    /// The unit that has equal weights in a value.
    pub average: Average,
    /// The figures' disclosure policy.
    pub policy: DisclosurePolicy,
    /// The disclosed values' grid; present if and only if the policy is a ladder.
    pub ladder: Option<Ladder>,
}
