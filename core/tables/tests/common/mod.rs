//! Suites in memory.

use std::collections::BTreeMap;

use assay_eval::suite::SuiteDefinition;
use assay_tables::{TableErrors, convert};

/// The files of a suite.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Returns `suite.toml` with a table.
pub fn head(metric: &str, file: &str, data: &str) -> String {
    format!(
        "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n[data]\nfile = \"{file}\"\nanswer = \"y\"\n{data}\n"
    )
}

/// Returns a table's lines: items and answers.
pub fn lines(head: &str, file: &str, bytes: &[u8]) -> Result<[String; 2], TableErrors> {
    let files = Files::from([(file.to_owned(), bytes.to_vec())]);
    let definition = SuiteDefinition::parse(head).unwrap();
    let (mut items, mut answers) = (Vec::new(), Vec::new());
    convert(&definition, &files, &mut items, &mut answers)?;
    Ok([items, answers].map(|lines| String::from_utf8(lines).unwrap()))
}

/// Returns the errors of a table.
pub fn errors(head: &str, file: &str, bytes: &[u8]) -> TableErrors {
    lines(head, file, bytes).err().unwrap_or_default()
}
