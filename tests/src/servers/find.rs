//! Finds the servers' programs on this machine.

use super::cache::lock;
use super::fetch::{self, Kind};
use super::program::{Postgres, Program, major, try_postgres, try_redis};
use super::sys::Ids;
use super::trouble::Trouble;
use std::cmp::Reverse;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Homebrew's installation folders, on Apple silicon and on Intel.
const HOMEBREW: [&str; 2] = ["/opt/homebrew/opt", "/usr/local/opt"];

/// The file names of Redis and Valkey servers.
const REDIS_NAMES: [&str; 2] = ["redis-server", "valkey-server"];

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) postgres: Option<Postgres>,
    pub(super) redis: Option<Program>,
    /// Sentences about unsuitable programs that were found.
    passed_over: Vec<String>,
}

/// Finds the wanted programs, and fetches private copies of missing ones if possible.
pub(super) fn find_or_fetch(
    wanted: &[Kind],
    user: Option<Ids>,
    say: &dyn Fn(&str),
) -> Result<Found, Trouble> {
    let found = find(wanted, user)?;
    let missing = found.missing(wanted);
    if missing.is_empty() {
        return Ok(found);
    }
    fetch::check_possible(&missing).map_err(|trouble| found.explain(&trouble))?;
    let _alone = lock("fetch", true, say)?;
    // Another process may have fetched them during the wait.
    let found = find(wanted, user)?;
    let missing = found.missing(wanted);
    if missing.is_empty() {
        return Ok(found);
    }
    fetch::fetch(&missing, say).map_err(|trouble| found.explain(&trouble))?;
    let found = find(wanted, user)?;
    if found.missing(wanted).is_empty() {
        return Ok(found);
    }
    Err(found.explain(&fetch::advice(
        "The private copies of this system's packages do not run.",
    )))
}

/// Returns the folder with Prometheus and promtool, and fetches a private copy if needed.
pub(super) fn prometheus(say: &dyn Fn(&str)) -> Result<PathBuf, Trouble> {
    let find = || {
        let copy = fetch::copy_of(Kind::Prometheus).map(|copy| copy.join("usr/bin"));
        search_path().chain(copy).find(|folder| {
            ["prometheus", "promtool"]
                .iter()
                .all(|name| folder.join(name).is_file())
        })
    };
    if let Some(folder) = find() {
        return Ok(folder);
    }
    fetch::check_possible(&[Kind::Prometheus])?;
    let _alone = lock("fetch", true, say)?;
    if find().is_none() {
        fetch::fetch(&[Kind::Prometheus], say)?;
    }
    find().ok_or_else(|| fetch::advice("The private copy of this system's Prometheus is not one."))
}

fn find(wanted: &[Kind], user: Option<Ids>) -> Result<Found, Trouble> {
    let mut found = Found::default();
    if wanted.contains(&Kind::Postgres) {
        found.find_postgres(user)?;
    }
    if wanted.contains(&Kind::Redis) {
        found.find_redis(user)?;
    }
    Ok(found)
}

impl Found {
    fn missing(&self, wanted: &[Kind]) -> Vec<Kind> {
        let is_missing = |kind: &&Kind| match kind {
            Kind::Postgres => self.postgres.is_none(),
            Kind::Redis => self.redis.is_none(),
            // `prometheus` searches for it separately.
            Kind::Prometheus => false,
        };
        wanted.iter().filter(is_missing).copied().collect()
    }

    /// Returns the error, preceded by the sentences about unsuitable programs.
    fn explain(&self, trouble: &Trouble) -> Trouble {
        let mut sentences = self.passed_over.clone();
        sentences.push(trouble.to_string());
        Trouble::new(sentences.join("\n"))
    }

    fn find_postgres(&mut self, user: Option<Ids>) -> Result<(), Trouble> {
        if let Some(folder) = variable("ASSAY_POSTGRES_BIN") {
            let tried = try_postgres(&folder, None, user);
            self.postgres = Some(tried.map_err(|why| wrong("ASSAY_POSTGRES_BIN", &why))?);
            return Ok(());
        }
        let mut places: Vec<(PathBuf, Option<OsString>)> = Vec::new();
        let own = search_path()
            .chain(debian_folders(Path::new("/")))
            .chain(homebrew_folders());
        places.extend(own.map(|folder| (folder, None)));
        if let Some(copy) = fetch::copy_of(Kind::Postgres) {
            let libraries = fetch::libraries(&copy);
            let folders = debian_folders(&copy).into_iter();
            places.extend(folders.map(|folder| (folder, Some(libraries.clone()))));
        }
        places.retain(|(folder, _)| folder.join("postgres").is_file());
        self.postgres = places
            .into_iter()
            .find_map(|(folder, libraries)| self.note(try_postgres(&folder, libraries, user)));
        Ok(())
    }

    fn find_redis(&mut self, user: Option<Ids>) -> Result<(), Trouble> {
        if let Some(file) = variable("ASSAY_REDIS_SERVER") {
            let tried = try_redis(file, None, user);
            self.redis = Some(tried.map_err(|why| wrong("ASSAY_REDIS_SERVER", &why))?);
            return Ok(());
        }
        let own = search_path()
            .chain(homebrew_folders())
            .map(|folder| (folder, None));
        let copy = fetch::copy_of(Kind::Redis);
        let copy = copy.map(|copy| (copy.join("usr/bin"), Some(fetch::libraries(&copy))));
        let places: Vec<_> = own.chain(copy).collect();
        let mut candidates = places.into_iter().flat_map(|(folder, libraries)| {
            REDIS_NAMES.map(|name| (folder.join(name), libraries.clone()))
        });
        self.redis = candidates.find_map(|(file, libraries)| {
            file.is_file()
                .then(|| self.note(try_redis(file, libraries, user)))
                .flatten()
        });
        Ok(())
    }

    fn note<T>(&mut self, tried: Result<T, String>) -> Option<T> {
        tried.map_err(|why| self.passed_over.push(why)).ok()
    }
}

/// Returns the path in an environment variable, or `None` if it is unset or empty.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the error for an unsuitable program named by a variable; such a program is never
/// skipped.
fn wrong(variable: &str, why: &str) -> Trouble {
    Trouble::new(format!(
        "{why} Correct the environment variable {variable}, or unset it."
    ))
}

fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // An empty entry means the current folder, which is never intended.
    let folders: Vec<PathBuf> = env::split_paths(&path)
        .filter(|path| path.is_absolute())
        .collect();
    folders.into_iter()
}

/// Returns Debian's folders of PostgreSQL programs below `root`, the latest version first. They are
/// not on the search path.
fn debian_folders(root: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(Reverse<u32>, PathBuf)> = entries(&root.join("usr/lib/postgresql"))
        .filter_map(|(name, path)| Some((Reverse(major(&name)?), path.join("bin"))))
        .collect();
    versions.sort();
    versions.into_iter().map(|(_, folder)| folder).collect()
}

fn homebrew_folders() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = HOMEBREW
        .iter()
        .flat_map(|root| entries(Path::new(root)))
        .filter(|(name, _)| {
            ["postgresql", "redis", "valkey"]
                .iter()
                .any(|ours| name.starts_with(ours))
        })
        .map(|(_, path)| path.join("bin"))
        .collect();
    // The names end in the version, so the latest version is first.
    found.sort_by(|one, other| other.cmp(one));
    found
}

/// Returns names and paths of a folder's entries; none if the folder does not exist.
fn entries(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}
