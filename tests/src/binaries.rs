//! The binaries that are launched: built by cargo when they are not up to date.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::Trouble;

/// Where the two binaries are.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// `assay-api`
    pub api: PathBuf,
    /// `assay-worker`
    pub worker: PathBuf,
    /// Whether they were optimized.
    pub optimized: bool,
}

/// Builds both binaries, as optimized ones if `release`. What cargo says of the build goes to standard error.
///
/// # Errors
/// When the build fails.
pub fn build(release: bool) -> Result<Binaries, Trouble> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Trouble::new("the tests' crate stands in no workspace"))?;
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "-p", "assay-api", "-p", "assay-worker"]);
    without_ours(&mut command);
    if release {
        command.arg("--release");
    }
    let status = command
        .status()
        .map_err(Trouble::because("cannot run cargo"))?;
    if !status.success() {
        return Err(Trouble::new(
            "assay-api and assay-worker do not build; see above",
        ));
    }
    let folder = target()?.join(if release { "release" } else { "debug" });
    Ok(Binaries {
        api: folder.join("assay-api"),
        worker: folder.join("assay-worker"),
        optimized: release,
    })
}

/// Builds the binaries as they were at a commit, beside those of the sources at hand: what they depend on is built once for
/// both.
///
/// # Errors
/// When there is no such commit, or its build fails.
pub fn build_of(commit: &str) -> Result<Binaries, Trouble> {
    let target = target()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Trouble::new("the tests' crate stands in no workspace"))?;
    let folder = target.join("before");
    let sources = folder.join("sources");
    // Files that are as they were keep their times, or all would be built anew. The crates get a version of their own, because
    // cargo would otherwise take what it built of one commit for what it built of the other.
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
            "the sources of {commit} cannot be had from git"
        )));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&sources).args([
        "build",
        "-p",
        "assay-api",
        "-p",
        "assay-worker",
        "--locked",
    ]);
    command
        .env("CARGO_BUILD_BUILD_DIR", &target)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("ASSAY_GIT_SHA", commit);
    without_ours(&mut command);
    if !command
        .status()
        .map_err(Trouble::because("cannot run cargo"))?
        .success()
    {
        return Err(Trouble::new(format!(
            "assay-api and assay-worker of {commit} do not build; see above"
        )));
    }
    let built = folder.join("target/debug");
    Ok(Binaries {
        api: built.join("assay-api"),
        worker: built.join("assay-worker"),
        optimized: false,
    })
}

/// What cargo tells this program of its own package is not for that build: some build scripts look at it, and all that depends
/// on them would be built anew, here and then by whoever called this program.
fn without_ours(command: &mut Command) {
    let of_ours =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_ours)) {
        command.env_remove(name);
    }
}

/// The target folder, found from this program's own place in it: `target/debug/demo`, `target/debug/deps/platform-…`.
fn target() -> Result<PathBuf, Trouble> {
    let own =
        std::env::current_exe().map_err(Trouble::because("cannot tell where this program is"))?;
    let profile = own
        .ancestors()
        .skip(1)
        .find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .ok_or_else(|| Trouble::new("this program is not in a target folder of cargo's"))
}
