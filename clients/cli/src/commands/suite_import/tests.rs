//! Bundles in temporary folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use assay_eval::suite::SUITE;

use super::bundle::Bundle;
use super::imported::{Choice, Imported};
use crate::arguments::NewSuite;

/// A folder for a test, which ends with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let name = format!("assay-import-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        // A symbolic link on the way to the folder is not the test's.
        Self(path.canonicalize().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn bundle(&self) -> Bundle {
        Bundle::open(&self.0, true).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the choice of a metric and, if it is not empty, of a column of answers.
pub fn choice(metric: &str, answer: &str) -> Choice {
    Choice {
        answer: Some(answer.to_owned()).filter(|answer| !answer.is_empty()),
        new: NewSuite {
            metric: metric.into(),
            id: None,
            name: None,
            labels: Vec::new(),
            quantiles: Vec::new(),
        },
        bundle_name: "My Bundle".into(),
    }
}

/// Returns a publishable suite's item count.
pub fn n_items(imported: &Imported) -> usize {
    let definition = &imported.definition;
    let files: BTreeMap<String, Vec<u8>> = [
        (SUITE.to_owned(), definition.to_toml().into_bytes()),
        (definition.file.clone(), imported.table.clone()),
    ]
    .into();
    definition.check(&files, "the bundle").unwrap().items.len()
}
