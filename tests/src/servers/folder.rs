//! The run folder: made by a start, gone with its end, and if that was violent, by the next start.

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

/// A young folder without a lock may belong to a process that is about to take it.
const INFANCY: Duration = Duration::from_secs(10);

/// How long a leftover process may take to follow its stop signal.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest path that a socket's address can hold.
const SOCKET_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// What a data folder with some test databases needs, generously.
#[cfg(target_os = "linux")]
const ROOM: u64 = 512 * 1024 * 1024;

/// A fresh folder that lives as long as this value. Its owner holds a lock on a file in it, which
/// the kernel releases however the owner ends: that tells a living owner from a dead one.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    _owner: File,
}

impl RunFolder {
    /// Clears away what dead owners have left and makes a new folder, in memory where possible.
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
        // Root's servers run as another user, who must be able to pass, though not to look around.
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

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start, once the lock is free.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Says up front what the servers would say in a roundabout way.
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

/// Makes one folder with exactly this mode, whatever the umask.
pub(super) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Removes a folder that need not be there.
pub(super) fn remove_folder(path: &Path) -> Result<(), Trouble> {
    match fs::remove_dir_all(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Trouble::because(format!(
            "Please remove the folder {}",
            path.display()
        ))(cause)),
        _ => Ok(()),
    }
}

/// Opens the file that stands for a lock.
pub(super) fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

/// Where run folders may be, the best place first.
fn bases() -> Vec<PathBuf> {
    let memory = cfg!(target_os = "linux").then(|| PathBuf::from("/dev/shm"));
    let disk = fs::canonicalize(env::temp_dir()).ok();
    memory.into_iter().chain(disk).collect()
}

/// Memory is scarce, above all in containers; a disk is left to speak for itself.
#[cfg(target_os = "linux")]
fn has_room(base: &Path) -> bool {
    !base.starts_with("/dev/shm") || sys::free_bytes(base).is_some_and(|free| free >= ROOM)
}

#[cfg(not(target_os = "linux"))]
fn has_room(_base: &Path) -> bool {
    true
}

/// Ends and removes what dead owners have left in a folder. Errors are passed over: leftovers are a
/// nuisance, not an obstacle.
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

/// The owner's process id, if this is the name of a run folder.
fn owner_in(name: &OsStr) -> Option<u32> {
    let (pid, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    pid.parse().ok()
}

/// Anybody can make a folder of such a name, with any process ids in it; only our own is believed.
fn is_ours(entry: &DirEntry) -> bool {
    entry
        .metadata()
        .is_ok_and(|entry| entry.is_dir() && entry.uid() == sys::effective_uid())
}

/// Takes the lock of an abandoned folder, so that only one process clears it. The lock alone would be
/// proof enough, were it not for the moment in which a folder is made and not yet locked.
fn claim(folder: &Path, owner: u32) -> Option<File> {
    let age = fs::metadata(folder)
        .and_then(|data| data.modified())
        .ok()?
        .elapsed();
    if sys::lives(owner) && age.is_ok_and(|age| age < INFANCY) {
        return None;
    }
    let file = lock_file(&folder.join(OWNER)).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Ends the processes on a folder's list that are still the ones that were put there.
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
    while is_there() && begin.elapsed() < PATIENCE {
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
    fn run_folders_are_told_from_others() {
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
