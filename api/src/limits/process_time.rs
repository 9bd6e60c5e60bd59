//! Timeouts in process time: time in which this process was able to run.

use std::time::Duration;

/// The measurement's resolution.
const STEP: Duration = Duration::from_millis(25);

/// Waits until this process was able to run for `duration`.
///
/// A timer that fires late counts as one step. While the process gets no processor time it cannot
/// read replies, so that time says nothing about Redis. With each step the runtime has read the
/// replies that had arrived.
pub(super) async fn process_time(duration: Duration) {
    for _ in 0..duration.as_millis() / STEP.as_millis() {
        tokio::time::sleep(STEP).await;
    }
}
