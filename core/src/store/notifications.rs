//! Hearing PostgreSQL's notifications.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::postgres::{PgConnectOptions, PgListener};
use tokio::time::{Instant, timeout_at};

use super::{PgPool, presence};
use crate::model::error::BestEffort as _;

/// After this time without a notification the connection is checked: nothing is sent on it, so that neither the process nor
/// TCP would notice that it is dead.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long the check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a caller waits at least for a check that began before.
const CHECK_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// A subscription to one channel that reconnects by itself. It has a connection of its own.
pub struct Notifications {
    pool: PgPool,
    channel: &'static str,
    marks_presence: bool,
    subscription: Option<Subscription>,
}

struct Subscription {
    listener: PgListener,
    server: Arc<PgConnectOptions>,
    /// When the connection was seen to work.
    checked: Instant,
    /// When a check began that has no response yet. Callers may stop waiting in the middle of it, again and again.
    checking: Option<Instant>,
}

impl Notifications {
    /// A subscription on the pool's server; it connects when it is first waited for.
    pub fn new(pool: PgPool, channel: &'static str) -> Self {
        Self {
            pool,
            channel,
            marks_presence: false,
            subscription: None,
        }
    }

    /// The same subscription, whose connection also marks the process as present: see [`presence`].
    pub fn marking_presence(pool: PgPool, channel: &'static str) -> Self {
        Self {
            marks_presence: true,
            ..Self::new(pool, channel)
        }
    }

    /// The next notification's payload; nothing when some may have been missed, because nobody listened.
    pub async fn next(&mut self) -> Option<String> {
        let Some(subscription) = &mut self.subscription else {
            self.subscribe().await;
            return None;
        };
        match subscription.next(&self.pool).await {
            Ok(payload) => Some(payload),
            Err(error) => {
                tracing::warn!(error, "not listening to the database for the moment");
                self.subscription = None;
                None
            }
        }
    }

    /// Forgets what has come already, for those to whom several notifications are one.
    pub fn forget(&mut self) {
        while self
            .subscription
            .as_mut()
            .and_then(|subscription| subscription.listener.next_buffered())
            .is_some()
        {}
    }

    async fn subscribe(&mut self) {
        let server = self.pool.connect_options();
        match listen(super::listening(&server), self.channel, self.marks_presence).await {
            Ok(listener) => {
                self.subscription = Some(Subscription {
                    listener,
                    server,
                    checked: Instant::now(),
                    checking: None,
                });
            }
            failed => {
                failed.map(drop).best_effort("listening to the database");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

impl Subscription {
    /// The next notification's payload, or why there will be none.
    async fn next(&mut self, pool: &PgPool) -> Result<String, String> {
        loop {
            if let Ok(received) =
                timeout_at(self.checked + CHECK_INTERVAL, self.listener.try_recv()).await
            {
                let notification = received
                    .map_err(|error| error.to_string())?
                    .ok_or("the connection was closed")?;
                (self.checked, self.checking) = (Instant::now(), None);
                return Ok(notification.payload().to_owned());
            }
            if !Arc::ptr_eq(&self.server, &pool.connect_options()) {
                return Err(String::from("another server is the primary"));
            }
            let began = *self.checking.get_or_insert_with(Instant::now);
            // Time in which nobody waited is not the server's.
            let deadline = (began + CHECK_TIMEOUT).max(Instant::now() + CHECK_TIMEOUT_MIN);
            let checked = timeout_at(deadline, self.listener.execute("select")).await;
            checked
                .map_err(|_| String::from("no response"))?
                .map_err(|error| error.to_string())?;
            (self.checked, self.checking) = (Instant::now(), None);
        }
    }
}

/// Boxed, because the compiler cannot tell that a future of the listener's may be sent (it finds its borrows "not
/// general enough").
fn listen(
    pool: PgPool,
    channel: &'static str,
    marks_presence: bool,
) -> BoxFuture<'static, sqlx::Result<PgListener>> {
    Box::pin(async move {
        let mut listener = PgListener::connect_with(&pool).await?;
        // A connection that was lost is reported here, because notifications were lost with it, and the lock that marks the
        // process as present.
        listener.eager_reconnect(false);
        listener.listen(channel).await?;
        if marks_presence {
            presence::mark(&mut listener).await?;
        }
        Ok(listener)
    })
}
