//! Redis's state that an installation depends on, for `assay-api doctor`. It changes nothing that
//! stays.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use redis::AsyncCommands as _;
use redis::aio::ConnectionManager;
use tokio::time::timeout;

use crate::model::error::{Error, Result};
use crate::model::random;
use crate::model::timestamp::Timestamp;
use crate::runtime::redis_connection::{self, Connection};

/// The longest wait for a response, and for a message.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Round trips that are measured.
const ROUND_TRIPS: usize = 20;

/// The key forms that processes use, after the prefix; `*` stands for a part that varies.
const KEY_FORMS: [&str; 8] = [
    "request_window.*",
    "failure_window.*",
    "throttle.*",
    "probe",
    "up",
    "evals.epoch",
    "evals:active",
    "evals:data",
];

/// A Redis server's state, as it reports it.
#[derive(Debug, Clone)]
pub struct RedisServer {
    /// The version.
    pub version: String,
    /// `master` or `slave`.
    pub role: String,
    /// `standalone`, `sentinel` or `cluster`.
    pub mode: String,
    /// The rule by which keys are removed when the memory is full.
    pub maxmemory_policy: String,
    /// A round trip's median time.
    pub round_trip: Duration,
    /// The difference between Redis's clock and this process's, in seconds.
    pub clock_ahead_seconds: f64,
}

/// An open connection to Redis.
pub struct RedisExamination {
    url: String,
    prefix: String,
    connection: ConnectionManager,
}

impl RedisExamination {
    /// Connects.
    ///
    /// # Errors
    /// If the server does not respond, or refuses the password.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        let mut connection = Connection::new(url, WAIT_MAX)?.get();
        let _: String = redis::cmd("PING")
            .query_async(&mut connection)
            .await
            .map_err(Error::unavailable)?;
        Ok(Self {
            url: url.to_owned(),
            prefix: prefix.to_owned(),
            connection,
        })
    }

    /// Returns what the server says about itself.
    pub async fn server(&mut self) -> Result<RedisServer> {
        let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
        for _ in 0..ROUND_TRIPS {
            let start = Instant::now();
            let _: String = redis::cmd("PING")
                .query_async(&mut self.connection)
                .await
                .map_err(Error::unavailable)?;
            round_trips.push(start.elapsed());
        }
        round_trips.sort_unstable();
        let info: String = redis::cmd("INFO")
            .query_async(&mut self.connection)
            .await
            .map_err(Error::unavailable)?;
        let field = |name: &str| {
            let value = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or("unknown").trim().to_owned()
        };
        let (seconds, micros): (i64, i64) = redis::cmd("TIME")
            .query_async(&mut self.connection)
            .await
            .map_err(Error::unavailable)?;
        let now = Timestamp::now().unix_micros() as f64 / 1e6;
        Ok(RedisServer {
            version: field("redis_version"),
            role: field("role"),
            mode: field("redis_mode"),
            maxmemory_policy: field("maxmemory_policy"),
            round_trip: round_trips[ROUND_TRIPS / 2],
            clock_ahead_seconds: seconds as f64 + micros as f64 / 1e6 - now,
        })
    }

    /// Returns the key forms that the user may not write, and why, for each.
    pub async fn refused_keys(&mut self) -> Result<Vec<(String, String)>> {
        let mut refused = Vec::new();
        for form in KEY_FORMS {
            let suffix = random::base62(12)?;
            // A key that no process reads.
            let key = format!(
                "{}.{}.doctor-{suffix}",
                self.prefix,
                form.replace('*', "doctor")
            );
            let written: redis::RedisResult<()> = self.connection.set_ex(&key, 1, 5).await;
            match written {
                Ok(()) => {
                    let _: redis::RedisResult<()> = self.connection.del(&key).await;
                }
                Err(error) => refused.push((format!("{}.{form}", self.prefix), error.to_string())),
            }
        }
        let script = redis::Script::new("return redis.call('time')[1]");
        let run: redis::RedisResult<String> = script.invoke_async(&mut self.connection).await;
        if let Err(error) = run {
            refused.push(("scripts (EVALSHA)".into(), error.to_string()));
        }
        Ok(refused)
    }

    /// Returns `true` if a published message arrives at a subscriber. It is sent on a channel with
    /// the installation's prefix that no process reads.
    pub async fn messages_arrive(&mut self) -> Result<bool> {
        let channel = format!("{}.evals.doctor-{}", self.prefix, random::base62(12)?);
        let client = redis_connection::client(&self.url)?;
        let subscribe = async {
            let mut subscription = client.get_async_pubsub().await?;
            subscription.subscribe(&channel).await?;
            Ok::<_, redis::RedisError>(subscription)
        };
        let subscription = timeout(WAIT_MAX, subscribe)
            .await
            .map_err(Error::unavailable)?
            .map_err(Error::unavailable)?;
        let mut messages = subscription.into_on_message();
        let _: i64 = self
            .connection
            .publish(&channel, 1)
            .await
            .map_err(Error::unavailable)?;
        Ok(timeout(WAIT_MAX, messages.next())
            .await
            .is_ok_and(|message| message.is_some()))
    }
}
