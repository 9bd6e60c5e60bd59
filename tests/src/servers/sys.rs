//! Calls to the operating system that the standard library does not offer.
#![expect(
    unsafe_code,
    reason = "signals, users and free space have no safe interface in the standard library"
)]

use std::ffi::CString;
use std::{mem, ptr};

/// The user and group as which a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ids {
    /// The numeric user id.
    pub uid: u32,
    /// The numeric group id.
    pub gid: u32,
}

/// Returns the effective user id of this process.
pub(super) fn effective_uid() -> u32 {
    // SAFETY: takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// Sends a signal to one process. Returns `false` if it does not exist or may not be signalled.
pub(super) fn signal(pid: u32, signal: i32) -> bool {
    process_id(pid).is_some_and(|pid| send(pid, signal))
}

/// Sends a signal to every process of the group with this leader.
pub(super) fn signal_group(leader: u32, signal: i32) -> bool {
    process_id(leader).is_some_and(|pid| send(-pid, signal))
}

/// Returns `true` if a process of this user has this id and has not exited. A zombie has exited.
pub(super) fn lives(pid: u32) -> bool {
    if cfg!(target_os = "linux") {
        start_time(pid).is_some()
    } else {
        signal(pid, 0)
    }
}

/// Converts an id for `kill`. Rejects 0, 1 and ids that would become negative, because they do not
/// denote a child.
fn process_id(pid: u32) -> Option<libc::pid_t> {
    libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1)
}

fn send(target: libc::pid_t, signal: i32) -> bool {
    // SAFETY: plain integers; no memory is handed over.
    unsafe { libc::kill(target, signal) == 0 }
}

/// Returns the start time of a process in clock ticks since boot, which together with the id is
/// unique. Returns `None` if it has exited, is a zombie, or the system has no `/proc`.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The program's name in parentheses may itself contain spaces and
/// parentheses, so the fields are counted from the last parenthesis.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3 and the start time field 22 of proc(5).
    fields.nth(18)?.parse().ok()
}

/// Returns the ids of the user with this name.
pub(super) fn user(name: &str) -> Option<Ids> {
    let name = CString::new(name).ok()?;
    // Large enough for any record; a longer one counts as a missing user.
    let mut text = vec![0; 16 * 1024];
    let mut found = ptr::null_mut();
    // SAFETY: `passwd` is a C struct of integers and pointers, for which all zeroes is a value.
    let mut record: libc::passwd = unsafe { mem::zeroed() };
    // SAFETY: the name ends in a zero, the buffer is given with its length, and all outlive
    // the call. The record's pointers into the buffer are not read.
    let failed = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut record,
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    (failed == 0 && !found.is_null()).then_some(Ids {
        uid: record.pw_uid,
        gid: record.pw_gid,
    })
}

/// Returns how many bytes an unprivileged user can still write below `path`.
#[cfg(target_os = "linux")]
pub(super) fn free_bytes(path: &std::path::Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: `statvfs` is a C struct of integers, for which all zeroes is a value.
    let mut space: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path ends in a zero and the struct outlives the call.
    let failed = unsafe { libc::statvfs(path.as_ptr(), &raw mut space) };
    (failed == 0).then(|| space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_follows_unusual_name() {
        let stat = "42 (a) (b c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3";
        assert_eq!(parse_start_time(stat), Some(98765));
        assert_eq!(parse_start_time(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_start_time("rubbish"), None);
    }

    #[test]
    fn dangerous_signal_targets_are_rejected() {
        assert!(!signal(0, 0));
        assert!(!signal(1, 0));
        assert!(!signal(u32::MAX, 0));
        assert!(signal(std::process::id(), 0));
        assert!(lives(std::process::id()));
        assert!(!lives(u32::MAX));
    }

    #[test]
    fn users_are_looked_up() {
        assert_eq!(user("root"), Some(Ids { uid: 0, gid: 0 }));
        assert_eq!(user("no such user here"), None);
    }
}
