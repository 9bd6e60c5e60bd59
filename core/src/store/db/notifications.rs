//! Subscriptions to PostgreSQL's notifications (`listen`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::time::{Instant, timeout_at};

use super::{PgPool, PrimaryPool, presence};
use crate::model::error::BestEffort as _;

/// The time without a notification after which the connection is checked. Nothing is sent on it, so
/// neither the process nor TCP would notice that it is dead.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The check's time limit.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A caller's shortest wait for a check that started before.
const CHECK_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// A subscription to one channel that reconnects by itself. It has its own connection.
pub struct Notifications {
    pool: PrimaryPool,
    channel: &'static str,
    marks_presence: bool,
    subscription: Option<Subscription>,
}

struct Subscription {
    listener: PgListener,
    server: Arc<PgConnectOptions>,
    /// The last time at which the connection was known to work.
    checked_at: Instant,
    /// The start of a check that has no response so far. Callers may stop waiting in the middle of
    /// a check repeatedly.
    checking: Option<Instant>,
}

impl Notifications {
    /// Creates a subscription on the pool's server. It connects on the first call to
    /// [`next`](Self::next).
    pub fn new(pool: PrimaryPool, channel: &'static str) -> Self {
        Self {
            pool,
            channel,
            marks_presence: false,
            subscription: None,
        }
    }

    /// Creates a subscription whose connection also marks the process as present: see [`presence`].
    pub fn marking_presence(pool: PrimaryPool, channel: &'static str) -> Self {
        Self {
            marks_presence: true,
            ..Self::new(pool, channel)
        }
    }

    /// Returns the next notification's payload. Returns `None` if some may have been missed,
    /// because nothing was subscribed.
    pub async fn next(&mut self) -> Option<String> {
        let Some(subscription) = &mut self.subscription else {
            self.subscribe().await;
            return None;
        };
        match subscription.next(&self.pool).await {
            Ok(payload) => Some(payload),
            Err(error) => {
                tracing::warn!(error, "notification subscription lost");
                self.subscription = None;
                None
            }
        }
    }

    /// Discards the notifications that have arrived already, for callers to which several are the
    /// same as one.
    pub fn discard_buffered(&mut self) {
        while self
            .subscription
            .as_mut()
            .and_then(|subscription| subscription.listener.next_buffered())
            .is_some()
        {}
    }

    async fn subscribe(&mut self) {
        let server = self.pool.get().connect_options();
        match listen(
            super::pool::listening(&server),
            self.channel,
            self.marks_presence,
        )
        .await
        {
            Ok(listener) => {
                self.subscription = Some(Subscription {
                    listener,
                    server,
                    checked_at: Instant::now(),
                    checking: None,
                });
            }
            failed => {
                failed.map(drop).best_effort("subscribing to notifications");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl Subscription {
    /// Returns the next notification's payload, or the reason why the subscription has ended.
    async fn next(&mut self, pool: &PrimaryPool) -> Result<String, String> {
        loop {
            if let Ok(received) =
                timeout_at(self.checked_at + CHECK_INTERVAL, self.listener.try_recv()).await
            {
                let notification = received
                    .map_err(|error| error.to_string())?
                    .ok_or("the connection was closed")?;
                (self.checked_at, self.checking) = (Instant::now(), None);
                return Ok(notification.payload().to_owned());
            }
            if !Arc::ptr_eq(&self.server, &pool.get().connect_options()) {
                return Err(String::from("the primary has changed"));
            }
            let started = *self.checking.get_or_insert_with(Instant::now);
            // The server is not blamed for time in which no caller waited.
            let deadline = (started + CHECK_TIMEOUT).max(Instant::now() + CHECK_TIMEOUT_MIN);
            let checked = timeout_at(deadline, self.listener.execute("select")).await;
            checked
                .map_err(|_| String::from("no response"))?
                .map_err(|error| error.to_string())?;
            (self.checked_at, self.checking) = (Instant::now(), None);
        }
    }
}

/// Subscribes to a channel. Boxed, because the compiler cannot prove that the listener's future
/// is `Send` (it finds its borrows "not general enough").
fn listen(
    pool: PgPool,
    channel: &'static str,
    marks_presence: bool,
) -> BoxFuture<'static, sqlx::Result<PgListener>> {
    Box::pin(async move {
        let mut listener = PgListener::connect_with(&pool).await?;
        // A lost connection must be reported: notifications were lost with it, and so was the lock
        // that marks the process as present.
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        if marks_presence {
            presence::mark(&mut listener).await?;
        }
        Ok(listener)
    })
}
