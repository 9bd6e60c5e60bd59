//! Private copies from the distribution's packages, without installation and without root.
//!
//! The system's package tools fetch them, with the system's sources and keys, but with separate
//! lists and a separate cache, because those of the system may be empty and belong to root.

use super::cache::cache;
use super::folder::{make_folder, remove_folder};
use super::trouble::{Trouble, last_lines};
use std::env::consts::ARCH;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const APT: &str = "/usr/bin/apt-get";
const APT_CACHE: &str = "/usr/bin/apt-cache";
const DPKG: &str = "/usr/bin/dpkg-deb";

/// The download folder below the work folder.
const ARCHIVES: &str = "cache/archives";

/// A shell that makes the copy readable for the servers' user, independently of the caller's umask.
const READABLE: &str = r#"umask 022 && exec "$@""#;

/// A file of the time zones that Debian's PostgreSQL needs at this path, also as a private copy.
const TIME_ZONES: &str = "/usr/share/zoneinfo/UTC";

/// Packages that are not copied, because the C library must match the system's loader.
const NEVER_COPIED: [&str; 2] = ["libc6_", "libc-bin_"];

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Redis,
    /// Prometheus with promtool, which only tests use.
    Prometheus,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
            Self::Prometheus => "Prometheus",
        }
    }
}

/// Returns an error that advises to install the servers or to name running ones.
pub(super) fn advice(problem: &str) -> Trouble {
    let hint = if cfg!(target_os = "macos") {
        "Type \"brew install postgresql redis\", or name"
    } else {
        "Install PostgreSQL (15 or later) and Redis with the system's package manager, or name"
    };
    Trouble::new(format!(
        "{problem}\n{hint} running servers in the environment variables DATABASE_URL and REDIS_URL."
    ))
}

/// Returns an error if private copies cannot be fetched or would not run.
pub(super) fn check_possible(missing: &[Kind]) -> Result<(), Trouble> {
    let names: Vec<&str> = missing.iter().map(|kind| kind.name()).collect();
    let names = names.join(" and ");
    if ![APT, APT_CACHE, DPKG]
        .iter()
        .all(|tool| Path::new(tool).is_file())
    {
        return Err(advice(&format!("This machine lacks {names}.")));
    }
    if missing.contains(&Kind::Postgres) && !Path::new(TIME_ZONES).exists() {
        return Err(advice(&format!(
            "This machine lacks {names}, and a private copy would need the package tzdata."
        )));
    }
    Ok(())
}

/// Returns the private copy if it exists. It belongs to one release, whose libraries it uses.
pub(super) fn copy_of(kind: Kind) -> Option<PathBuf> {
    copy_path(kind).ok().filter(|path| path.is_dir())
}

fn copy_path(kind: Kind) -> Result<PathBuf, Trouble> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = kind.name().to_lowercase();
    Ok(cache()?.join(format!("{name}-{}-{ARCH}", release_name(&release))))
}

/// Returns the name of the system's release, such as `debian-12`.
fn release_name(os_release: &str) -> String {
    let value = |key: &str| {
        let mut pairs = os_release.lines().filter_map(|line| line.split_once('='));
        let value = pairs
            .find(|(name, _)| *name == key)
            .map_or("", |(_, value)| value);
        value
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '.')
            .collect()
    };
    let parts: [String; 2] = [value("ID"), value("VERSION_ID")];
    parts.join("-")
}

/// Returns the folders of shared libraries in a copy, as the loader's search path.
pub(super) fn libraries(copy: &Path) -> OsString {
    let mut folders = Vec::new();
    for base in ["usr/lib", "lib"].map(|name| copy.join(name)) {
        let entries = fs::read_dir(&base).into_iter().flatten().flatten();
        let is_platform = |name: &OsStr| name.to_str().is_some_and(|name| name.contains("-linux-"));
        folders.extend(
            entries
                .filter(|entry| is_platform(&entry.file_name()))
                .map(|e| e.path()),
        );
        folders.push(base);
    }
    let folders: Vec<&OsStr> = folders.iter().map(|folder| folder.as_os_str()).collect();
    folders.join(OsStr::new(":"))
}

/// Fetches private copies, and replaces those that do not run. The caller must hold the lock.
pub(super) fn fetch(kinds: &[Kind], say: &dyn Fn(&str)) -> Result<(), Trouble> {
    let work = cache()?.join("fetch.new");
    // A killed process may have left the folder.
    remove_folder(&work)?;
    let result = fetch_in(&work, kinds, say);
    remove_folder(&work)?;
    result
}

fn fetch_in(work: &Path, kinds: &[Kind], say: &dyn Fn(&str)) -> Result<(), Trouble> {
    let tried = format!("{} cannot be written", work.display());
    make_work_folders(work)?;
    say("Fetching this system's list of packages …");
    update(work)?;
    for &kind in kinds {
        let path = copy_path(kind)?;
        say(&format!(
            "Fetching a private copy of {} to {} …",
            kind.name(),
            path.display()
        ));
        remove_folder(&work.join(ARCHIVES))?;
        make_work_folders(work)?;
        download(work, kind)?;
        let root = work.join(kind.name());
        make_folder(&root, 0o755).map_err(Trouble::because(&tried))?;
        unpack(work, &root)?;
        remove_folder(&path)?;
        fs::rename(&root, &path).map_err(Trouble::because(&tried))?;
    }
    Ok(())
}

/// Downloads the package lists. The tool fails if any source is broken, which is
/// harmless, and succeeds if none is reachable; so the existence of lists decides.
fn update(work: &Path) -> Result<(), Trouble> {
    let output = execute(work, APT, &["update".into()])?;
    let mut lists = fs::read_dir(work.join("state/lists"))
        .into_iter()
        .flatten()
        .flatten();
    if lists.any(|list| list.file_name().to_string_lossy().contains("_Packages")) {
        return Ok(());
    }
    Err(failure(APT, &output))
}

/// Creates the folders that the package tools expect.
fn make_work_folders(work: &Path) -> Result<(), Trouble> {
    for name in ["state/lists/partial", "cache/archives/partial"] {
        let path = work.join(name);
        fs::create_dir_all(&path).map_err(Trouble::because(format!(
            "{} cannot be made",
            path.display()
        )))?;
    }
    Ok(())
}

/// Downloads the server's package and all its dependencies that this machine lacks.
fn download(work: &Path, kind: Kind) -> Result<(), Trouble> {
    let options = [
        "install",
        "--yes",
        "--download-only",
        "--no-install-recommends",
        // For a package that is marked as installed although its files are gone.
        "--reinstall",
        // Nothing is installed, so packages on hold do not matter.
        "--allow-change-held-packages",
    ];
    let mut last = advice(&format!(
        "This system's sources offer no package of {}.",
        kind.name()
    ));
    for name in packages(work, kind)? {
        let args: Vec<OsString> = options
            .iter()
            .map(OsString::from)
            .chain([name.into()])
            .collect();
        match run(work, APT, &args) {
            // A package that is marked as installed and is in no list is "installed" without a
            // download.
            Ok(_) if downloaded(work).is_empty() => {}
            Ok(_) => return Ok(()),
            Err(trouble) => last = trouble,
        }
    }
    Err(last)
}

/// Returns the candidate packages, of which one is sufficient. PostgreSQL's has the version in its
/// name, which the dependencies of a metapackage contain.
fn packages(work: &Path, kind: Kind) -> Result<Vec<String>, Trouble> {
    match kind {
        Kind::Redis => Ok(vec!["redis-server".into(), "valkey-server".into()]),
        Kind::Prometheus => Ok(vec!["prometheus".into()]),
        Kind::Postgres => {
            let depends = run(work, APT_CACHE, &["depends".into(), "postgresql".into()])?;
            Ok(versioned_package(&depends).into_iter().collect())
        }
    }
}

fn versioned_package(depends: &str) -> Option<String> {
    let is_version = |name: &&str| {
        let version = name.strip_prefix("postgresql-").unwrap_or_default();
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    };
    depends
        .split_ascii_whitespace()
        .find(is_version)
        .map(str::to_owned)
}

fn unpack(work: &Path, root: &Path) -> Result<(), Trouble> {
    for package in downloaded(work) {
        run(
            work,
            DPKG,
            &["--extract".into(), package.into(), root.into()],
        )?;
    }
    Ok(())
}

/// Returns the package files to unpack.
fn downloaded(work: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(work.join(ARCHIVES))
        .into_iter()
        .flatten()
        .flatten();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.ends_with(".deb") && !NEVER_COPIED.iter().any(|prefix| name.starts_with(prefix))
    };
    entries
        .map(|entry| entry.path())
        .filter(is_wanted)
        .collect()
}

/// Runs one of the system's package tools and returns what it prints.
fn run(work: &Path, tool: &str, args: &[OsString]) -> Result<String, Trouble> {
    let output = execute(work, tool, args)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failure(tool, &output))
}

fn execute(work: &Path, tool: &str, args: &[OsString]) -> Result<Output, Trouble> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", READABLE, "sh", tool]);
    if tool != DPKG {
        command.args(apt_options(work));
    }
    command.args(args).stdin(Stdio::null()).current_dir("/");
    command
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
        .output()
        .map_err(Trouble::because(format!("{tool} cannot be started")))
}

fn failure(tool: &str, output: &Output) -> Trouble {
    let complaint = String::from_utf8_lossy(&output.stderr);
    advice(&format!("{tool} failed:\n{}", last_lines(&complaint)))
}

fn apt_options(work: &Path) -> Vec<OsString> {
    let folder = |name: &str, path: &str| {
        let mut option = OsString::from(format!("--option={name}="));
        option.push(work.join(path));
        option
    };
    let mut options = vec![
        folder("Dir::State", "state"),
        folder("Dir::State::Lists", "state/lists"),
        folder("Dir::Cache", "cache"),
        folder("Dir::Cache::Archives", ARCHIVES),
    ];
    options.extend(
        [
            "--option=Debug::NoLocking=1",
            "--option=APT::Sandbox::User=root",
        ]
        .map(Into::into),
    );
    options.extend(
        [
            "--option=Acquire::Languages=none",
            "--option=Acquire::Retries=3",
        ]
        .map(Into::into),
    );
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_name_is_parsed() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(release_name(text), "debian-12");
        assert_eq!(release_name(""), "-");
    }

    #[test]
    fn versioned_package_is_found() {
        let text = "postgresql\n  Depends: postgresql-common\n  Depends: postgresql-15\n";
        assert_eq!(versioned_package(text).as_deref(), Some("postgresql-15"));
        assert_eq!(versioned_package("postgresql\n"), None);
    }
}
