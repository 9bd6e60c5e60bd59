//! A suite's files, with its table, in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read};

use assay_eval::suite::{
    ANSWERS, BadSuite, BadSuiteCode, ITEMS, SUITE, SuiteDefinition, SuiteFiles, SuiteFolder,
};

use super::convert::{ARRAYS, has_arrays, write_lines};
use super::converter::LineWriter;

/// Reads and checks a suite, and converts a table or arrays. `default_seed` is the
/// `seal_seed` of a suite with sealed items that names none.
///
/// # Errors
/// Returns all errors in `suite.toml`, the first 100 in a table, or another file's first one.
pub fn read_suite(
    files: &dyn SuiteFiles,
    default_seed: Option<&str>,
) -> Result<SuiteFolder, Vec<BadSuite>> {
    let unreadable = |name: &str, error: io::Error| vec![BadSuite::unreadable(name, 0, &error)];
    let text = files
        .text(SUITE)
        .map_err(|error| unreadable(SUITE, error))?;
    let text = text.ok_or_else(|| {
        let error = BadSuite::new(SUITE, 0, "cannot be read: there is no such file");
        vec![error.with_code(BadSuiteCode::Required)]
    })?;
    let definition = SuiteDefinition::parse(&text)?;
    let is_array = has_arrays(&definition, files).map_err(|error| unreadable(ARRAYS[0], error))?;
    let names = match &definition.data {
        Some(data) => [data.file.clone(), data.file.clone()],
        None if is_array => ARRAYS.map(String::from),
        None => {
            let read = SuiteFolder::read_lines(definition, files, default_seed);
            return read.map_err(|error| vec![error]);
        }
    };
    let (mut items, mut answers) = (Vec::new(), Vec::new());
    {
        // Blank lines keep the numbers of lines in errors.
        let mut items = LineWriter::new(&mut items, true);
        let mut answers = LineWriter::new(&mut answers, true);
        let written = write_lines(&definition, files, &mut items, &mut answers);
        written.map_err(|found| found.errors)?;
    }
    let lines = [(ITEMS.to_owned(), items), (ANSWERS.to_owned(), answers)];
    let converted = Converted {
        files,
        lines: lines.into(),
    };
    let read = SuiteFolder::read_lines(definition, &converted, default_seed);
    read.map_err(|error| vec![renamed(error, &names)])
}

/// Names the publisher's own file in an error about the lines.
fn renamed(mut error: BadSuite, [items, answers]: &[String; 2]) -> BadSuite {
    for (lines, name) in [(ITEMS, items), (ANSWERS, answers)] {
        if error.file == lines {
            error.file.clone_from(name);
        }
        error.message = error.message.replace(lines, name);
    }
    error
}

/// The files of a suite with the lines that its table became.
struct Converted<'f> {
    files: &'f dyn SuiteFiles,
    lines: BTreeMap<String, Vec<u8>>,
}

impl SuiteFiles for Converted<'_> {
    fn text(&self, name: &str) -> io::Result<Option<String>> {
        match self.lines.contains_key(name) {
            true => self.lines.text(name),
            false => self.files.text(name),
        }
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        match self.lines.get(name) {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes))),
            None => self.files.open(name),
        }
    }

    fn file(&self, name: &str) -> io::Result<Option<File>> {
        self.files.file(name)
    }
}
