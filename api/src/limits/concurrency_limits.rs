//! The concurrency limits of an API process, in one table.

use std::time::Duration;

use super::concurrency::ConcurrencyLimit;

/// Longest time for which a credential from a throttled address waits for its look-up.
const THROTTLED_LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a request waits for a permit. A waiting request holds no connection.
const CONCURRENCY_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a request waits for a permit to call an engine: a few calls of a small model. Then
/// the engines are saturated.
const ENGINE_PERMIT_TIMEOUT: Duration = Duration::from_millis(20);

/// The time that a request waits for work of about a second, such as a comparison.
const WORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the completion of an upload waits for another one.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(600);

/// No limit in total, because another limit or the memory budget bounds the operations.
const ANY: usize = usize::MAX;

/// The sizes that limits depend on.
pub struct Sizes {
    /// The number of connections of the pool for jobs.
    pub job_connections: usize,
    /// The number of connections of the pool for all other requests.
    pub request_connections: usize,
    /// The longest wait for a connection.
    pub pool_wait: Duration,
    /// The number of calls to one engine at once.
    pub engine_permits: usize,
}

macro_rules! concurrency_limits {
    (|$sizes:ident| $($(#[$doc:meta])* $name:ident: $per_holder:expr, $total:expr, $timeout:expr;)*) => {
        /// Limits on operations at once, for each organization or client address and in total.
        pub struct ConcurrencyLimits {
            $($(#[$doc])* pub $name: ConcurrencyLimit,)*
        }

        impl ConcurrencyLimits {
            /// Creates the limits of a process with these sizes.
            pub fn new($sizes: &Sizes) -> Self {
                Self {
                    $($name: ConcurrencyLimit::new($per_holder, $total, $timeout),)*
                }
            }
        }
    };
}

// The name; the number for each holder and in total; the longest wait.
concurrency_limits! { |sizes|
    /// Session lookups for reading jobs, per client address: at most half of the connections.
    session_lookups_for_jobs: half(sizes.job_connections), sizes.job_connections, sizes.pool_wait;
    /// Session lookups for other requests, per client address: at most half of the connections.
    session_lookups: half(sizes.request_connections), sizes.request_connections, sizes.pool_wait;
    /// Lookups of credentials from throttled addresses: each address has one at a time.
    throttled_lookups: 1, 4, THROTTLED_LOOKUP_TIMEOUT;
    /// Submissions that are checked and written to the artifact store, from the arrival of the body.
    submission_bodies: 4, 16, CONCURRENCY_TIMEOUT;
    /// Requests that do not read jobs: an organization uses at most half of their connections.
    requests_in_progress: half(sizes.request_connections), ANY, CONCURRENCY_TIMEOUT;
    /// Calls to engines that requests wait for: an organization uses at most half.
    serving: (sizes.engine_permits / 2).max(1), sizes.engine_permits, ENGINE_PERMIT_TIMEOUT;
    /// Streams of generated events: each holds its result until the client has read it.
    generation_streams: 4, 64, ENGINE_PERMIT_TIMEOUT;
    /// Upload parts. The memory budget limits those of all organizations.
    upload_parts: 4, ANY, WORK_TIMEOUT;
    /// Upload completions: each uses a core.
    upload_completions: 1, 2, COMPLETION_TIMEOUT;
    /// Job lists: those of one organization must not take all connections for jobs.
    job_lists: 1, ANY, CONCURRENCY_TIMEOUT;
    /// Outputs that are streamed: each holds a connection to the artifact store.
    job_outputs: 4, 64, CONCURRENCY_TIMEOUT;
    /// Streams of jobs: each holds a subscription until its job has finished.
    job_watches: 50, ANY, CONCURRENCY_TIMEOUT;
    /// Comparisons: each uses a core.
    comparisons: 1, 2, WORK_TIMEOUT;
    /// Sums of the usage by day: each uses a core of the database.
    usage_days: 1, ANY, CONCURRENCY_TIMEOUT;
    /// Requests that wait for events.
    event_waits: 32, ANY, CONCURRENCY_TIMEOUT;
    /// Exports of audit logs.
    audit_exports: 1, 4, CONCURRENCY_TIMEOUT;
    /// Opened suite files that an address reads.
    opened_files: 4, 64, CONCURRENCY_TIMEOUT;
}

fn half(connections: usize) -> usize {
    connections.div_ceil(2)
}
