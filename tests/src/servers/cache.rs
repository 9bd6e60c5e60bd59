//! The cache folder, which persists between runs, and its locks.

use super::folder::{lock_file, make_folder};
use super::sys;
use super::trouble::Trouble;
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

/// Returns the cache folder, and creates it if needed. For root it is outside root's home,
/// because root's servers run as another user who must be able to read it.
pub(super) fn cache() -> Result<PathBuf, Trouble> {
    let parent = if sys::effective_uid() == 0 {
        PathBuf::from("/var/cache")
    } else {
        let absolute = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or_else(|| Trouble::new("Set HOME or XDG_CACHE_HOME to a folder of your own."))?
    };
    let path = parent.join("assay");
    if !path.is_dir() {
        let made = fs::create_dir_all(&parent).and_then(|()| make_folder(&path, 0o755));
        // Another process may have created the folder at the same time.
        made.or_else(|cause| if path.is_dir() { Ok(()) } else { Err(cause) })
            .map_err(Trouble::because(format!(
                "The cache folder {} cannot be created (set XDG_CACHE_HOME to another folder)",
                path.display()
            )))?;
    }
    Ok(path)
}

/// Locks the lock file `name` in the cache, exclusively if `alone`, otherwise shared. Calls `say`
/// if another process holds it, because the wait may take as long as a download. Dropping the file
/// releases the lock.
pub(super) fn lock(name: &str, alone: bool, say: &dyn Fn(&str)) -> Result<File, Trouble> {
    let path = cache()?.join(format!("{name}.lock"));
    let tried = format!("{} cannot be locked", path.display());
    let file = lock_file(&path).map_err(Trouble::because(&tried))?;
    let first = if alone {
        file.try_lock()
    } else {
        file.try_lock_shared()
    };
    let taken = match first {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            say("Waiting for another process that prepares the same files …");
            if alone {
                file.lock()
            } else {
                file.lock_shared()
            }
        }
        Err(TryLockError::Error(cause)) => Err(cause),
    };
    taken.map(|()| file).map_err(Trouble::because(tried))
}
