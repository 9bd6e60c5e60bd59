//! How a guarded child is described, and the two shells that make it one.

use super::sys::Ids;
use super::trouble::Trouble;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder inside the run folder that holds one file for each living child.
pub(super) const PIDS: &str = "pids";

const SHELL: &str = "/bin/sh";

/// Waits for the word of the parent and becomes the program. No word, no program.
const GATE: &str = r#"read -r word && exec "$@" </dev/null"#;

/// Waits for the word that the program was seen to end. If the pipe closes without it, the parent is
/// dead: the watcher ends the program and strikes it off the list. Whoever strikes off the last
/// one can remove the list, and with it goes the run folder; the other watchers fail at that.
///
/// A zombie counts as ended. Its new parent is process 1, which in a container may never collect it.
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

/// How often the watcher looks each second whether the program has ended.
const TICKS_PER_SECOND: u128 = 20;

/// How a child is to be started and ended. Its standard input is always empty.
#[derive(Clone, Debug)]
pub struct GuardedCommand {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<OsString>,
    /// Environment variables, in addition to the parent's unless `clear_env` is set.
    pub env: Vec<(OsString, OsString)>,
    /// Whether the parent's environment is kept from the program.
    pub clear_env: bool,
    /// Where the program starts; the parent's own folder if there is none.
    pub current_dir: Option<PathBuf>,
    /// As whom the program runs, with no further groups; only root may ask for it.
    pub user: Option<Ids>,
    /// The file to which both outputs are appended; the parent's own outputs if there is none.
    pub log: Option<PathBuf>,
    /// The signal that asks the program to end.
    pub stop_signal: i32,
    /// How long it may take before it is killed.
    pub grace: Duration,
    /// [`super::Servers::folder`], if the folder is to be kept for as long as the program runs even
    /// after a violent death of the parent, and removed with it.
    pub run_folder: Option<PathBuf>,
}

impl GuardedCommand {
    /// A command that inherits the parent's environment, folder and outputs, ends on SIGTERM and is given ten seconds for it.
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

    /// The gate, which becomes the program.
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
            // The standard library drops the supplementary groups along with root's rights.
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

    /// The watcher over the process `pid`. It keeps the caller's user, who may signal the program
    /// and remove the folder whoever owns the files in it.
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
