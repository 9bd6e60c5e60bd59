//! The checks of a folder that need the platform's rules: for names on boards, and for sequences.

use std::collections::HashMap;

use assay_core::model::board::{entry_name, entry_url};
use assay_core::model::item_sequence;
use assay_core::model::public_name::NameKeys;
use assay_eval::suite::{BadSuite, FolderItem, SuiteFiles, SuiteFolder};

/// Reads and checks the files of a suite. `default_seed` chooses the sealed items of a suite without `seal_seed`.
///
/// # Errors
/// The errors of the first file that has some.
pub fn read(
    files: &dyn SuiteFiles,
    default_seed: Option<&str>,
) -> Result<SuiteFolder, Vec<BadSuite>> {
    let mut suite = assay_tables::read_suite(files, default_seed)?;
    let check = |suite: &mut SuiteFolder| {
        check_baselines(suite)?;
        let Some(paths) = &suite.sequence else {
            return Ok(());
        };
        suite.check_items(|item: &FolderItem| {
            item_sequence::from_item(&item.item_id, item.input.get(), paths).map(drop)
        })
    };
    check(&mut suite).map_err(|error| vec![error])?;
    Ok(suite)
}

/// Checks the baselines' names and pages like a board entry's, and puts them into the form that boards show.
fn check_baselines(suite: &mut SuiteFolder) -> Result<(), BadSuite> {
    let mut shown: HashMap<String, String> = HashMap::new();
    for baseline in &mut suite.baselines {
        let bad = |reason: String| {
            let reason = format!("baselines: {:?}: {reason}", baseline.name);
            BadSuite::new("suite.toml", 0, reason)
        };
        let name = entry_name(&baseline.name).map_err(|error| bad(error.message))?;
        let url = baseline.url.as_deref().map(entry_url).transpose();
        let url = url.map_err(|error| bad(format!("url {}", error.message)))?;
        let keys = NameKeys::of(&name);
        for key in [keys.folded, keys.shown] {
            if let Some(other) = shown.insert(key, name.clone())
                && other != name
            {
                return Err(bad(format!("looks the same as the name {other:?}")));
            }
        }
        baseline.name = name;
        baseline.url = url;
    }
    Ok(())
}
