//! Words with one spelling: ids, cursors, versions, metrics, moments, names, members of closed sets.

use std::fmt::Display;
use std::str::FromStr;

use assay_core::model::job::{JobStatus, JobType};
use assay_core::model::suite::{ItemCursor, SuiteId, VERSION_MAX, is_version};
use assay_core::model::upload::{ContentEncoding, ContentType, UploadKind};
use assay_core::model::validation;
use assay_core::{
    InviteId, JobId, KeyId, OrgId, RequestId, SessionId, Timestamp, UploadId, UserId, WorkerId,
};
use assay_eval::Metric;

use super::{Seeded, fit_to_be_told};

/// What is read is written as it was; nothing else is read.
pub fn words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let ids = [
        one_spelling::<OrgId>(text, "org_"),
        one_spelling::<KeyId>(text, "key_"),
        one_spelling::<UserId>(text, "usr_"),
        one_spelling::<SessionId>(text, "ses_"),
        one_spelling::<InviteId>(text, "inv_"),
        one_spelling::<JobId>(text, "job_"),
        one_spelling::<UploadId>(text, "upl_"),
        one_spelling::<WorkerId>(text, "wrk_"),
        one_spelling::<RequestId>(text, "req_"),
        one_spelling::<SuiteId>(text, "suite:"),
    ];
    assert!(ids.iter().filter(|is_one| **is_one).count() <= 1);
    if ids.contains(&true) {
        assert!(text.is_ascii() && text.len() <= 70 && !text.contains(char::is_whitespace));
    }
    one_spelling::<Metric>(text, "");
    one_spelling::<JobStatus>(text, "");
    one_spelling::<JobType>(text, "");
    one_spelling::<UploadKind>(text, "");
    one_spelling::<ContentType>(text, "application/");
    one_spelling::<ContentEncoding>(text, "");
    if is_version(text) {
        assert!(text.is_ascii() && (1..=VERSION_MAX).contains(&text.len()));
    }
    cursors(text);
    moments(text);
    names(text);
}

fn one_spelling<T: FromStr + Display>(text: &str, prefix: &str) -> bool {
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
        Err(error) => fit_to_be_told(&error.message),
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

fn moments(text: &str) {
    let Ok(moment) = text.parse::<Timestamp>() else {
        return;
    };
    let written = moment.to_string();
    assert_eq!(written.len(), "2026-01-31T23:59:59.000000Z".len());
    let again: Timestamp = written.parse().unwrap();
    // Less than a microsecond is not written.
    assert_eq!(moment.unix_micros(), again.unix_micros());
    assert!(again <= moment && moment.unix_nanos() - again.unix_nanos() < 1_000);
    assert_eq!(again.to_string(), written);
    // Read without the library: what was written is that moment.
    assert_eq!(micros(&written), i128::from(again.unix_micros()));
    assert_eq!(validation::moment("before", text), Ok(moment));
}

/// Microseconds since 1970 of `YYYY-MM-DDThh:mm:ss.uuuuuuZ`, by the days of each year and month.
fn micros(written: &str) -> i128 {
    let number = |range: std::ops::Range<usize>| -> i128 { written[range].parse().unwrap() };
    let is_leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (year, month) = (number(0..4), number(5..7));
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
        Err(fault) => fit_to_be_told(&fault.message),
    }
    let told = |fault: Option<assay_eval::FieldError>| {
        fault
            .iter()
            .for_each(|fault| fit_to_be_told(&fault.message));
    };
    told(validation::one_of::<JobStatus>("status", text).err());
    told(validation::moment("before", text).err());
}
