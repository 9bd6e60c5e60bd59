//! CPU time, summed over processes and their descendants.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The processes that form one part of a program under test: their names in the report, and their
/// ids. A process's descendants count as part of it.
pub type Parts = BTreeMap<&'static str, Vec<u32>>;

/// Returns the CPU time that each part has used since its start, in user and system mode, without
/// processes that have ended and whose parent did not wait for them.
pub fn used(parts: &Parts) -> BTreeMap<&'static str, Duration> {
    parts
        .iter()
        .map(|(name, pids)| (*name, pids.iter().map(|pid| family_time(*pid)).sum()))
        .collect()
}

/// Returns the CPU time that a process, its descendants, and the ended ones that they waited for.
fn family_time(pid: u32) -> Duration {
    let children: Vec<u32> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect();
    own(pid) + ended_children_time(pid) + children.into_iter().map(family_time).sum::<Duration>()
}

/// Returns a process's CPU time over all threads, with nanoseconds.
fn own(pid: u32) -> Duration {
    let Ok(pid) = i32::try_from(pid) else {
        return Duration::ZERO;
    };
    clock_getcpuclockid(Pid::from_raw(pid))
        .and_then(ClockId::now)
        .map_or(Duration::ZERO, Duration::from)
}

/// Returns `cutime + cstime`, see proc_pid_stat(5).
fn ended_children_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain spaces. The fields after it start with the third.
    let ticks: u64 = stat
        .rsplit_once(") ")
        .map_or("", |(_, fields)| fields)
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}
