//! An engine's permits: the maximum call count in progress.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits for each core.
const PERMITS_PER_CORE: usize = 4;

/// Returns the number of permits of an engine with this many cores.
pub fn permits_max(cores: usize) -> usize {
    PERMITS_PER_CORE * cores.max(1)
}

/// One engine's permits. Jobs use at most half.
#[derive(Debug)]
pub struct Permits {
    all: Arc<Semaphore>,
    jobs: Arc<Semaphore>,
    max: usize,
}

/// One call's permit, which is returned when it is dropped.
#[derive(Debug)]
pub struct Permit {
    _any: OwnedSemaphorePermit,
    _job: Option<OwnedSemaphorePermit>,
}

impl Permits {
    /// Creates the permits of an engine on a machine with this many cores.
    pub fn new(cores: usize) -> Self {
        let max = permits_max(cores);
        Self {
            all: Arc::new(Semaphore::new(max)),
            jobs: Arc::new(Semaphore::new(max / 2)),
            max,
        }
    }

    /// Returns the call count in progress.
    pub fn used(&self) -> usize {
        self.max - self.all.available_permits()
    }

    /// Returns a permit for a call that somebody waits for, or `None` if none is free.
    pub fn try_acquire(&self) -> Option<Permit> {
        Some(Permit {
            _any: Arc::clone(&self.all).try_acquire_owned().ok()?,
            _job: None,
        })
    }

    /// Waits for a permit for a job. Returns `None` only if there are no permits any more, which
    /// does not happen.
    pub async fn acquire_for_job(&self) -> Option<Permit> {
        let job = Arc::clone(&self.jobs).acquire_owned().await.ok()?;
        Some(Permit {
            _any: Arc::clone(&self.all).acquire_owned().await.ok()?,
            _job: Some(job),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn synchronous_calls_use_all_permits() {
        let permits = Permits::new(2);
        let held: Vec<_> = (0..8).map(|_| permits.try_acquire().unwrap()).collect();
        assert_eq!((permits.used(), permits_max(2)), (8, 8));
        assert!(permits.try_acquire().is_none());
        assert!(permits.acquire_for_job().now_or_never().is_none());
        drop(held);
        assert_eq!(permits.used(), 0);
    }

    #[test]
    fn jobs_use_half_of_the_permits() {
        let permits = Permits::new(1);
        let acquire = || permits.acquire_for_job().now_or_never().flatten();
        let held = [acquire().unwrap(), acquire().unwrap()];
        assert!(acquire().is_none() && permits.used() == 2);
        let synchronous = [
            permits.try_acquire().unwrap(),
            permits.try_acquire().unwrap(),
        ];
        drop(held);
        assert!(acquire().is_some());
        drop(synchronous);
        assert_eq!(permits.used(), 0);
    }
}
