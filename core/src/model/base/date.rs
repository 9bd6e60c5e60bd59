//! Calendar days in UTC.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A day in UTC, formatted as in RFC 3339: `2026-01-31`. Its year is between 1 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct Date(time::Date);

impl Date {
    /// Returns the day this many days earlier, or the first day of the year 1.
    #[must_use]
    pub fn minus_days(self, days: i64) -> Self {
        let earlier = self.0.saturating_sub(time::Duration::days(days));
        if earlier.year() < 1 {
            return Self(time::Date::from_ordinal_date(1, 1).unwrap_or(self.0));
        }
        Self(earlier)
    }

    /// Returns how many days there are from this day to `last`, both included. It is not positive
    /// if `last` is earlier.
    pub fn days_through(self, last: Self) -> i64 {
        (last.0 - self.0).whole_days() + 1
    }
}

/// The string is not a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a date, such as 2026-01-31")]
pub struct MalformedDate;

impl FromStr for Date {
    type Err = MalformedDate;

    fn from_str(text: &str) -> Result<Self, MalformedDate> {
        let number = |digits: &str, length: usize| {
            let is_number = digits.len() == length && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u16>().ok().filter(|_| is_number)
        };
        let parse = || {
            let (year, rest) = text.split_once('-')?;
            let (month, day) = rest.split_once('-')?;
            let year = number(year, 4).filter(|year| *year > 0)?;
            let month = time::Month::try_from(u8::try_from(number(month, 2)?).ok()?).ok()?;
            let day = u8::try_from(number(day, 2)?).ok()?;
            time::Date::from_calendar_date(i32::from(year), month, day).ok()
        };
        parse().map(Self).ok_or(MalformedDate)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}-{:02}-{day:02}", u8::from(month))
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl utoipa::PartialSchema for Date {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::model::openapi_schema::date()
    }
}

impl utoipa::ToSchema for Date {}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn date_has_one_spelling() {
        for good in ["0001-01-01", "2024-02-29", "9999-12-31"] {
            assert_eq!(date(good).to_string(), good);
        }
        for bad in [
            "",
            "2026-1-31",
            "2026-01-1",
            "2026-02-30",
            "2025-02-29",
            "0000-01-01",
            "10000-01-01",
            "-001-01-01",
            "+026-01-01",
            "2026-01-31T00:00:00Z",
            "2026-01-31 ",
            "2026-13-01",
            "20260131",
            "２０２６-01-01",
        ] {
            assert_eq!(bad.parse::<Date>(), Err(MalformedDate), "{bad}");
        }
    }

    #[test]
    fn ranges_include_both_days() {
        assert_eq!(date("2024-02-28").days_through(date("2024-03-01")), 3);
        assert_eq!(date("2026-01-31").days_through(date("2026-01-31")), 1);
        assert_eq!(date("2026-01-31").days_through(date("2026-01-30")), 0);
        assert_eq!(date("2024-03-01").minus_days(2), date("2024-02-28"));
        assert_eq!(date("0001-01-05").minus_days(29), date("0001-01-01"));
    }
}
