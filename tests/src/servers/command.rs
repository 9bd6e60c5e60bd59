//! The description of a guarded child, and its two shell scripts: the gate and the watcher.

use super::sys::Ids;
use super::trouble::Trouble;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder inside the run folder that contains one file for each running child.
pub(super) const PIDS: &str = "pids";

const SHELL: &str = "/bin/sh";

/// The gate: executes the program after the parent has written a line, and exits without one.
const GATE: &str = r#"read -r word && exec "$@" </dev/null"#;

/// The watcher: exits when the parent writes that the program has exited. If the pipe closes
/// without that line, the parent is dead: the watcher stops the program and removes its file. The
/// watcher that removes the last file also removes the run folder; for the others `rmdir` fails.
///
/// A zombie counts as exited. Its new parent is process 1, which in a container may never reap it.
const WATCHER: &str = r#"
trap '' HUP INT QUIT TERM
pid=$1 signal=$2 ticks=$3 run_folder=$4
lives() {
    kill -0 "$pid" || return 1
    [ ! -d /proc/self ] || { read -r stat <"/proc/$pid/stat" && [ "${stat##*) Z *}" ]; }
}
read -r word && exit 0
kill -"$signal" "$pid"
while lives && [ "$ticks" -gt 0 ]; do sleep 0.05; ticks=$((ticks - 1)); done
lives && kill -9 "-$pid"
[ -n "$run_folder" ] || exit 0
rm -f "$run_folder/pids/$pid"
rmdir "$run_folder/pids" && rm -rf "$run_folder"
"#;

/// Times per second that the watcher checks if the program has exited.
const TICKS_PER_SECOND: u128 = 20;

/// The start and stop parameters of a child process. Its standard input is always empty.
#[derive(Clone, Debug)]
pub struct GuardedCommand {
    /// The path of the executable.
    pub program: PathBuf,
    /// The arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Environment variables, in addition to the parent's unless `clear_env` is set.
    pub env: Vec<(OsString, OsString)>,
    /// `true` if the program does not inherit the parent's environment.
    pub clear_env: bool,
    /// The working folder; that of the parent if `None`.
    pub current_dir: Option<PathBuf>,
    /// The user and group of the program, without supplementary groups; requires root.
    pub user: Option<Ids>,
    /// The file to which standard output and standard error are appended; the parent's outputs if
    /// `None`.
    pub log: Option<PathBuf>,
    /// The signal that stops the program.
    pub stop_signal: i32,
    /// The time between the stop signal and SIGKILL.
    pub grace: Duration,
    /// [`super::Servers::folder`] if the folder must exist for as long as the program runs, also
    /// after the parent was killed, and must be removed with it.
    pub run_folder: Option<PathBuf>,
}

impl GuardedCommand {
    /// Creates a command that inherits the parent's environment, folder and outputs, and has ten
    /// seconds to exit after SIGTERM.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            clear_env: false,
            current_dir: None,
            user: None,
            log: None,
            stop_signal: libc::SIGTERM,
            grace: Duration::from_secs(10),
            run_folder: None,
        }
    }

    /// Returns the gate's command, which becomes the program.
    pub(super) fn to_gate(&self) -> Result<Command, Trouble> {
        let mut command = Command::new(SHELL);
        command
            .args(["-c", GATE, "gate"])
            .arg(&self.program)
            .args(&self.args);
        command.stdin(Stdio::piped()).process_group(0);
        if self.clear_env {
            command.env_clear();
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.current_dir {
            command.current_dir(folder);
        }
        if let Some(Ids { uid, gid }) = self.user {
            // The standard library also drops the supplementary groups when it changes the user.
            command.uid(uid).gid(gid);
        }
        if let Some(log) = &self.log {
            let tried = || format!("The log {} cannot be written", log.display());
            let file = OpenOptions::new().create(true).append(true).open(log);
            let file = file.map_err(Trouble::because(tried()))?;
            let same = file.try_clone().map_err(Trouble::because(tried()))?;
            command.stdout(file).stderr(same);
        }
        Ok(command)
    }

    /// Returns the watcher's command for the process `pid`. It runs as the caller's user, who
    /// may signal the program and remove the folder, independently of the file owner.
    pub(super) fn to_watcher(&self, pid: u32) -> Command {
        let ticks = self.grace.as_millis() * TICKS_PER_SECOND / 1000;
        let mut command = Command::new(SHELL);
        command.args(["-c", WATCHER, "watcher"]);
        command.args([
            pid.to_string(),
            self.stop_signal.to_string(),
            ticks.to_string(),
        ]);
        command.arg(self.run_folder.as_deref().unwrap_or(Path::new("")));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/")
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}
