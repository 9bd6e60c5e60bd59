//! Replays the fuzz corpus: each input must satisfy its parser's properties. See `tests/fuzz`.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

#[path = "../fuzz/src/lib.rs"]
mod properties;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// Lists the file stems in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect()
}

/// Checks a property for each corpus input in a target.
fn replay(target: &str, property: fn(&[u8])) {
    let folder = folder().join("corpus").join(target);
    let inputs = names(&folder);
    assert!(
        (10..=50).contains(&inputs.len()),
        "{}: {} inputs instead of 10 to 50",
        folder.display(),
        inputs.len()
    );
    for name in inputs {
        let input = std::fs::read(folder.join(&name)).unwrap();
        assert!(
            catch_unwind(|| property(&input)).is_ok(),
            "corpus/{target}/{name}: {:?}",
            String::from_utf8_lossy(&input)
        );
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name), properties::$name);
        })*

        #[test]
        fn targets_and_corpora_match() {
            let here: BTreeSet<String> = [$(stringify!($name)),*].map(str::to_owned).into();
            assert_eq!(names(&folder().join("targets")), here);
            assert_eq!(names(&folder().join("corpus")), here);
        }
    };
}

targets! { predictions lines uploads messages words secrets headers queries bodies addresses suites catalogs packages tables definitions }
