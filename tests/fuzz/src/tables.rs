//! A publisher's table, after a byte that selects its format, the metric and the columns' roles.

use std::collections::BTreeMap;

use assay_eval::suite::{SuiteDefinition, SuiteFolder};
use assay_tables::{TableErrors, convert, read_suite};
use sha2::{Digest as _, Sha256};

use super::assert_safe_message;

/// Parquet is not among them: its library panics on malformed files, which the converter catches and a fuzzer does
/// not.
const FILES: [&str; 3] = ["v.csv", "v.ndjson", "v.json"];
const METRICS: [&str; 3] = ["accuracy", "rmse", "tvd"];
const ROLES: [&str; 4] = [
    "",
    "id = \"id\"\n",
    "groups = [\"g\"]\ndrop = [\"x\"]\n",
    "hidden_groups = [\"g\"]\nn = \"n\"\ntext = [\"x\"]\n",
];

/// The lines of a valid table are a suite whose commitment is that of the lines. An invalid table has 1
/// to 100 errors, which name the file.
pub fn tables(data: &[u8]) {
    let Some((selector, table)) = data.split_first() else {
        return;
    };
    let selector = usize::from(*selector);
    let file = FILES[selector % 3];
    let head = format!(
        "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{}\"\n",
        METRICS[selector / 3 % 3]
    );
    let roles = ROLES[selector / 9 % 4];
    let suite = format!("{head}[data]\nfile = \"{file}\"\nanswer = \"y\"\n{roles}");
    let definition = SuiteDefinition::parse(&suite).unwrap();
    let files = BTreeMap::from([
        ("suite.toml".to_owned(), suite.into_bytes()),
        (file.to_owned(), table.to_vec()),
    ]);
    let (mut items, mut answers) = (Vec::new(), Vec::new());
    match convert(&definition, &files, &mut items, &mut answers) {
        Ok(()) => {
            let texts = [&items, &answers].map(|lines| str::from_utf8(lines).unwrap());
            let folder = SuiteFolder::parse(&head, texts[0], texts[1]).unwrap();
            assert_eq!(folder.items.len(), texts[0].lines().count());
            let opening = folder.opening([0; 32]);
            assert_eq!(
                opening.items_sha256,
                <[u8; 32]>::from(Sha256::digest(&items))
            );
            assert_eq!(
                opening.answers_sha256,
                <[u8; 32]>::from(Sha256::digest(&answers))
            );
            let read = read_suite(&files, None).unwrap();
            assert_eq!(read.content_sha256, folder.content_sha256);
        }
        Err(TableErrors { errors, n_errors }) => {
            assert!((1..=100).contains(&errors.len()) && n_errors >= errors.len() as u64);
            for error in &errors {
                assert_eq!(error.file, file);
                assert_safe_message(&error.message);
            }
            assert!(read_suite(&files, None).is_err());
        }
    }
}
