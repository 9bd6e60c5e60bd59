//! The tree's continuation of an earlier checkpoint.

use std::path::Path;

use crate::log::SignedCheckpoint;
use crate::logged::Logged;
use crate::tree::{GrowingTree, bundle_paths, read_bundle};

/// Builds the tree from the entries in the folder, and compares it with both checkpoints and with
/// every tile.
pub(super) fn check_consistency(
    earlier: &str,
    folder: &Path,
    logged: &Logged,
    log_key: &str,
) -> Result<(), String> {
    let earlier = SignedCheckpoint::parse(earlier)?;
    earlier.check_signature(log_key)?;
    let (earlier, tree) = (&earlier.tree, &logged.checkpoint.tree);
    if earlier.size() > tree.size() {
        return Err(format!(
            "the earlier checkpoint has {} entries, the one of the receipt only {}",
            earlier.size(),
            tree.size()
        ));
    }
    let read = |path: &str| {
        std::fs::read(folder.join(path)).map_err(|error| format!("{path} cannot be read: {error}"))
    };
    let inconsistent = |error: tlog_tiles::Error| format!("the tree is inconsistent: {error}");
    let mut grown = GrowingTree::default();
    for path in bundle_paths(tree.size()) {
        for entry in read_bundle(&read(&path)?)? {
            if grown.size() == earlier.size()
                && grown.root().map_err(inconsistent)? != *earlier.hash()
            {
                return Err("the log is not a continuation of the earlier checkpoint".into());
            }
            grown.push(&entry).map_err(inconsistent)?;
        }
    }
    let root = grown.root().map_err(inconsistent)?;
    if grown.size() != tree.size() || root != *tree.hash() {
        return Err("the entries do not lead to the root of the checkpoint".into());
    }
    if earlier.size() == tree.size() && root != *earlier.hash() {
        return Err("the log is not a continuation of the earlier checkpoint".into());
    }
    for file in grown.files_since(0).map_err(inconsistent)? {
        if read(&file.path)? != file.bytes {
            return Err(format!("{} does not belong to this tree", file.path));
        }
    }
    Ok(())
}
