//! Messages for people, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

use crate::output::visible_lines;

/// A run's verbosity.
#[derive(Debug, Clone, Copy)]
pub struct Messages {
    /// Hints and progress are shown.
    pub shows_progress: bool,
    /// Warnings and notes are shown.
    pub shows_notes: bool,
    /// One line per request is shown.
    pub is_verbose: bool,
}

impl Messages {
    /// Creates a run's messages. Progress is only shown on a terminal.
    pub fn new(is_quiet: bool, is_verbose: bool) -> Self {
        Self {
            shows_progress: !is_quiet && io::stderr().is_terminal(),
            shows_notes: !is_quiet,
            is_verbose,
        }
    }

    /// Shows a hint or progress.
    pub fn progress(self, message: &str) {
        if self.shows_progress {
            print(message);
        }
    }

    /// Shows a fact that does not belong to the output, also without a terminal.
    pub fn note(self, message: &str) {
        if self.shows_notes {
            print(message);
        }
    }

    /// Shows a warning.
    pub fn warn(self, message: &str) {
        self.note(&format!("warning: {message}"));
    }

    /// Shows a line about a request. It never has a secret or a body.
    pub fn verbose(self, message: &str) {
        if self.is_verbose {
            print(message);
        }
    }

    /// Returns a progress bar, which is hidden unless progress is shown.
    pub fn bar(self, n: Option<u64>, style: indicatif::ProgressStyle) -> ProgressBar {
        if !self.shows_progress {
            return ProgressBar::hidden();
        }
        let bar = match n {
            Some(n) => ProgressBar::new(n),
            None => ProgressBar::new_spinner(),
        };
        bar.with_style(style)
    }
}

/// Prints a message, also if the program is quiet. Its lines cannot change the terminal.
pub fn print(message: &str) {
    let message = visible_lines(message);
    // A closed standard error must not end the work.
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// The text that is printed when the user interrupts the program.
static ON_INTERRUPT: Mutex<Option<String>> = Mutex::new(None);

fn on_interrupt() -> std::sync::MutexGuard<'static, Option<String>> {
    ON_INTERRUPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the text that is printed if the user interrupts the program from now on.
pub fn set_interrupt_text(text: Option<String>) {
    *on_interrupt() = text;
}

/// Ends the program with exit code 130 when the user interrupts it. Without this, the text could not
/// be printed.
pub fn handle_interrupts() {
    // A program in a script's background ignores interrupts, and must keep ignoring them.
    let handled = ctrlc::try_set_handler(|| {
        let mut error = io::stderr().lock();
        if let Some(text) = on_interrupt().as_deref() {
            let _ = writeln!(error, "\n{}", visible_lines(text));
        }
        std::process::exit(130);
    });
    // Without the handler, the operating system ends the program, and the text is missing.
    let _ = handled;
}
