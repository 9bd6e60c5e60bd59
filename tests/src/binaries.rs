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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or_else(|| Trouble::new("the tests' crate stands in no workspace"))?;
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "-p", "assay-api", "-p", "assay-worker"]);
    // What cargo tells this program of its own package is not for that build: some build scripts look at it, and all that
    // depends on them would be built anew, here and then by whoever called this program.
    let of_ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_ours)) {
        command.env_remove(name);
    }
    if release {
        command.arg("--release");
    }
    let status = command.status().map_err(Trouble::because("cannot run cargo"))?;
    if !status.success() {
        return Err(Trouble::new("assay-api and assay-worker do not build; see above"));
    }
    let folder = target()?.join(if release { "release" } else { "debug" });
    Ok(Binaries { api: folder.join("assay-api"), worker: folder.join("assay-worker"), optimized: release })
}

/// The target folder, found from this program's own place in it: `target/debug/demo`, `target/debug/deps/platform-…`.
fn target() -> Result<PathBuf, Trouble> {
    let own = std::env::current_exe().map_err(Trouble::because("cannot tell where this program is"))?;
    let profile = own.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent);
    target.map(Path::to_path_buf).ok_or_else(|| Trouble::new("this program is not in a target folder of cargo's"))
}
