//! Child processes that cannot outlive their parent.
//!
//! The kernel's own means, a signal on the parent's death, fires when the *thread* that forked ends,
//! which is wrong for a child that several threads share. So beside every child runs a small shell,
//! the watcher, that waits on a pipe whose other end only the parent holds. However the parent ends,
//! the kernel closes that end, and the watcher ends the child in its stead.
//!
//! The child itself is a direct child of the parent: its id and its exit status need no messenger.
//! It starts out as a shell too, held at a gate until its watcher stands, so there is no moment at
//! which it could be left behind. Both are in process groups of their own, where the Ctrl-C of a
//! terminal does not reach them: it is the parent's to decide what follows from that.

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

/// How often the parent looks whether a program has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// A child process that cannot outlive its parent. Dropping it ends it: its stop signal, its grace,
/// then SIGKILL; afterwards nothing of it is left, not even a zombie.
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
    /// Starts the program under its guard.
    ///
    /// # Errors
    /// When the program is not there or no process can be started. A program that starts and then
    /// fails is not an error here; [`Guarded::try_wait`] tells.
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

    /// The id of the program itself, not of its guard.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal to the program; to nobody if it has ended, even if its id is in use again.
    pub fn signal(&self, signal: i32) {
        let mut state = self.state();
        if self.look(&mut state).is_none() {
            sys::signal(self.pid, signal);
        }
    }

    /// Sends the stop signal, once, and does not wait.
    pub fn stop(&self) {
        let first = !std::mem::replace(&mut self.state().stopping, true);
        if first {
            self.signal(self.stop_signal);
        }
    }

    /// How the program ended, if it has.
    pub fn try_wait(&self) -> Option<ExitStatus> {
        self.look(&mut self.state())
    }

    /// How the program ended, if it does within `timeout`.
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

    /// No step of this module leaves the state half-changed, so a panic elsewhere does not spoil it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the program has ended. The first to see it dismisses the watcher at once, for
    /// the id is free for others now.
    fn look(&self, state: &mut State) -> Option<ExitStatus> {
        if state.exit.is_none() {
            state.exit = match state.program.try_wait() {
                Ok(exit) => exit,
                // Somebody else has collected the exit status; all that is known is the end.
                Err(_) => Some(ExitStatus::from_raw(0)),
            };
            if state.exit.is_some() {
                dismiss(&mut state.watcher);
                if let Some(record) = &self.record {
                    // Only a hint for the next start, which checks it; a leftover does no harm.
                    let _ = fs::remove_file(record);
                }
            }
        }
        state.exit
    }

    /// Notes the program where the next start looks for leftovers, with what it takes to recognise
    /// and end it.
    fn write_record(&self) -> Result<(), Trouble> {
        let Some(path) = &self.record else {
            return Ok(());
        };
        let started = sys::start_time(self.pid).map_or("-".to_owned(), |time| time.to_string());
        fs::write(path, format!("{started} {}\n", self.stop_signal)).map_err(Trouble::because(
            format!("{} cannot be written", path.display()),
        ))
    }

    /// Lets the gate become the program.
    fn open_gate(&self) {
        if let Some(mut gate) = self.state().program.stdin.take() {
            // If the gate was killed meanwhile, the caller learns it as the end of the program.
            let _ = gate.write_all(b"go\n");
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
        if self.wait(self.grace).is_none() {
            sys::signal_group(self.pid, libc::SIGKILL);
            // A process that even SIGKILL does not end hangs in the kernel: no use in waiting on.
            self.wait(self.grace);
        }
    }
}

/// The record of one program in a run folder.
fn record_path(run_folder: &Path, pid: u32) -> PathBuf {
    run_folder.join(PIDS).join(pid.to_string())
}

/// Ends a gate that shall not be opened.
fn abandon(gate: &mut Child) {
    // Both fail only if it has ended already.
    let _ = gate.kill();
    let _ = gate.wait();
}

/// Sends a watcher home.
fn dismiss(watcher: &mut Child) {
    if let Some(mut pipe) = watcher.stdin.take() {
        // Fails only if it was killed, and then there is nobody to tell.
        let _ = pipe.write_all(b"ended\n");
    }
    let _ = watcher.wait();
}
