//! The errors of a table.

use std::io;

use assay_eval::suite::BadSuite;

/// The most errors that are kept.
const KEPT_MAX: usize = 100;

/// The errors of a table: the first 100, and the number of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableErrors {
    /// The first errors, in the order in which they were found.
    pub errors: Vec<BadSuite>,
    /// The number of all errors.
    pub n_errors: u64,
}

impl TableErrors {
    /// Adds an error.
    pub(crate) fn push(&mut self, error: BadSuite) {
        self.n_errors += 1;
        if self.errors.len() < KEPT_MAX {
            self.errors.push(error);
        }
    }

    /// Returns the errors as an error, or `value` if there are none.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Self> {
        if self.n_errors == 0 {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl From<BadSuite> for TableErrors {
    fn from(error: BadSuite) -> Self {
        Self::from(vec![error])
    }
}

impl From<Vec<BadSuite>> for TableErrors {
    fn from(errors: Vec<BadSuite>) -> Self {
        Self {
            n_errors: errors.len() as u64,
            errors,
        }
    }
}

/// Returns the error of lines that cannot be written.
pub(crate) fn cannot_write(name: &str, error: &io::Error) -> BadSuite {
    BadSuite::new(name, 0, format!("the lines cannot be written: {error}"))
}
