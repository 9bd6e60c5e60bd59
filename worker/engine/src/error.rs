//! This crate's two errors: a package that cannot be loaded, and a request that cannot be
//! computed.

/// A package file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageFile {
    /// `model.json`.
    Model,
    /// `weights.safetensors`.
    Weights,
    /// `items.ndjson`.
    Items,
}

impl PackageFile {
    /// Returns the file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model.json",
            Self::Weights => "weights.safetensors",
            Self::Items => "items.ndjson",
        }
    }
}

/// An error in a package: the file, the line if there is one, and a sentence that says what is wrong
/// and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", file.name(), line.map_or_else(String::new, |line| format!(" line {line}")))]
pub struct PackageError {
    /// The file with the error.
    pub file: PackageFile,
    /// The line with the error, from 1. `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// A sentence without the file's name.
    pub reason: String,
}

impl PackageError {
    pub(crate) fn model(reason: impl Into<String>) -> Self {
        Self::in_file(PackageFile::Model, reason)
    }

    pub(crate) fn weights(reason: impl Into<String>) -> Self {
        Self::in_file(PackageFile::Weights, reason)
    }

    pub(crate) fn items(reason: impl Into<String>) -> Self {
        Self::in_file(PackageFile::Items, reason)
    }

    pub(crate) fn item_line(line: usize, reason: impl Into<String>) -> Self {
        Self {
            file: PackageFile::Items,
            line: Some(line),
            reason: shortened(reason.into()),
        }
    }

    fn in_file(file: PackageFile, reason: impl Into<String>) -> Self {
        Self {
            file,
            line: None,
            reason: shortened(reason.into()),
        }
    }
}

/// Cuts a sentence that quotes a long piece of the file.
fn shortened(mut reason: String) -> String {
    const CHARACTERS_MAX: usize = 400;
    if let Some((end, _)) = reason.char_indices().nth(CHARACTERS_MAX) {
        reason.truncate(end);
        reason.push('…');
    }
    reason
}

/// The reason why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An event names an item that the model does not know, and the request refuses such events.
    #[error(
        "`events[{event}].item_id` is not an item of the model. Remove the event, or set `on_unknown` to `skip`."
    )]
    UnknownItem {
        /// The first such event's index, in the order in which the engine received the events.
        event: usize,
    },
    /// The model looks back on fewer events, and the request refuses to leave events out.
    #[error(
        "The sequence has {n_events} events and the model looks back on {context_length}. Send fewer events, or set `on_long` to `truncate`."
    )]
    TooLong {
        /// The number of events whose item the model knows.
        n_events: usize,
        /// The number of events that the model looks back on.
        context_length: usize,
    },
    /// The operation returns catalog items, and the package has no item table.
    #[error("No tokenizer is fitted, so the model cannot return items.")]
    NoItemTable,
    /// `should_stop` returned `true`.
    #[error("The computation was stopped.")]
    Stopped,
    /// The weights produce a value that is infinite or not a number.
    #[error("The model computed a value that is not finite.")]
    NotFinite,
}
