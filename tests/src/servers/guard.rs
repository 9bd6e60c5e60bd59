//! Child processes that cannot outlive their parent.
//!
//! The kernel's parent-death signal fires when the *thread* that forked ends, which is wrong for a
//! child that several threads share. Instead, a small shell, the watcher, accompanies every child
//! and waits on a pipe whose other end only the parent holds. However the parent ends, the kernel
//! closes that end, and the watcher stops the child.
//!
//! The child is a direct child of the parent, which therefore knows its id and its exit status. It
//! starts as a shell, the gate, that waits until the watcher runs, so it can never be left behind.
//! Both run in their own process groups, which a terminal's Ctrl-C does not reach: the parent
//! decides when they stop.

use super::command::{GuardedCommand, PIDS};
use super::sys;
use super::trouble::Trouble;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the parent checks if a program has exited.
const PAUSE: Duration = Duration::from_millis(2);

/// A child process that cannot outlive its parent. Dropping it sends the stop signal, waits for the
/// grace period, then sends SIGKILL, and leaves no zombie.
#[derive(Debug)]
pub struct Guarded {
    pid: u32,
    stop_signal: i32,
    grace: Duration,
    record: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    program: Child,
    watcher: Child,
    stopping: bool,
    exit: Option<ExitStatus>,
}

impl Guarded {
    /// Starts the program with its watcher.
    ///
    /// # Errors
    /// If the program does not exist or no process can be started. A program that starts and then
    /// fails is not an error here; [`Guarded::try_wait`] reports it.
    pub fn spawn(command: &GuardedCommand) -> Result<Self, Trouble> {
        let name = command.program.display();
        if !command.program.is_file() {
            return Err(Trouble::new(format!(
                "There is no program {name}; build or install it."
            )));
        }
        let gate = command.to_gate()?.spawn();
        let mut program = gate.map_err(Trouble::because(format!("{name} cannot be started")))?;
        let pid = program.id();
        let watcher = command.to_watcher(pid).spawn().map_err(|cause| {
            abandon(&mut program);
            Trouble::because(format!("{name} cannot be guarded"))(cause)
        })?;
        let guarded = Self {
            pid,
            stop_signal: command.stop_signal,
            grace: command.grace,
            record: command
                .run_folder
                .as_deref()
                .map(|folder| record_path(folder, pid)),
            state: Mutex::new(State {
                program,
                watcher,
                stopping: false,
                exit: None,
            }),
        };
        guarded.write_record()?;
        guarded.open_gate();
        Ok(guarded)
    }

    /// Returns the process id of the program, not of its watcher.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to the program. Does nothing after its exit, even if its id is in use again.
    pub fn signal(&self, signal: i32) {
        let mut state = self.state();
        if self.look(&mut state).is_none() {
            sys::signal(self.pid, signal);
        }
    }

    /// Sends the stop signal once, without waiting.
    pub fn stop(&self) {
        let first = !std::mem::replace(&mut self.state().stopping, true);
        if first {
            self.signal(self.stop_signal);
        }
    }

    /// Returns the exit status, or `None` while the program runs.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        self.look(&mut self.state())
    }

    /// Waits at most `timeout` for the program and returns its exit status, or `None` if it still
    /// runs.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            let exit = self.try_wait();
            if exit.is_some() || start.elapsed() >= timeout {
                return exit;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Locks the state. A poisoned lock is used, because no step of this module leaves the state
    /// half-changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks if the program has exited. The first caller that observes it dismisses the watcher
    /// immediately, because the process id may be reused.
    fn look(&self, state: &mut State) -> Option<ExitStatus> {
        if state.exit.is_none() {
            state.exit = match state.program.try_wait() {
                Ok(exit) => exit,
                // Other code has reaped the exit status; only the exit itself is known.
                Err(_) => Some(ExitStatus::from_raw(0)),
            };
            if state.exit.is_some() {
                dismiss(&mut state.watcher);
                if let Some(record) = &self.record {
                    // The file is only a hint for the next start, which validates it; a leftover is
                    // harmless.
                    let _ = fs::remove_file(record);
                }
            }
        }
        state.exit
    }

    /// Records the program for the next start, which removes leftovers, with the data to identify
    /// and stop it.
    fn write_record(&self) -> Result<(), Trouble> {
        let Some(path) = &self.record else {
            return Ok(());
        };
        let started = sys::start_time(self.pid).map_or("-".to_owned(), |time| time.to_string());
        fs::write(path, format!("{started} {}\n", self.stop_signal)).map_err(Trouble::because(
            format!("{} cannot be written", path.display()),
        ))
    }

    /// Opens the gate, which then executes the program.
    fn open_gate(&self) {
        if let Some(mut gate) = self.state().program.stdin.take() {
            // If the gate was killed meanwhile, the caller sees it as the program's exit.
            let _ = gate.write_all(b"go\n");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
        if self.wait(self.grace).is_none() {
            sys::signal_group(self.pid, libc::SIGKILL);
            // A process that survives SIGKILL is blocked in the kernel, so waiting longer has no
            // use.
            self.wait(self.grace);
        }
    }
}

/// Returns the path of a program's record in the run folder.
fn record_path(run_folder: &Path, pid: u32) -> PathBuf {
    run_folder.join(PIDS).join(pid.to_string())
}

/// Kills a gate that must not be opened.
fn abandon(gate: &mut Child) {
    // Both fail only if the gate has already exited.
    let _ = gate.kill();
    let _ = gate.wait();
}

/// Lets the watcher exit, because the program has exited.
fn dismiss(watcher: &mut Child) {
    if let Some(mut pipe) = watcher.stdin.take() {
        // The write fails only if the watcher was killed, and then nothing is left to do.
        let _ = pipe.write_all(b"ended\n");
    }
    let _ = watcher.wait();
}
