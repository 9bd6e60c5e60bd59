//! Values with one canonical spelling: ids, cursors, versions, metrics, timestamps, names,
//! closed-set members.

use std::fmt::Display;
use std::str::FromStr;

use assay_core::model::date::Date;
use assay_core::model::ids::is_version;
use assay_core::model::job::{JobStatus, JobType};
use assay_core::model::suite::{SuiteId, VERSION_MAX};
use assay_core::model::suite_items::ItemCursor;
use assay_core::model::upload::{ContentEncoding, ContentType, UploadKind};
use assay_core::model::validation;
use assay_core::{
    InviteId, JobId, KeyId, OrgId, RequestId, SessionId, Timestamp, UploadId, UserId, WorkerId,
};
use assay_eval::Metric;

use super::{Seeded, assert_safe_message};

/// A parsed value is displayed as it was written; every other spelling is rejected.
pub fn words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let ids = [
        has_one_spelling::<OrgId>(text, "org_"),
        has_one_spelling::<KeyId>(text, "key_"),
        has_one_spelling::<UserId>(text, "usr_"),
        has_one_spelling::<SessionId>(text, "ses_"),
        has_one_spelling::<InviteId>(text, "inv_"),
        has_one_spelling::<JobId>(text, "job_"),
        has_one_spelling::<UploadId>(text, "upl_"),
        has_one_spelling::<WorkerId>(text, "wrk_"),
        has_one_spelling::<RequestId>(text, "req_"),
        has_one_spelling::<SuiteId>(text, "suite:"),
    ];
    assert!(ids.iter().filter(|is_one| **is_one).count() <= 1);
    if ids.contains(&true) {
        assert!(text.is_ascii() && text.len() <= 70 && !text.contains(char::is_whitespace));
    }
    has_one_spelling::<Metric>(text, "");
    has_one_spelling::<Date>(text, "");
    has_one_spelling::<JobStatus>(text, "");
    has_one_spelling::<JobType>(text, "");
    has_one_spelling::<UploadKind>(text, "");
    has_one_spelling::<ContentType>(text, "application/");
    has_one_spelling::<ContentEncoding>(text, "");
    if is_version(text) {
        assert!(text.is_ascii() && (1..=VERSION_MAX).contains(&text.len()));
    }
    cursors(text);
    timestamps(text);
    names(text);
}

fn has_one_spelling<T: FromStr + Display>(text: &str, prefix: &str) -> bool {
    let read = text.parse::<T>();
    if let Ok(read) = &read {
        assert_eq!(read.to_string(), text);
        assert!(text.starts_with(prefix));
    }
    read.is_ok()
}

fn cursors(text: &str) {
    match text.parse::<ItemCursor>() {
        Ok(cursor) => {
            assert_eq!(cursor.to_string(), text);
            assert!(cursor.ordinal >= 0 && is_version(&cursor.version));
        }
        Err(error) => assert_safe_message(&error.message),
    }
    let ordinal = Seeded::of(text.as_bytes()).below(1 << 31) as i32;
    let Ok(suite_id) = "suite:lunch".parse() else {
        return;
    };
    let cursor = ItemCursor::new(&suite_id, text.to_owned(), ordinal);
    assert_eq!(
        cursor.to_string().parse().ok(),
        is_version(text).then_some(cursor)
    );
}

fn timestamps(text: &str) {
    let Ok(timestamp) = text.parse::<Timestamp>() else {
        return;
    };
    let written = timestamp.to_string();
    assert_eq!(written.len(), "2026-01-31T23:59:59.000000Z".len());
    let again: Timestamp = written.parse().unwrap();
    // Microsecond fractions are not displayed.
    assert_eq!(timestamp.unix_micros(), again.unix_micros());
    assert!(again <= timestamp && timestamp.unix_nanos() - again.unix_nanos() < 1_000);
    assert_eq!(again.to_string(), written);
    // Read without the library, the displayed text is the same timestamp.
    assert_eq!(micros(&written), i128::from(again.unix_micros()));
    assert_eq!(validation::timestamp("before", text), Ok(timestamp));
}

/// Returns the microseconds since 1970 for `YYYY-MM-DDThh:mm:ss.uuuuuuZ`, from each year's and
/// month's days.
fn micros(written: &str) -> i128 {
    let number = |range: std::ops::Range<usize>| -> i128 { written[range].parse().unwrap() };
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let year = number(0..4);
    let month = number(5..7);
    let before = year - 1;
    let mut days = before * 365 + before / 4 - before / 100 + before / 400 - 719_162;
    for earlier in 1..month {
        days += match earlier {
            2 => 28 + i128::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
    }
    days += number(8..10) - 1;
    (((days * 24 + number(11..13)) * 60 + number(14..16)) * 60 + number(17..19)) * 1_000_000
        + number(20..26)
}

fn names(text: &str) {
    match validation::text("name", text) {
        Ok(name) => {
            assert!(
                name == text.trim()
                    && !name.is_empty()
                    && name.chars().count() <= validation::TEXT_MAX
            );
            assert!(!name.chars().any(char::is_control));
            assert_eq!(validation::text("name", &name), Ok(name));
        }
        Err(error) => assert_safe_message(&error.message),
    }
    let assert_message = |error: Option<assay_eval::FieldError>| {
        error
            .iter()
            .for_each(|error| assert_safe_message(&error.message));
    };
    assert_message(validation::one_of::<JobStatus>("status", text).err());
    assert_message(validation::timestamp("before", text).err());
}
