//! Copies data folders with two threads, because every start waits for a copy.

use super::folder::make_folder;
use super::sys::Ids;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Creates a folder that only the server's user can access.
pub(super) fn make_owned_folder(path: &Path, user: Option<Ids>) -> io::Result<()> {
    make_folder(path, 0o700)?;
    give(path, user)
}

/// Copies a folder of plain files and folders so that only the server's user can access the copy.
pub(super) fn copy_folder(from: &Path, to: &Path, user: Option<Ids>) -> io::Result<()> {
    let mut files = Vec::new();
    copy_folders(from, to, user, &mut files)?;
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((from, to)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            fs::copy(from, to)?;
            give(to, user)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let helper = scope.spawn(work);
        let ours = work();
        // A thread that panicked has not copied its file.
        let theirs = helper
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
        ours.and(theirs)
    })
}

/// Creates all folders and collects the files to copy.
fn copy_folders(
    from: &Path,
    to: &Path,
    user: Option<Ids>,
    files: &mut Vec<(PathBuf, PathBuf)>,
) -> io::Result<()> {
    make_owned_folder(to, user)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folders(&entry.path(), &target, user, files)?;
        } else {
            files.push((entry.path(), target));
        }
    }
    Ok(())
}

fn give(path: &Path, user: Option<Ids>) -> io::Result<()> {
    user.map_or(Ok(()), |Ids { uid, gid }| chown(path, Some(uid), Some(gid)))
}
