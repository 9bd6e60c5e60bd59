//! A suite folder's error.

/// An error in a suite's folder: the file, the line and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {reason}", if *line > 0 { format!(":{line}") } else { String::new() })]
pub struct BadSuite {
    file: String,
    line: usize,
    reason: String,
}

impl BadSuite {
    /// Creates a line's error, from 1, or of the whole file with line 0.
    pub fn new(file: &str, line: usize, reason: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line,
            reason: reason.into(),
        }
    }

    /// Creates the error for a file that cannot be read.
    pub(super) fn unreadable(file: &str, line: usize, error: &std::io::Error) -> Self {
        Self::new(file, line, format!("cannot be read: {error}"))
    }
}
