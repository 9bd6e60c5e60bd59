//! The launched binaries, which cargo builds unless they are up to date.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::Trouble;

/// The paths of the binaries.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// Path of `assay-api`, which also has the operator's commands.
    pub api: PathBuf,
    /// Path of `assay-worker`, which scores the jobs.
    pub worker: PathBuf,
    /// Path of `assay`, the command-line program. Only tests build it.
    pub cli: PathBuf,
    /// Path of the library that Python loads as the module `assay_scorer`. Only tests build it.
    pub scorer: PathBuf,
    /// `true` if the binaries were built with optimizations.
    pub optimized: bool,
}

/// A profile of cargo's builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Without optimizations, and with the system's allocator.
    Dev,
    /// As `cargo test` compiles: without optimizations, except in the crates that tests use most.
    Test,
    /// With optimizations.
    Release,
    /// As in the image: with optimizations across all crates, which takes several times as long.
    Dist,
}

impl Profile {
    /// Returns the optimized profile if `optimized` is set.
    pub const fn release_if(optimized: bool) -> Self {
        if optimized { Self::Release } else { Self::Dev }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Test => "test",
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Returns the name of the profile's folder in the target folder.
    const fn folder(self) -> &'static str {
        match self {
            Self::Dev | Self::Test => "debug",
            Self::Release | Self::Dist => self.name(),
        }
    }
}

/// Builds the binaries with a profile. Cargo reports the build on standard error.
///
/// # Errors
/// If the build fails.
pub fn build(profile: Profile) -> Result<Binaries, Trouble> {
    let mut selection = PACKAGES.to_vec();
    if profile == Profile::Dev {
        selection.extend(WITHOUT_DEFAULT_FEATURES);
    }
    build_selected(profile, &selection)
}

/// Builds the binaries for tests, from the crates that `cargo test` has compiled.
///
/// # Errors
/// If the build fails.
pub fn build_for_tests() -> Result<Binaries, Trouble> {
    build_selected(Profile::Test, &WITH_FEATURES_OF_TESTS)
}

fn build_selected(profile: Profile, selection: &[&str]) -> Result<Binaries, Trouble> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Trouble::new("the tests' crate is in no workspace"))?;
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--profile", profile.name()])
        .args(selection);
    remove_own_cargo_env(&mut command);
    let status = command
        .status()
        .map_err(Trouble::because("cannot run cargo"))?;
    if !status.success() {
        return Err(Trouble::new("the binaries do not build; see above"));
    }
    let folder = target()?.join(profile.folder());
    let is_optimized = matches!(profile, Profile::Release | Profile::Dist);
    Ok(Binaries::in_folder(&folder, is_optimized))
}

/// The arguments of cargo that select an installation's programs. The launcher's package depends
/// on theirs, and is selected with them, so that all builds enable the same features in shared
/// dependencies and compile each crate once.
const PACKAGES: [&str; 8] = [
    "-p",
    LAUNCHER,
    "-p",
    "assay-api",
    "-p",
    "assay-worker",
    "--bin=assay-api",
    "--bin=assay-worker",
];

/// This crate's package.
const LAUNCHER: &str = "assay-tests";

/// Returns the cargo arguments with which `cargo demo` selects packages and features in its two
/// builds: first the launcher, then the programs.
pub fn demo_selections() -> [Vec<&'static str>; 2] {
    let programs = PACKAGES
        .into_iter()
        .filter(|argument| !argument.starts_with("--bin"))
        .chain(WITHOUT_DEFAULT_FEATURES);
    [vec!["-p", LAUNCHER], programs.collect()]
}

/// Selects the features of the programs with which the launcher's package depends on theirs.
const WITHOUT_DEFAULT_FEATURES: [&str; 3] =
    ["--no-default-features", "--features", "assay-tests/default"];

/// The arguments of cargo that select the same binaries, with the features that `cargo test` enables
/// in their dependencies. Tests enable more features than programs do, and cargo compiles a crate
/// once for each set of features; so without these arguments a test run would compile almost all
/// crates twice. Cargo enables the features of tests if a test is selected: this one is small.
const WITH_FEATURES_OF_TESTS: [&str; 10] = [
    "--workspace",
    "--lib",
    "--bin",
    "assay-api",
    "--bin",
    "assay-worker",
    "--test",
    "attacks",
    "--bin",
    "assay",
];

impl Binaries {
    fn in_folder(folder: &Path, optimized: bool) -> Self {
        Self {
            api: folder.join("assay-api"),
            worker: folder.join("assay-worker"),
            cli: folder.join("assay"),
            scorer: folder.join("libassay_scorer.so"),
            optimized,
        }
    }
}

/// Builds the binaries of `commit`, in a folder next to the binaries of the working tree. Both
/// builds share the compiled dependencies.
///
/// # Errors
/// If there is no such commit, or its build fails.
pub fn build_of(commit: &str) -> Result<Binaries, Trouble> {
    let target = target()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Trouble::new("the tests' crate is in no workspace"))?;
    let folder = target.join("before");
    let sources = folder.join("sources");
    // Unchanged files keep their modification times; otherwise cargo would rebuild everything. The
    // crates get their own version; otherwise cargo would confuse the build of one commit with
    // that of the other.
    let script = r#"
        rm -rf "$1.new" && mkdir -p "$1.new" "$1"
        git archive "$2" | tar -x -m -C "$1.new"
        cd "$1.new" && find . -type f | while read -r file; do
            if cmp -s "$file" "$1/$file"; then touch -r "$1/$file" "$file"; fi
        done
        rm -rf "$1" && mv "$1.new" "$1" && cd "$1"
        sed -i 's/^version = "\(.*\)"/version = "\1+before"/' Cargo.toml
        sed -i '/^name = "assay-/{n;s/"$/+before"/;}' Cargo.lock"#;
    let unpacked = Command::new("/bin/sh")
        .args(["-ec", script, "sh"])
        .arg(&sources)
        .arg(commit)
        .current_dir(root)
        .status();
    if !unpacked
        .map_err(Trouble::because("cannot run git"))?
        .success()
    {
        return Err(Trouble::new(format!(
            "cannot read the sources of {commit} from git"
        )));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(&sources)
        .args(["build", "--locked", "--profile", "test"]);
    // This build scores a few predictions, so optimizations would only take time.
    for setting in [
        "debug",
        "package.assay-adversary.opt-level",
        "package.assay-engine.opt-level",
        "package.assay-eval.opt-level",
    ] {
        command
            .arg("--config")
            .arg(format!("profile.test.{setting}=0"));
    }
    // Commits before the command-line program lack the last binary.
    let has_clients = sources.join("clients/cli").exists();
    command.args(&WITH_FEATURES_OF_TESTS[..if has_clients { 10 } else { 8 }]);
    command
        .env("CARGO_BUILD_BUILD_DIR", &target)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("ASSAY_GIT_SHA", commit)
        // Lints, if there are some, are for the current commit.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    remove_own_cargo_env(&mut command);
    if !command
        .status()
        .map_err(Trouble::because("cannot run cargo"))?
        .success()
    {
        return Err(Trouble::new(format!(
            "the binaries of {commit} do not build; see above"
        )));
    }
    Ok(Binaries::in_folder(&folder.join("target/debug"), false))
}

/// Removes the variables that cargo sets for this program's own package. Some build scripts depend
/// on them, so that their dependents would be rebuilt here, and again by the next build outside
/// this program.
fn remove_own_cargo_env(command: &mut Command) {
    let is_own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_own)) {
        command.env_remove(name);
    }
}

/// Returns the target folder, derived from this program's own path: `target/debug/demo`,
/// `target/debug/deps/platform-…`.
fn target() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe()
        .map_err(Trouble::because("cannot find the path of this program"))?;
    let profile = own
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .ok_or_else(|| Trouble::new("this program is not in a target folder of cargo's"))
}
