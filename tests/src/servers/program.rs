//! Checks of programs: if they run, and if their version is supported.

use super::server::environment;
use super::sys::Ids;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest supported major version of PostgreSQL.
const OLDEST: u32 = 15;

/// An executable and its shared libraries.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its file.
    pub(super) file: PathBuf,
    /// The search path of its shared libraries; `None` if the system finds them.
    pub(super) libraries: Option<OsString>,
}

impl Program {
    /// Returns a command for `file`, the program or a companion of it, with the server's
    /// environment and user.
    pub(super) fn command(&self, file: &Path, user: Option<Ids>) -> Command {
        let mut command = Command::new(file);
        command
            .env_clear()
            .envs(environment(self.libraries.as_ref()));
        command.current_dir("/").stdin(Stdio::null());
        if let Some(Ids { uid, gid }) = user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Returns the output of `--version`, or the reason why the program does not run.
    fn version(&self, user: Option<Ids>) -> Result<String, String> {
        let output = self.command(&self.file, user).arg("--version").output();
        let output = output.map_err(|cause| cause.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(format!("{} {}", output.status, complaint.trim())
                .trim_end()
                .to_owned())
        }
    }
}

/// A supported PostgreSQL.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    /// The server.
    pub(super) server: Program,
    /// The program that creates data folders.
    pub(super) initdb: PathBuf,
    /// The version, such as 15.4 or 18beta1.
    pub(super) version: String,
}

/// Returns the PostgreSQL in a folder of programs, or the reason why it is unsuitable.
pub(super) fn try_postgres(
    folder: &Path,
    libraries: Option<OsString>,
    user: Option<Ids>,
) -> Result<Postgres, String> {
    // The companions and shared files are next to a link's target, not next to the link.
    let file = fs::canonicalize(folder.join("postgres")).map_err(|cause| {
        format!(
            "There is no PostgreSQL server in {}: {cause}.",
            folder.display()
        )
    })?;
    let name = file.display().to_string();
    let initdb = file.with_file_name("initdb");
    if !initdb.is_file() {
        return Err(format!("{name} has no initdb beside it."));
    }
    let server = Program { file, libraries };
    let words = server
        .version(user)
        .map_err(|why| format!("{name} does not run: {why}."))?;
    let version = version_in(&words).ok_or_else(|| format!("{name} has no version."))?;
    if major(version).is_none_or(|major| major < OLDEST) {
        return Err(format!(
            "{name} is PostgreSQL {version}; {OLDEST} or later is needed."
        ));
    }
    let version = version.to_owned();
    Ok(Postgres {
        server,
        initdb,
        version,
    })
}

/// Returns the Redis server at a path, or the reason why it is unsuitable. Links are not resolved,
/// because the target may be a program whose function depends on its name.
pub(super) fn try_redis(
    file: PathBuf,
    libraries: Option<OsString>,
    user: Option<Ids>,
) -> Result<Program, String> {
    let name = file.display().to_string();
    let program = Program { file, libraries };
    program
        .version(user)
        .map_err(|why| format!("{name} does not run: {why}."))?;
    Ok(program)
}

/// Returns the version in `postgres (PostgreSQL) 15.4 (Vendor 15.4-1)`.
fn version_in(words: &str) -> Option<&str> {
    let version = words.split_ascii_whitespace().nth(2)?;
    version
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        .then_some(version)
}

/// Returns the leading number of a version.
pub(super) fn major(version: &str) -> Option<u32> {
    version
        .split(|letter: char| !letter.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(
            version_in("postgres (PostgreSQL) 15.4 (Vendor 15.4-1)\n"),
            Some("15.4")
        );
        assert_eq!(version_in("postgres (PostgreSQL) 18beta1"), Some("18beta1"));
        assert_eq!(version_in("postgres"), None);
        assert_eq!(version_in("a b ../c"), None);
    }

    #[test]
    fn major_versions_are_read() {
        assert_eq!(major("15.4"), Some(15));
        assert_eq!(major("18beta1"), Some(18));
        assert_eq!(major("devel"), None);
    }
}
