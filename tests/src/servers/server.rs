//! What both servers have in common: they are started, waited for, stopped and started again.

use super::command::GuardedCommand;
use super::guard::Guarded;
use super::trouble::Trouble;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to accept connections.
const LIMIT: Duration = Duration::from_secs(30);

/// How often it is asked meanwhile.
const PAUSE: Duration = Duration::from_millis(3);

/// A private server.
#[derive(Debug)]
pub(super) struct Server {
    /// Its name in messages.
    pub(super) name: &'static str,
    /// How it is started, every time.
    pub(super) command: GuardedCommand,
    /// Where it listens.
    pub(super) socket: PathBuf,
    /// Whether it accepts connections there; an error if it never will.
    pub(super) is_ready: fn(&Path) -> Result<bool, Trouble>,
    /// The running process, if any.
    pub(super) process: Mutex<Option<Guarded>>,
}

impl Server {
    /// Starts it, if it is not running, and does not wait for it.
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

    /// Waits until it accepts connections.
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
                return Err(self.fault("ended instead of starting up"));
            }
            if begin.elapsed() > LIMIT {
                return Err(self.fault(&format!("was not ready within {} s", LIMIT.as_secs())));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Asks it to end and does not wait; the drop that follows does.
    pub(super) fn begin_stop(&self) {
        if let Some(running) = self.process().as_ref() {
            running.stop();
        }
    }

    /// Ends it with this signal, or violently if that takes too long, and waits.
    pub(super) fn stop(&self, signal: i32) {
        let mut process = self.process();
        if let Some(running) = process.take() {
            running.signal(signal);
            running.wait(self.command.grace);
        }
    }

    /// Sends a signal, if it runs.
    pub(super) fn signal(&self, signal: i32) {
        if let Some(running) = self.process().as_ref() {
            running.signal(signal);
        }
    }

    /// Its process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        let process = self.process();
        process
            .as_ref()
            .filter(|running| running.try_wait().is_none())
            .map(Guarded::pid)
    }

    /// Every step leaves a whole value, so a panic elsewhere does not spoil it.
    fn process(&self) -> MutexGuard<'_, Option<Guarded>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, what: &str) -> Trouble {
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

/// The environment of everything that belongs to a server, in place of the caller's: settings that
/// happen to be there, such as PGPORT or an unknown LANG, must not change what is started.
pub(super) fn environment(libraries: Option<&OsString>) -> Vec<(OsString, OsString)> {
    let fixed = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")];
    let fixed = fixed
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()));
    fixed
        .chain(libraries.map(|path| ("LD_LIBRARY_PATH".into(), path.clone())))
        .collect()
}
