//! `items.ndjson`: what it finds, and what is refused.

use assay_engine::{ItemTable, PackageFile};

use crate::packages::assert_refused;

fn assert_items_refused(ndjson: &[u8], line: Option<usize>, cause: &str) {
    let result = ItemTable::parse(ndjson, &[8, 8, 8]);
    if let Err(error) = &result {
        assert_eq!(error.line, line, "{error}");
    }
    assert_refused(result, PackageFile::Items, cause);
}

#[test]
fn item_lines_are_checked() {
    let line =
        |item_id: &str, code: &str| format!(r#"{{"item_id": "{item_id}", "code": "{code}"}}"#);
    let after_good = |bad: &str| format!("{}\n\n{bad}\n", line("a", "0-0-0")).into_bytes();
    let codes = "`code` must be 3 numbers from 0 to 7, 7, 7, joined by `-`, without leading zeros";
    for code in [
        "1-2",
        "1-2-3-4",
        "1-2-8",
        "01-2-3",
        "1-2-",
        "",
        "1 -2-3",
        "-1-2-3",
        "1-2-99999999999999999999",
    ] {
        assert_items_refused(&after_good(&line("b", code)), Some(3), codes);
    }
    let ids = "`item_id` must have 1 to 512 bytes and no NUL character.";
    for item_id in ["", &"x".repeat(513), r"a\u0000b"] {
        assert_items_refused(&after_good(&line(item_id, "1-2-3")), Some(3), ids);
    }
    assert_items_refused(&after_good("b"), Some(3), "expected");
    assert_items_refused(
        &after_good(r#"{"item_id": "b"}"#),
        Some(3),
        "missing field `code`",
    );
    assert_items_refused(
        &after_good(r#"{"item_id": "b", "code": "1-2-3", "name": "x"}"#),
        Some(3),
        "unknown field `name`",
    );
    assert_items_refused(
        &after_good(r#"{"item_id": 7, "code": "1-2-3"}"#),
        Some(3),
        "invalid type",
    );
    let not_utf8 = [
        &line("a", "0-0-0").into_bytes()[..],
        b"\n{\"item_id\": \"\xff\", \"code\": \"0-0-1\"}",
    ]
    .concat();
    assert_items_refused(&not_utf8, Some(2), "the line is not UTF-8.");
    for empty in ["", "\n", "\n  \n\r\n"] {
        assert_items_refused(empty.as_bytes(), None, "the file has no items.");
    }
}

#[test]
fn items_must_be_distinct() {
    let lines = |rows: &[(&str, &str)]| {
        let line = |(item_id, code): &(&str, &str)| {
            format!("{{\"item_id\": \"{item_id}\", \"code\": \"{code}\"}}\n")
        };
        rows.iter().map(line).collect::<String>().into_bytes()
    };
    let same_code = lines(&[
        ("a", "7-0-0"),
        ("b", "1-1-1"),
        ("c", "0-0-0"),
        ("d", "1-1-1"),
    ]);
    assert_items_refused(&same_code, Some(4), "the same code as the item in line 2");
    let same_item = lines(&[("a", "7-0-0"), ("b", "1-1-1"), ("a", "0-0-0")]);
    assert_items_refused(
        &same_item,
        Some(3),
        "`item_id` is repeated; it is also in line 1.",
    );
}

#[test]
fn item_table_finds_items_by_id_and_position() {
    let ndjson = "{\"code\": \"7-0-1\", \"item_id\": \"ra\\u006den\"}\r\n{\"item_id\": \"カレー\", \"code\": \"0-3-0\"}";
    let items = ItemTable::parse(ndjson.as_bytes(), &[8, 8, 8]).unwrap();
    assert_eq!((items.len(), items.is_empty()), (2, false));
    assert_eq!(items.code_of("ramen"), Some(&[7, 0, 1][..]));
    assert_eq!(items.position_of("ramen"), Some(1));
    assert_eq!(items.item_at(0), Some("カレー"));
    assert_eq!(items.code_at(0), Some(&[0, 3, 0][..]));
    assert_eq!(
        (
            items.item_at(2),
            items.code_at(2),
            items.code_at(usize::MAX)
        ),
        (None, None, None)
    );
    assert_eq!(
        (items.code_of("salad"), items.position_of("7-0-1")),
        (None, None)
    );
}
