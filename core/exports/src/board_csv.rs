//! Board rows as CSV.

use crate::resources::BoardRow;
use crate::text::line;

/// The columns. They have the names that fields have in the API.
const COLUMNS: [&str; 18] = [
    "entry_id",
    "name",
    "org_name",
    "org_domain",
    "url",
    "by_publisher",
    "tier",
    "rank_low",
    "rank_high",
    "value",
    "ci95_low",
    "ci95_high",
    "n_missing",
    "n_submissions",
    "n_withdrawn",
    "entered_at",
    "withdrawn_at",
    "receipt_id",
];

/// Returns the rows as CSV (RFC 4180) with a header. A field that is null is empty. A text that a spreadsheet would
/// take for a formula begins with `'`.
pub fn board_csv(rows: &[BoardRow]) -> String {
    let mut csv = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    let records = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows.iter().map(record));
    for record in records {
        // Writing to memory does not fail.
        let _ = csv.write_record(record);
    }
    let bytes = csv.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn record(row: &BoardRow) -> [String; 18] {
    let BoardRow {
        entry_id,
        name,
        org_name,
        org_domain,
        url,
        by_publisher,
        tier,
        rank_low,
        rank_high,
        value,
        ci95,
        n_missing,
        n_submissions,
        n_withdrawn,
        entered_at,
        withdrawn_at,
        receipt_id,
    } = row;
    let [low, high] = match ci95 {
        Some(ends) => ends.map(|end| end.to_string()),
        None => [String::new(), String::new()],
    };
    let text = |text: &Option<String>| text.as_deref().map_or_else(String::new, guarded);
    [
        guarded(entry_id),
        text(name),
        text(org_name),
        text(org_domain),
        text(url),
        by_publisher.to_string(),
        tier.to_string(),
        rank_low.to_string(),
        rank_high.to_string(),
        value.to_string(),
        low,
        high,
        n_missing.to_string(),
        n_submissions.to_string(),
        n_withdrawn.to_string(),
        guarded(entered_at),
        text(withdrawn_at),
        text(receipt_id),
    ]
}

/// Returns a text that no spreadsheet takes for a formula, in one line.
fn guarded(text: &str) -> String {
    let shown = line(text);
    let is_formula = |text: &str| text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    // A character that `line` removes must not hide the first one.
    let is_guarded = is_formula(text) || is_formula(&shown);
    format!("{}{shown}", if is_guarded { "'" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_as_python_writes_them() {
        let rows = include_str!("../../../tests/vectors/boards.json");
        let rows: Vec<BoardRow> = serde_json::from_str(rows).unwrap();
        let expected = include_str!("../../../tests/vectors/boards.csv");
        assert_eq!(board_csv(&rows), expected);
    }
}
