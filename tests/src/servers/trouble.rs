//! The launcher's error type.

use std::error::Error;
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

/// Lines from a server's log that an error quotes.
const TAIL_LINES: usize = 15;

/// An error of the launcher, as a sentence for the user that says what to do.
pub struct Trouble(String);

impl Trouble {
    /// Creates an error from a complete sentence for the user at the terminal.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// Returns an adaptor for `map_err`, whose error is the failed step followed by the cause.
    pub fn because<E: Display>(tried: impl Display) -> impl FnOnce(E) -> Self {
        move |cause| Self(format!("{tried}: {cause}"))
    }

    /// Appends a log's last lines, which usually contain the cause.
    pub(super) fn with_log(self, log: &Path) -> Self {
        let Ok(bytes) = fs::read(log) else {
            return self;
        };
        let text = String::from_utf8_lossy(&bytes);
        let tail = last_lines(&text);
        if tail.is_empty() {
            return self;
        }
        Self(format!("{self} The last lines of its log:\n{tail}"))
    }
}

/// Returns the last [`TAIL_LINES`] lines of a text.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let first = lines.len().saturating_sub(TAIL_LINES);
    lines.get(first..).unwrap_or_default().join("\n")
}

impl Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Formats like `Display`, because a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

impl Error for Trouble {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_the_last_lines() {
        let text: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        let tail = last_lines(&text.join("\n"));
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with("99"));
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn trouble_displays_its_sentence() {
        let trouble = Trouble::because("Opening the door failed")("it is locked");
        assert_eq!(trouble.to_string(), "Opening the door failed: it is locked");
        assert_eq!(format!("{trouble:?}"), trouble.to_string());
    }
}
