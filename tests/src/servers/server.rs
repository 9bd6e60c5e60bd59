//! The lifecycle that both servers share: start, readiness, stop and restart.

use super::command::GuardedCommand;
use super::guard::Guarded;
use super::trouble::Trouble;
use crate::wait::wait_timeout;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of the readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// A private server, running or stopped.
#[derive(Debug)]
pub(super) struct Server {
    /// The server's name in messages.
    pub(super) name: &'static str,
    /// The command of every start.
    pub(super) command: GuardedCommand,
    /// The socket that the server listens on.
    pub(super) socket: PathBuf,
    /// Returns `true` if the server accepts connections on the socket, and an error if it never
    /// will.
    pub(super) is_ready: fn(&Path) -> Result<bool, Trouble>,
    /// The running process; `None` after a stop.
    pub(super) process: Mutex<Option<Guarded>>,
}

impl Server {
    /// Starts the server if it is not running, without waiting for it.
    pub(super) fn launch(&self) -> Result<(), Trouble> {
        let mut process = self.process();
        if process
            .as_ref()
            .is_none_or(|running| running.try_wait().is_some())
        {
            *process = Some(Guarded::spawn(&self.command)?);
        }
        Ok(())
    }

    /// Waits until the server accepts connections.
    pub(super) fn await_ready(&self) -> Result<(), Trouble> {
        let begin = Instant::now();
        loop {
            if (self.is_ready)(&self.socket).map_err(|trouble| self.explain(trouble))? {
                return Ok(());
            }
            let ended = self
                .process()
                .as_ref()
                .is_none_or(|running| running.try_wait().is_some());
            if ended {
                return Err(self.startup_error("exited during startup"));
            }
            if begin.elapsed() > wait_timeout() {
                return Err(self.startup_error(&format!(
                    "was not ready within {} s",
                    wait_timeout().as_secs()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends the stop signal without waiting; the following drop waits.
    pub(super) fn begin_stop(&self) {
        if let Some(running) = self.process().as_ref() {
            running.stop();
        }
    }

    /// Stops the server with this signal, or with SIGKILL after the grace period, and waits.
    pub(super) fn stop(&self, signal: i32) {
        let mut process = self.process();
        if let Some(running) = process.take() {
            running.signal(signal);
            running.wait(self.command.grace);
        }
    }

    /// Sends a signal to the server if it is running.
    pub(super) fn signal(&self, signal: i32) {
        if let Some(running) = self.process().as_ref() {
            running.signal(signal);
        }
    }

    /// Returns the process id, or `None` if the server is not running.
    pub(super) fn pid(&self) -> Option<u32> {
        let process = self.process();
        process
            .as_ref()
            .filter(|running| running.try_wait().is_none())
            .map(Guarded::pid)
    }

    /// Locks the process. A poisoned lock is used, because every step leaves a consistent value.
    fn process(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn startup_error(&self, what: &str) -> Trouble {
        self.explain(Trouble::new(format!(
            "The private {} server {what}.",
            self.name
        )))
    }

    fn explain(&self, trouble: Trouble) -> Trouble {
        match &self.command.log {
            Some(log) => trouble.with_log(log),
            None => trouble,
        }
    }
}

/// Returns the environment of a server and its programs, which replaces the caller's: variables
/// such as PGPORT or an unknown LANG must not affect the server.
pub(super) fn environment(libraries: Option<&OsString>) -> Vec<(OsString, OsString)> {
    let fixed = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")];
    let fixed = fixed
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()));
    fixed
        .chain(libraries.map(|path| ("LD_LIBRARY_PATH".into(), path.clone())))
        .collect()
}
