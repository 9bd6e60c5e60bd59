//! A publisher's `suite.toml`.

use std::path::{Component, Path};

use assay_eval::suite::{SuiteDefinition, is_suite_id, is_version};

/// A valid definition obeys the rules of its keys. The errors of an invalid one are in the order of its lines.
pub fn definitions(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    match SuiteDefinition::parse(text) {
        Ok(definition) => {
            assert!(is_suite_id(&definition.suite_id) && is_version(&definition.version));
            assert_eq!(definition.metadata.check(), []);
            assert!(definition.baselines.len() <= 10);
            assert!(!definition.has_sealed() || definition.protection.closes_at.is_some());
            for file in definition.files() {
                let mut parts = Path::new(file).components();
                let is_inside = parts.all(|part| matches!(part, Component::Normal(_)));
                assert!(is_inside && !file.is_empty(), "{file}");
            }
            if let Some(data) = &definition.data {
                let inputs = data.inputs.iter().flatten();
                assert!(inputs.into_iter().all(|name| *name != data.answer));
                assert!(data.is_kept(&data.answer));
            }
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
            assert!(lines.is_sorted(), "{errors:?}");
            let n_lines = 1 + text.matches('\n').count();
            assert!(lines.iter().all(|line| *line <= n_lines), "{errors:?}");
            for error in &errors {
                assert_eq!(error.file, "suite.toml");
                // A message may name a key, which may be any word.
                let is_short = (1..1_000).contains(&error.message.len());
                assert!(is_short && !error.message.contains("panicked"), "{error}");
            }
        }
    }
}
