//! An organization's concurrency limit: its requests in progress, and the memory
//! that they hold.
//!
//! This is a module in [`rate_limit`](super::rate_limit) and not its own layer, because its
//! 503 carries the allowance that the rate limit has determined.

use assay_core::{Error, OrgId, Result};

use super::traffic_class::TrafficClass;
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;
use crate::limits::request_memory::SharedReservation;

/// Acquires a permit for an ordinary request and charges the request's memory to the organization.
/// A request in another class gets `None`: its operation limits the concurrency.
///
/// # Errors
/// 503 if too many requests by the organization are in progress, or if they hold too much memory.
pub(super) async fn acquire(
    app: &App,
    org_id: &OrgId,
    traffic_class: TrafficClass,
    memory: Result<SharedReservation>,
) -> Result<Option<ConcurrencyPermit>> {
    let holder = org_id.as_str();
    let permit = match traffic_class {
        TrafficClass::Ordinary => {
            let permit = app.concurrency.requests_in_progress.acquire(holder).await;
            Some(permit.map_err(saturated)?)
        }
        TrafficClass::Jobs
        | TrafficClass::Submission
        | TrafficClass::Large
        | TrafficClass::Serving => None,
    };
    memory?.move_to(holder).await?;
    Ok(permit)
}

/// Replaces the 503's message: the limit that was reached is the organization's own.
fn saturated(error: Error) -> Error {
    let message = "Too many requests of your organization are in progress. Wait until some have finished, and retry with backoff.";
    Error {
        message: message.into(),
        ..error
    }
}
