//! The dispatcher: takes back what dead workers held, and rings for jobs that wait.
//!
//! Every api process runs one; an advisory lock makes one of them the leader for each round. A round begins when a job
//! was accepted, and every half second. Whatever a round does not finish, the next one does.

use std::time::{Duration, Instant};

use assay_core::queue::{Ringer, redis};
use assay_core::store::dispatch::{self, Swept};
use assay_core::store::{PgPool, notifications::Notifications};
use assay_core::{CanFail as _, Result, telemetry};
use tokio::sync::watch;

use crate::settings::Settings;

/// The longest time between rounds.
const TICK: Duration = Duration::from_millis(500);

/// How often what the queue leaves behind is removed.
const TIDY: Duration = Duration::from_secs(60);

struct Dispatcher {
    db: PgPool,
    ringer: Ringer,
    tidied: Instant,
}

/// Dispatches until `stop` is set.
pub async fn run(db: PgPool, settings: Settings, mut stop: watch::Receiver<bool>) -> Result<()> {
    let connection = redis(&settings.common.redis_url, Duration::from_millis(500))?;
    let ringer = Ringer::new(connection, &settings.common.redis_prefix);
    let mut notifications = Notifications::new(db.clone(), dispatch::CHANNEL);
    let mut dispatcher = Dispatcher { db, ringer, tidied: Instant::now() };
    let mut swept = None::<Instant>;
    loop {
        let sweep = swept.is_none_or(|at| at.elapsed() >= TICK);
        if sweep {
            swept = Some(Instant::now());
        }
        dispatcher.round(sweep).await.can_fail("a round of the dispatcher; the next one does its work");
        tokio::select! {
            _ = notifications.next() => notifications.forget(),
            () = tokio::time::sleep(TICK) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

impl Dispatcher {
    async fn round(&mut self, sweep: bool) -> Result<()> {
        // While Redis is away nothing is chosen, for nothing could be rung: the workers then help themselves.
        let room = self.room().await;
        let mut transaction = self.db.begin().await?;
        if !dispatch::lead(&mut transaction).await? {
            return Ok(());
        }
        if sweep {
            let Swept { released, failed } = dispatch::sweep(&mut transaction).await?;
            if released + failed > 0 {
                tracing::warn!(released, failed, "jobs were taken back from dead or overdue workers");
            }
            metrics::counter!(telemetry::JOBS_TAKEN_BACK, "outcome" => "released").increment(released.unsigned_abs());
            metrics::counter!(telemetry::JOBS_TAKEN_BACK, "outcome" => "failed").increment(failed.unsigned_abs());
        }
        let rings = match room {
            Ok(room) if room > 0 => dispatch::choose(&mut transaction, room).await?,
            _ => Vec::new(),
        };
        let tidy = self.tidied.elapsed() >= TIDY;
        if tidy {
            dispatch::forget_workers(&mut transaction).await?;
        }
        // First noted, then rung: a bell that is lost in between is found by a worker that looks for itself.
        transaction.commit().await?;
        room?;
        if !rings.is_empty() {
            self.ringer.ring(&rings).await?;
            metrics::counter!(telemetry::BELLS_RUNG).increment(rings.len() as u64);
        }
        if tidy {
            self.tidied = Instant::now();
            self.ringer.tidy().await?;
        }
        Ok(())
    }

    /// How many bells may be rung. When Redis forgot those that were, all are to be rung again.
    async fn room(&mut self) -> Result<i64> {
        if !self.ringer.remembers().await? {
            let forgotten = dispatch::unring(&self.db).await?;
            tracing::info!(forgotten, "Redis begins anew: every waiting job's bell is rung again");
        }
        self.ringer.room().await
    }
}
