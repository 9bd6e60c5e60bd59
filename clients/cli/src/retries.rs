//! Retry decisions by error code and operation, from the table `clients/retries.json`.

use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;

use crate::operations::Operation;

/// The table that all clients follow.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let json = include_str!("../../retries.json");
    #[expect(clippy::expect_used, reason = "the file is a part of the program")]
    serde_json::from_str(json).expect("clients/retries.json has the fields of the table")
});

/// The retry table.
#[derive(Deserialize)]
pub struct Table {
    limits: Limits,
    backoff: Backoff,
    timeouts: Timeouts,
    rate_limit: RateLimitRules,
    /// Upload rules.
    pub upload: UploadRules,
    /// Idempotency key rules.
    pub idempotency: IdempotencyRules,
    methods: std::collections::HashMap<String, Class>,
    operations: std::collections::HashMap<String, Class>,
    class_without_key: Class,
    rules: Vec<Rule>,
}

impl Table {
    /// Returns the largest retry count of a request.
    pub fn max_retries(&self) -> u32 {
        self.limits.max_retries
    }
}

#[derive(Deserialize)]
struct Limits {
    max_retries: u32,
    max_wait_seconds: f64,
    slot_wait_seconds: f64,
}

#[derive(Deserialize)]
struct Backoff {
    initial_seconds: f64,
    multiplier: f64,
    max_seconds: f64,
    jitter: f64,
}

#[derive(Deserialize)]
struct Timeouts {
    connect_seconds: u64,
    request_seconds: u64,
    long_request_seconds: u64,
    long_operations: Vec<String>,
}

#[derive(Deserialize)]
struct RateLimitRules {
    window_seconds: f64,
}

/// Upload rules.
#[derive(Deserialize)]
pub struct UploadRules {
    /// Largest submission that is sent inline, in bytes.
    pub inline_max_bytes: usize,
    /// Size for all parts but the last, in bytes.
    pub part_bytes: usize,
    /// Parts that are sent at once.
    pub concurrent_parts: usize,
    /// Set if another upload is created after an unknown outcome.
    pub recreate_after_unknown_outcome: bool,
}

/// Idempotency key rules.
#[derive(Deserialize)]
pub struct IdempotencyRules {
    /// A job's status after which the next key is used.
    pub next_key_after_status: Vec<String>,
    /// A failed job's error codes after which the next key is used.
    pub next_key_after_failure: Vec<String>,
}

#[derive(Deserialize)]
struct Rule {
    error: String,
    retry: Vec<Class>,
    delay: Delay,
    limit: Option<String>,
    #[serde(default)]
    only_if_waiting_for_slot: bool,
}

/// An operation's class; the table describes them.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The operation can be sent again.
    Repeatable,
    /// A POST operation with an `Idempotency-Key`.
    Keyed,
    /// Another POST operation.
    Other,
    /// A POST operation that must not create a second resource.
    Creating,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Delay {
    RetryAfter,
    RetryAfterOrBackoff,
    Backoff,
}

/// A failed request's outcome.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// The error code, or `connection_not_established`, `connection_broken` or `timeout`.
    pub error: &'a str,
    /// The `Retry-After` value, in seconds.
    pub retry_after: Option<f64>,
    /// A `quota_exceeded` error's limit.
    pub limit: Option<&'a str>,
}

/// One request's retries.
#[derive(Debug)]
pub struct Retries {
    class: Class,
    /// The longest wait while all concurrent jobs are in use; `None` for no wait.
    slot_wait: Option<Duration>,
    n_retries: u32,
    slot_seconds: f64,
}

impl Retries {
    /// Creates a request's retries. A keyed operation that is sent without a key is an ordinary
    /// POST.
    pub fn new(operation: &Operation, has_key: bool, slot_wait: Option<Duration>) -> Self {
        Self {
            class: class_of(operation, has_key),
            slot_wait,
            n_retries: 0,
            slot_seconds: 0.0,
        }
    }

    /// Returns the delay before the next retry, or `None` if the request must not be repeated.
    pub fn next(&mut self, cause: Cause<'_>) -> Option<Duration> {
        let rule = TABLE.rules.iter().find(|rule| {
            rule.error == cause.error
                && rule.retry.contains(&self.class)
                && (rule.limit.is_none() || rule.limit.as_deref() == cause.limit)
                && (!rule.only_if_waiting_for_slot || self.slot_wait.is_some())
        })?;
        let limits = &TABLE.limits;
        let is_slot = rule.only_if_waiting_for_slot;
        if !is_slot && self.n_retries >= limits.max_retries {
            return None;
        }
        let seconds = match (rule.delay, cause.retry_after) {
            (Delay::RetryAfter | Delay::RetryAfterOrBackoff, Some(seconds)) => seconds,
            _ => self.backoff_seconds(),
        };
        if seconds > limits.max_wait_seconds {
            return None;
        }
        if is_slot {
            let longest = self.slot_wait.map_or(0.0, |wait| wait.as_secs_f64());
            self.slot_seconds += seconds;
            if self.slot_seconds > longest.min(limits.slot_wait_seconds) {
                return None;
            }
        } else {
            self.n_retries += 1;
        }
        Some(Duration::from_secs_f64(seconds))
    }

    /// Returns the exponential backoff delay. Jitter spreads the retries from clients that failed at
    /// the same time.
    fn backoff_seconds(&self) -> f64 {
        let backoff = &TABLE.backoff;
        let exponent = i32::try_from(self.n_retries).unwrap_or(i32::MAX);
        let longest = backoff.initial_seconds * backoff.multiplier.powi(exponent);
        longest.min(backoff.max_seconds) * (1.0 - backoff.jitter * rand::random::<f64>())
    }
}

fn class_of(operation: &Operation, has_key: bool) -> Class {
    let method_retry = TABLE.methods.get(operation.method).copied();
    let class = TABLE.operations.get(operation.id).copied().or(method_retry);
    match class.unwrap_or(TABLE.class_without_key) {
        Class::Keyed if !has_key => TABLE.class_without_key,
        Class::Other if has_key => Class::Keyed,
        class => class,
    }
}

/// A request's timeouts.
pub struct RequestTimeouts {
    /// The timeout for a connection.
    pub connect: Duration,
    /// The timeout for sending the body, and for the response.
    pub request: Duration,
}

/// Returns whether an operation can take long.
pub fn is_long(operation: &Operation) -> bool {
    let mut long = TABLE.timeouts.long_operations.iter();
    long.any(|id| id == operation.id)
}

/// Returns the timeouts for operations that can take long, or for others.
pub fn timeouts(is_long: bool) -> RequestTimeouts {
    let timeouts = &TABLE.timeouts;
    RequestTimeouts {
        connect: Duration::from_secs(timeouts.connect_seconds),
        request: Duration::from_secs(if is_long {
            timeouts.long_request_seconds
        } else {
            timeouts.request_seconds
        }),
    }
}

/// Returns the longest wait for the rate limit: its window.
pub fn rate_limit_window() -> Duration {
    Duration::from_secs_f64(TABLE.rate_limit.window_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    fn cause(error: &str, retry_after: Option<f64>) -> Cause<'_> {
        Cause {
            error,
            retry_after,
            limit: None,
        }
    }

    #[test]
    fn class_decides_about_unknown_outcomes() {
        for (operation, has_key, expected) in [
            (&operations::GET_JOB, false, true),
            (&operations::CREATE_EVAL, true, true),
            (&operations::CREATE_EVAL, false, false),
            (&operations::COMPLETE_UPLOAD, false, true),
            (&operations::CREATE_KEY, false, false),
            (&operations::find("POST", "/v1/orgs"), false, false),
            (
                &operations::find("POST", "/v1/keys/key_1/rotate"),
                false,
                false,
            ),
            (&operations::find("POST", "/v1/evals?x=1"), true, true),
            (
                &operations::find("POST", "/v1/jobs/job_1/cancel"),
                false,
                true,
            ),
            (&operations::find("POST", "/v1/none"), false, false),
            (&operations::CREATE_COMPARISON, false, false),
            (&operations::REVOKE_KEY, false, true),
        ] {
            for error in ["internal", "connection_broken", "timeout"] {
                let retries = Retries::new(operation, has_key, None).next(cause(error, None));
                assert_eq!(retries.is_some(), expected, "{} {error}", operation.id);
            }
            let unsent = cause("connection_not_established", None);
            assert!(
                Retries::new(operation, has_key, None)
                    .next(unsent)
                    .is_some()
            );
        }
    }

    #[test]
    fn only_safe_operations_are_repeated_while_unavailable() {
        for (path, expected) in [
            ("/v1/comparisons", true),
            ("/v1/keys", false),
            ("/v1/invites", false),
        ] {
            let operation = operations::find("POST", path);
            let mut retries = Retries::new(&operation, false, None);
            let next = retries.next(cause("unavailable", Some(1.0)));
            assert_eq!(next.is_some(), expected, "{path}");
        }
    }

    #[test]
    fn delay_of_the_server_is_respected_up_to_the_longest_wait() {
        let next = |after| {
            let mut retries = Retries::new(&operations::GET_JOB, false, None);
            retries.next(cause("rate_limited", Some(after)))
        };
        assert_eq!(next(7.0), Some(Duration::from_secs(7)));
        assert_eq!(next(120.0), Some(Duration::from_secs(120)));
        assert_eq!(next(121.0), None);
    }

    #[test]
    fn retries_are_counted_and_back_off() {
        let mut retries = Retries::new(&operations::GET_JOB, false, None);
        let delays: Vec<f64> = std::iter::from_fn(|| retries.next(cause("internal", None)))
            .map(|delay| delay.as_secs_f64())
            .collect();
        assert_eq!(delays.len(), 4);
        for (delay, longest) in delays.iter().zip([0.5, 1.0, 2.0, 4.0]) {
            assert!((longest / 2.0..=longest).contains(delay), "{delays:?}");
        }
    }

    #[test]
    fn only_waiting_submissions_wait_for_a_slot() {
        let full = Cause {
            error: "quota_exceeded",
            retry_after: Some(30.0),
            limit: Some("concurrent_jobs"),
        };
        let mut waiting = Retries::new(
            &operations::CREATE_EVAL,
            true,
            Some(Duration::from_secs(300)),
        );
        for _ in 0..10 {
            assert_eq!(waiting.next(full), Some(Duration::from_secs(30)));
        }
        assert_eq!(waiting.next(full), None, "the wait is over");
        let mut other = Retries::new(&operations::CREATE_EVAL, true, None);
        assert_eq!(other.next(full), None);
        let used_up = Cause {
            limit: Some("eval_items_per_month"),
            ..full
        };
        assert_eq!(waiting.next(used_up), None);
    }
}
