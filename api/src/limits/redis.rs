//! The counters in Redis. Each operation is one atomic script, which uses Redis's own clock.

use std::time::Duration;

use assay_core::runtime::redis_connection::Connection;
use redis::{AsyncCommands as _, RedisResult, Script};

use super::process_time::process_time;
use super::verdict::{Allowance, THROTTLE_FIRST, THROTTLE_MAX, Verdict, WINDOW};

/// Removes `KEYS[1]`'s expired buckets, and sums the live ones.
///
/// A bucket is a second, with the count and its latest request's microsecond. It expires sixty
/// seconds after that request, so that no sixty seconds hold more than the limit, at whatever point
/// in its second a burst came. The fields `used` and `oldest` hold the sum and the buckets' first
/// second, so that a call reads only the oldest bucket and those that have expired since the call
/// before.
///
/// Computes `used`, the `oldest` bucket's second (0 if there is none), the current time, and
/// `wait`, the seconds until that bucket expires.
const WINDOW_LUA: &str = r"
local time = redis.call('time')
local now, micros = tonumber(time[1]), tonumber(time[2])
local function parse(bucket)
    local count, latest = string.match(bucket, '(%d+) (%d+)')
    return tonumber(count), tonumber(latest)
end
local state = redis.call('hmget', KEYS[1], 'used', 'oldest', now)
local used, oldest, wait = tonumber(state[1] or 0), tonumber(state[2] or 0), 60
local before = oldest
while used > 0 and oldest <= now + 60 do
    local bucket = redis.call('hget', KEYS[1], oldest)
    if bucket then
        local count, latest = parse(bucket)
        if oldest > now - 60 or (oldest == now - 60 and latest > micros) then
            wait = math.ceil(oldest + 60 - now + (latest - micros) / 1000000)
            break
        end
        redis.call('hdel', KEYS[1], oldest)
        used = used - count
    end
    oldest = oldest + 1
end
if used == 0 or oldest > now + 60 then
    -- No bucket is left, or the clock was set back by more than a minute.
    redis.call('del', KEYS[1])
    used, oldest, state[3] = 0, 0, false
elseif oldest ~= before then
    redis.call('hset', KEYS[1], 'used', used, 'oldest', oldest)
end
local function count(added)
    local mine = state[3] and parse(state[3]) or 0
    used = used + added
    if oldest == 0 or now < oldest then oldest = now end
    redis.call('hset', KEYS[1], now, (mine + added) .. ' ' .. micros, 'used', used, 'oldest', oldest)
    redis.call('expire', KEYS[1], 61)
end
local max = tonumber(ARGV[1])
";

/// Counts `ARGV[2]` requests, or as many as the limit has left. All scripts return how many they
/// counted.
const ADMIT_LUA: &str = r"
local admitted = math.max(0, math.min(tonumber(ARGV[2]), max - used))
if admitted > 0 then count(admitted) end
return {admitted, used, oldest, now, wait, micros}
";

const PEEK_LUA: &str = "return {1, used, oldest, now, wait, micros}";

/// Counts a failed authentication, or throttles the address. `KEYS[2]` holds its throttle's end and
/// its throttle count so far.
const FAIL_LUA: &str = r"
local block = redis.call('hmget', KEYS[2], 'until', 'times')
local till, times = tonumber(block[1] or 0), tonumber(block[2] or 0)
if till > now then return {0, used, oldest, now, till - now, micros} end
if used < max then
    count(1)
    return {1, used, oldest, now, wait, micros}
end
wait = math.min(tonumber(ARGV[2]) * 2 ^ times, tonumber(ARGV[3]))
redis.call('hset', KEYS[2], 'until', now + wait, 'times', times + 1)
redis.call('expire', KEYS[2], wait + tonumber(ARGV[3]))
return {0, used, oldest, now, wait, micros}
";

pub(super) struct RedisCounters {
    connection: Connection,
    prefix: String,
    admit: Script,
    peek: Script,
    fail: Script,
}

impl RedisCounters {
    pub(super) fn new(connection: Connection, prefix: &str) -> Self {
        let script = |end: &str| Script::new(&format!("{WINDOW_LUA}{end}"));
        Self {
            connection,
            prefix: prefix.to_owned(),
            admit: script(ADMIT_LUA),
            peek: script(PEEK_LUA),
            fail: script(FAIL_LUA),
        }
    }

    /// Returns a check that Redis accepts writes, on the counters' connection.
    pub(super) fn probe(&self) -> Probe {
        Probe {
            connection: self.connection.clone(),
            key: format!("{}.probe", self.prefix),
        }
    }

    /// Counts one organization's concurrent requests, in their order. The replies after the last
    /// admitted request are refusals.
    pub(super) async fn admit(
        &self,
        who: &str,
        limit: u32,
        requests: usize,
    ) -> RedisResult<Vec<Reply>> {
        let key = format!("{}.request_window.{who}", self.prefix);
        let mut call = self.admit.key(key);
        let counted = self.call(call.arg(limit).arg(requests)).await?;
        Ok((1..=requests)
            .map(|place| counted.reply(limit, place as i64))
            .collect())
    }

    /// Counts an address's failed authentication.
    pub(super) async fn fail(&self, address: &str, limit: u32) -> RedisResult<Reply> {
        let prefix = &self.prefix;
        let mut call = self.fail.key(format!("{prefix}.failure_window.{address}"));
        let call = call
            .key(format!("{prefix}.throttle.{address}"))
            .arg(limit)
            .arg(THROTTLE_FIRST)
            .arg(THROTTLE_MAX);
        Ok(self.call(call).await?.reply(limit, 1))
    }

    /// Reads an address's failed authentications.
    pub(super) async fn peek(&self, address: &str, limit: u32) -> RedisResult<Reply> {
        let key = format!("{}.failure_window.{address}", self.prefix);
        Ok(self
            .call(self.peek.key(key).arg(limit))
            .await?
            .reply(limit, 1))
    }

    async fn call(&self, call: &redis::ScriptInvocation<'_>) -> RedisResult<Counted> {
        let mut connection = self.connection.get();
        let reply: RedisResult<(i64, i64, i64, i64, i64, i64)> =
            call.invoke_async(&mut connection).await;
        let (counted, used, oldest, now, wait, micros) =
            reply.inspect_err(|error| self.connection.reconnect_if_lost(error))?;
        Ok(Counted {
            counted,
            used,
            oldest,
            now,
            wait,
            micros,
        })
    }
}

/// A script's result.
struct Counted {
    /// Requests that were counted.
    counted: i64,
    /// The request count in the window, with these.
    used: i64,
    /// The oldest bucket's second; 0 if there is none.
    oldest: i64,
    now: i64,
    wait: i64,
    micros: i64,
}

impl Counted {
    /// Returns the reply to one request. The first has place 1.
    fn reply(&self, limit: u32, place: i64) -> Reply {
        let later = (self.counted - place).max(0);
        let oldest = if self.oldest > 0 {
            self.oldest
        } else {
            self.now
        };
        let is_refused = place > self.counted;
        Reply {
            verdict: Verdict {
                refused_for: is_refused
                    .then(|| u32::try_from(self.wait.max(1)).unwrap_or(u32::MAX)),
                allowance: Allowance::new(limit, self.used - later, oldest),
            },
            used: self.used,
            at: self.now * 1_000_000 + self.micros,
        }
    }
}

/// Redis's decision, with the state that it was based on.
pub(super) struct Reply {
    pub(super) verdict: Verdict,
    /// The requests (or failures) in the last sixty seconds, over all processes.
    pub(super) used: i64,
    /// The time by Redis's clock, in microseconds since 1970.
    pub(super) at: i64,
}

/// A check that Redis accepts writes. It uses the connection that the counters use, and Redis
/// replies in order: when it succeeds, the replies to all earlier calls have arrived.
pub(super) struct Probe {
    connection: Connection,
    key: String,
}

impl Probe {
    /// Returns `true` if the write succeeded within this [process time](process_time). Without a
    /// reply, later calls use a new connection: the network may have dropped this one without
    /// closing it.
    pub(super) async fn succeeds(&self, timeout: Duration) -> bool {
        let mut connection = self.connection.get();
        let write = connection.set_ex(&self.key, 1, 60);
        let written: Option<RedisResult<()>> = tokio::select! {
            biased;
            written = write => Some(written),
            () = process_time(timeout) => None,
        };
        match &written {
            None => self.connection.reconnect(),
            Some(Err(error)) => self.connection.reconnect_if_lost(error),
            Some(Ok(())) => {}
        }
        matches!(written, Some(Ok(())))
    }
}

// The script contains the literal 60 for WINDOW.
const _: () = assert!(WINDOW == 60);
