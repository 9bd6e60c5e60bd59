//! The task that notices that an engine has recovered, or that its addresses have changed.
//!
//! The circuit breaker's open time grows with an outage's length. Without this task, an
//! engine would get no calls for up to 30 s after it has recovered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::calls::Engine;

/// Interval between two probes to a replica that has failed.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between two host resolutions.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between two host resolutions while a replica fails.
const RESOLVE_INTERVAL_FAILING: Duration = Duration::from_secs(1);

/// Probes failed replicas and resolves the host, until the engine is dropped.
pub async fn watch(engine: Weak<Engine>, failed: Arc<Notify>) {
    let mut resolved_at = Instant::now();
    loop {
        // The engine may be dropped while nothing fails.
        let _ = tokio::time::timeout(RESOLVE_INTERVAL, failed.notified()).await;
        while let Some(engine) = engine.upgrade() {
            let is_failing = is_failing(&engine);
            let interval = if is_failing {
                RESOLVE_INTERVAL_FAILING
            } else {
                RESOLVE_INTERVAL
            };
            let is_due = engine.replicas().has_dns_name() && resolved_at.elapsed() >= interval;
            if is_due {
                resolved_at = Instant::now();
            }
            tokio::join!(probe(&engine), async {
                if is_due {
                    resolve(&engine).await;
                }
            });
            if !is_failing {
                break;
            }
            drop(engine);
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
        if engine.strong_count() == 0 {
            return;
        }
    }
}

/// Returns `true` if a replica fails, or if the circuit is open because no address is known.
fn is_failing(engine: &Engine) -> bool {
    let replicas = engine.replicas().all();
    if replicas.is_empty() {
        return engine.breaker().is_open();
    }
    replicas.iter().any(|replica| replica.is_failing())
}

async fn resolve(engine: &Engine) {
    match engine.replicas().resolve().await {
        Ok(false) => {}
        Ok(true) => engine.breaker().recover(),
        // The known addresses may still work.
        Err(status) => {
            let reason = status.message();
            tracing::debug!(
                engine = engine.name(),
                reason,
                "host of engine not resolved"
            );
        }
    }
}

async fn probe(engine: &Engine) {
    let replicas = engine.replicas().all();
    let failing = replicas.iter().filter(|replica| replica.is_failing());
    let recovered = join_all(failing.map(|replica| replica.probe())).await;
    if recovered.contains(&true) {
        engine.breaker().recover();
    }
}
