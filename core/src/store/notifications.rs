//! Hearing PostgreSQL's notifications.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::PgListener;

use super::PgPool;
use crate::error::CanFail as _;

/// A subscription to one channel that mends itself.
pub struct Notifications {
    pool: PgPool,
    channel: &'static str,
    listener: Option<PgListener>,
}

impl Notifications {
    /// A subscription; it connects when it is first waited for.
    pub fn new(pool: PgPool, channel: &'static str) -> Self {
        Self { pool, channel, listener: None }
    }

    /// The next notification's text; nothing when some may have been missed, because nobody listened.
    pub async fn next(&mut self) -> Option<String> {
        let Some(listener) = &mut self.listener else {
            self.subscribe().await;
            return None;
        };
        match listener.recv().await {
            Ok(notification) => Some(notification.payload().to_owned()),
            Err(error) => {
                tracing::warn!(%error, "not listening to the database for the moment");
                self.listener = None;
                None
            }
        }
    }

    /// Forgets what has come already, for those to whom several notifications are one.
    pub fn forget(&mut self) {
        while self.listener.as_mut().and_then(PgListener::next_buffered).is_some() {}
    }

    async fn subscribe(&mut self) {
        match listen(self.pool.clone(), self.channel).await {
            Ok(listener) => self.listener = Some(listener),
            failed => {
                failed.can_fail("listening to the database");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Boxed, because the compiler cannot tell that a future of the listener's may be sent (it finds its borrows "not
/// general enough").
fn listen(pool: PgPool, channel: &'static str) -> BoxFuture<'static, sqlx::Result<PgListener>> {
    Box::pin(async move {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(channel).await?;
        Ok(listener)
    })
}
