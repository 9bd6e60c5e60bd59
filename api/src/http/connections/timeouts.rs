//! Connection timeouts that more than one file in this module uses.

use std::time::Duration;

/// Longest time from a request's first byte until its headers are complete.
pub(super) const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that a connection stays open without a request. It is longer than the minute for
/// which load balancers keep an idle connection, so that the load balancer closes it.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Longest time in which a client reads nothing from a response.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
