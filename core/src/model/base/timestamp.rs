//! Timestamps: their format, and the only place that reads the process's clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime, UtcOffset};

/// A point in time in UTC, formatted with microseconds: `2026-01-31T23:59:59.000000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct Timestamp(OffsetDateTime);

impl Timestamp {
    /// Midnight UTC when 1970 began.
    pub const UNIX_EPOCH: Self = Self(OffsetDateTime::UNIX_EPOCH);

    /// Returns the process's own clock time.
    ///
    /// Times that are stored or compared come from the database's clock instead. This clock is for
    /// times that no database can provide, such as the fallback counters' while Redis is
    /// unavailable.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the process's clock"
    )]
    pub fn now() -> Self {
        Self(OffsetDateTime::now_utc())
    }

    /// Returns the seconds since 1970, rounded down.
    pub fn unix_seconds(self) -> i64 {
        self.0.unix_timestamp()
    }

    /// Returns the microseconds since 1970, rounded down, as the formatted timestamp is.
    pub fn unix_micros(self) -> i64 {
        i64::try_from(self.0.unix_timestamp_nanos().div_euclid(1000)).unwrap_or(i64::MAX)
    }

    /// Returns the timestamp this many microseconds after 1970 began, or `None` if its year
    /// is not between 1 and 9999.
    pub fn from_unix_micros(micros: i64) -> Option<Self> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000)
            .ok()
            .filter(|at| (1..=9999).contains(&at.year()))
            .map(Self)
    }

    /// Returns the nanoseconds since 1970 began.
    pub fn unix_nanos(self) -> i128 {
        self.0.unix_timestamp_nanos()
    }

    /// Returns the second's fraction, in nanoseconds.
    pub fn subsecond_nanos(self) -> u32 {
        self.0.nanosecond()
    }

    /// Returns the seconds until `later`, rounded up, or 0 if it has passed.
    pub fn seconds_until(self, later: Self) -> u32 {
        let left = later.0 - self.0;
        let seconds = left.whole_seconds() + i64::from(left.subsec_nanoseconds() > 0);
        u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
    }

    /// Returns the timestamp this many microseconds later.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(Duration::microseconds(micros)))
    }
}

impl From<Timestamp> for std::time::SystemTime {
    fn from(at: Timestamp) -> Self {
        at.0.into()
    }
}

/// The string is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be RFC 3339, such as 2026-01-31T23:59:59Z")]
pub struct MalformedTimestamp;

impl FromStr for Timestamp {
    type Err = MalformedTimestamp;
    /// Parses RFC 3339. A timestamp whose year in UTC is not between 1 and 9999 is rejected,
    /// because it could not be formatted again.
    fn from_str(text: &str) -> Result<Self, MalformedTimestamp> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| MalformedTimestamp)?;
        let at = at
            .checked_to_offset(UtcOffset::UTC)
            .filter(|at| (1..=9999).contains(&at.year()));
        at.map(Self).ok_or(MalformedTimestamp)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.0.to_offset(UtcOffset::UTC);
        let date = at.date();
        let time = at.time();
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
            date.year(),
            u8::from(date.month()),
            date.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.microsecond()
        )
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::model::openapi_schema::timestamp()
    }
}

impl utoipa::ToSchema for Timestamp {}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_has_microseconds_in_utc() {
        let read: Timestamp = serde_json::from_str("\"2026-01-31T23:59:59+01:00\"").unwrap();
        assert_eq!(read.to_string(), "2026-01-31T22:59:59.000000Z");
        assert_eq!(
            read.plus_micros(1).to_string(),
            "2026-01-31T22:59:59.000001Z"
        );
    }

    #[test]
    fn nanoseconds_are_rounded_down() {
        for text in [
            "0162-12-31T23:59:60Z",
            "1969-12-31T23:59:59.999999999Z",
            "2026-01-31T23:59:59.000000999Z",
        ] {
            let read: Timestamp = text.parse().unwrap();
            let written: Timestamp = read.to_string().parse().unwrap();
            assert_eq!(read.unix_micros(), written.unix_micros(), "{text}");
        }
    }

    #[test]
    fn timestamp_outside_calendar_is_rejected() {
        for bad in [
            "9999-12-31T23:59:59-23:59",
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+00:01",
            "2026-02-30T00:00:00Z",
            "now",
        ] {
            assert_eq!(bad.parse::<Timestamp>(), Err(MalformedTimestamp), "{bad}");
        }
        assert!(
            "9999-12-31T23:59:59.999999999Z"
                .parse::<Timestamp>()
                .is_ok()
        );
    }

    #[test]
    fn seconds_until_is_rounded_up() {
        let at: Timestamp = serde_json::from_str("\"2026-01-31T23:59:59Z\"").unwrap();
        assert_eq!(at.seconds_until(at.plus_micros(1)), 1);
        assert_eq!(at.seconds_until(at.plus_micros(2_000_000)), 2);
        assert_eq!(at.plus_micros(1).seconds_until(at), 0);
    }
}
