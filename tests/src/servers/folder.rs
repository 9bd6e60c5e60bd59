//! The run folder, removed when its owner ends, or by the next start if the owner was killed.

use super::command::PIDS;
use super::sys;
use super::trouble::Trouble;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, process, thread};

const PREFIX: &str = "assay-run-";
const OWNER: &str = "owner.lock";

/// Minimum age of an abandoned folder: a younger one without a lock may belong to a process that is
/// about to lock it.
const MIN_ABANDONED_AGE: Duration = Duration::from_secs(10);

/// Timeout for a leftover process to exit after its stop signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length in bytes of a socket's path.
const SOCKET_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Free bytes required for a data folder with some test databases, with a margin.
#[cfg(target_os = "linux")]
const ROOM: u64 = 512 * 1024 * 1024;

/// A new folder that is removed when this value is dropped. Its owner holds a lock on a file in it,
/// which the kernel releases however the owner ends, so the lock shows if the owner is alive.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    _owner: File,
}

impl RunFolder {
    /// Removes the folders of dead owners and creates a new one, in memory if possible.
    pub(super) fn create() -> Result<Self, Trouble> {
        let bases = bases();
        for base in &bases {
            sweep(base);
        }
        let mut last = Trouble::new("There is no folder for temporary files; set TMPDIR to one.");
        for base in bases.iter().filter(|base| has_room(base)) {
            match Self::create_in(base) {
                Ok(folder) => return Ok(folder),
                Err(trouble) => last = trouble,
            }
        }
        Err(last)
    }

    fn create_in(base: &Path) -> Result<Self, Trouble> {
        let random = RandomState::new().hash_one(Instant::now());
        let name = format!("{PREFIX}{}-{:08x}", process::id(), random >> 32);
        let path = base.join(name);
        let tried = format!(
            "No folder can be made in {} (set TMPDIR to another)",
            base.display()
        );
        // Root's servers run as another user, who must be able to enter the folder but not to list
        // it.
        let mode = if sys::effective_uid() == 0 {
            0o711
        } else {
            0o700
        };
        make_folder(&path, mode).map_err(Trouble::because(&tried))?;
        let owner = lock_file(&path.join(OWNER))
            .and_then(|file| file.lock().map(|()| file))
            .map_err(Trouble::because(&tried))?;
        let folder = Self {
            path,
            _owner: owner,
        };
        make_folder(&folder.path.join(PIDS), 0o700).map_err(Trouble::because(&tried))?;
        Ok(folder)
    }

    /// Returns the folder's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // The next start removes the rest, as the lock is free then.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns a clear error for a path that is too long for a socket, before a server reports it.
pub(super) fn check_socket(path: &Path) -> Result<(), Trouble> {
    let length = path.as_os_str().len();
    if length <= SOCKET_LIMIT {
        return Ok(());
    }
    Err(Trouble::new(format!(
        "The path {} is too long for a socket ({length} bytes of at most {SOCKET_LIMIT}); \
         set TMPDIR to a shorter folder, such as /tmp.",
        path.display()
    )))
}

/// Creates one folder with exactly this mode, independently of the umask.
pub(super) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Removes a folder if it exists.
pub(super) fn remove_folder(path: &Path) -> Result<(), Trouble> {
    match fs::remove_dir_all(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Trouble::because(format!(
            "Please remove the folder {}",
            path.display()
        ))(cause)),
        _ => Ok(()),
    }
}

/// Opens or creates a lock file.
pub(super) fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Returns the parent folders for run folders, the best one first.
fn bases() -> Vec<PathBuf> {
    let memory = cfg!(target_os = "linux").then(|| PathBuf::from("/dev/shm"));
    let disk = fs::canonicalize(env::temp_dir()).ok();
    memory.into_iter().chain(disk).collect()
}

/// Returns `true` if an in-memory folder has enough space, which containers often limit. A disk is
/// not checked.
#[cfg(target_os = "linux")]
fn has_room(base: &Path) -> bool {
    !base.starts_with("/dev/shm") || sys::free_bytes(base).is_some_and(|free| free >= ROOM)
}

#[cfg(not(target_os = "linux"))]
fn has_room(_base: &Path) -> bool {
    true
}

/// Stops the processes and removes the folders of dead owners. Errors are ignored, because
/// leftovers do not prevent a start.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        if let Some(owner) = owner_in(&entry.file_name())
            && is_ours(&entry)
            && let Some(_held) = claim(&entry.path(), owner)
        {
            end_leftovers(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the owner's process id if this is the name of a run folder.
fn owner_in(name: &OsStr) -> Option<u32> {
    let (pid, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

/// Returns `true` if this user owns the folder. Others could create one with such a name and
/// arbitrary process ids in it.
fn is_ours(entry: &DirEntry) -> bool {
    entry
        .metadata()
        .is_ok_and(|entry| entry.is_dir() && entry.uid() == sys::effective_uid())
}

/// Locks an abandoned folder, so that only one process removes it. The lock alone is not
/// sufficient, because a new folder is not locked immediately.
fn claim(folder: &Path, owner: u32) -> Option<File> {
    let age = fs::metadata(folder)
        .and_then(|data| data.modified())
        .ok()?
        .elapsed();
    if sys::lives(owner) && age.is_ok_and(|age| age < MIN_ABANDONED_AGE) {
        return None;
    }
    let file = lock_file(&folder.join(OWNER)).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Stops the processes listed in a folder, unless their ids belong to other processes now.
fn end_leftovers(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder.join(PIDS)) else {
        return;
    };
    for entry in entries.flatten() {
        let record = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            && let Some((started, signal)) = parse_record(&record)
        {
            end_leftover(pid, started, signal);
        }
    }
}

fn parse_record(record: &str) -> Option<(u64, i32)> {
    let (started, signal) = record.trim_end().split_once(' ')?;
    Some((started.parse().ok()?, signal.parse().ok()?))
}

fn end_leftover(pid: u32, started: u64, signal: i32) {
    let begin = Instant::now();
    let is_there = || sys::start_time(pid) == Some(started);
    if is_there() {
        sys::signal(pid, signal);
    }
    while is_there() && begin.elapsed() < STOP_TIMEOUT {
        thread::sleep(Duration::from_millis(10));
    }
    if is_there() {
        sys::signal(pid, libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_folders_are_recognized() {
        assert_eq!(owner_in(OsStr::new("assay-run-123-0badcafe")), Some(123));
        assert_eq!(owner_in(OsStr::new("assay-run-123")), None);
        assert_eq!(owner_in(OsStr::new("assay-run-x-y")), None);
        assert_eq!(owner_in(OsStr::new("other")), None);
    }

    #[test]
    fn only_whole_records_are_believed() {
        assert_eq!(parse_record("98765 15\n"), Some((98765, 15)));
        assert_eq!(parse_record("- 15\n"), None);
        assert_eq!(parse_record(""), None);
    }

    #[test]
    fn long_socket_paths_are_refused() {
        assert!(check_socket(Path::new("/tmp/socket")).is_ok());
        assert!(check_socket(Path::new(&"/x".repeat(60))).is_err());
    }
}
