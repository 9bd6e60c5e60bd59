//! The checks of a folder that need the platform's rules: for names on boards, and for sequences.

use std::collections::HashMap;
use std::path::Path;

use assay_core::model::board::{entry_name, entry_url};
use assay_core::model::item_sequence;
use assay_core::model::public_name::NameKeys;
use assay_eval::suite::{BadSuite, FolderItem, SuiteFolder};

/// Reads and checks a folder.
///
/// # Errors
/// Returns the first error of the folder.
pub fn read(folder: &Path) -> Result<SuiteFolder, BadSuite> {
    let mut suite = SuiteFolder::read(folder)?;
    check_baselines(&mut suite)?;
    if let Some(paths) = &suite.sequence {
        suite.check_items(|item: &FolderItem| {
            item_sequence::from_item(&item.item_id, item.input.get(), paths).map(drop)
        })?;
    }
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
