//! String rows in one allocation. A call with 64 long histories would otherwise have tens of
//! thousands.

use std::ops::Range;

/// String rows. A row can be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    text: String,
    /// Each string's end in `text`.
    ends: Vec<usize>,
    /// Each row's strings, by their indexes in `ends`.
    rows: Vec<Option<Range<usize>>>,
}

impl Texts {
    /// Appends a row.
    pub fn push_row<'t>(&mut self, row: impl IntoIterator<Item = &'t str>) {
        let start = self.ends.len();
        for text in row {
            self.text.push_str(text);
            self.ends.push(self.text.len());
        }
        self.rows.push(Some(start..self.ends.len()));
    }

    /// Appends an absent row.
    pub fn push_absent_row(&mut self) {
        self.rows.push(None);
    }

    /// Returns a row's strings. Returns `None` if it is absent or does not exist.
    pub fn row(&self, row: usize) -> Option<impl ExactSizeIterator<Item = &str> + Clone> {
        let range = self.rows.get(row)?.clone()?;
        Some(range.map(|index| {
            let start = match index {
                0 => 0,
                index => self.ends.get(index - 1).copied().unwrap_or_default(),
            };
            let end = self.ends.get(index).copied().unwrap_or_default();
            self.text.get(start..end).unwrap_or_default()
        }))
    }

    /// Returns the row count.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let mut texts = Texts::default();
        texts.push_row(["é", "", "abc"]);
        texts.push_absent_row();
        texts.push_row([]);
        texts.push_row(["d"]);
        assert_eq!(texts.len(), 4);
        let rows: Vec<Option<Vec<&str>>> =
            (0..5).map(|row| Some(texts.row(row)?.collect())).collect();
        assert_eq!(
            rows,
            [
                Some(vec!["é", "", "abc"]),
                None,
                Some(vec![]),
                Some(vec!["d"]),
                None
            ]
        );
    }
}
