//! The sources of a suite's files: a folder, or memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;

use super::names::{ANSWERS, ITEMS, SUITE};

/// The files of a suite by their names, such as a folder on disk.
pub trait SuiteFiles {
    /// Returns a file's text. `None` if there is none; an error of the kind
    /// [`ErrorKind::InvalidData`] if it is not UTF-8.
    fn text(&self, name: &str) -> io::Result<Option<String>>;

    /// Opens a file, or returns an error of the kind [`ErrorKind::NotFound`].
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;

    /// Returns a file that can be read at any place. `None` if the files do not have that form: then
    /// a reader that needs it keeps the bytes of [`SuiteFiles::open`] in memory.
    fn file(&self, name: &str) -> io::Result<Option<File>> {
        _ = name;
        Ok(None)
    }
}

impl SuiteFiles for &Path {
    fn text(&self, name: &str) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.join(name)) {
            Ok(text) => Ok(Some(text)),
            // A file of answers without a suite is no folder.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(File::open(self.join(name))?))
    }

    fn file(&self, name: &str) -> io::Result<Option<File>> {
        File::open(self.join(name)).map(Some)
    }
}

/// Files in memory: names and bytes.
impl SuiteFiles for BTreeMap<String, Vec<u8>> {
    fn text(&self, name: &str) -> io::Result<Option<String>> {
        let text = self.get(name).map(|bytes| str::from_utf8(bytes));
        let text = text
            .transpose()
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file is not UTF-8"))?;
        Ok(text.map(str::to_owned))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let bytes = self.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(bytes)))
    }
}

/// Returns a suite's files in memory: `suite.toml`, the items, the answers, and others by their names.
pub(super) fn in_memory<'t>(
    suite_toml: &'t str,
    items: &'t str,
    answers: &'t str,
    others: impl IntoIterator<Item = (&'t str, &'t str)>,
) -> BTreeMap<String, Vec<u8>> {
    [(SUITE, suite_toml), (ITEMS, items), (ANSWERS, answers)]
        .into_iter()
        .chain(others)
        .map(|(name, text)| (name.to_owned(), text.into()))
        .collect()
}
