// Included by the build scripts of both binaries: sets ASSAY_GIT_SHA for the compiler, from the
// variable of that name if the sources come without their history, otherwise from the commit that
// is checked out.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ASSAY_GIT_SHA");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"]);
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo:rerun-if-changed={folder}/HEAD");
        println!("cargo:rerun-if-changed={folder}/logs/HEAD");
    }
    let sha = std::env::var("ASSAY_GIT_SHA").ok().filter(|sha| !sha.is_empty()).or(head);
    println!("cargo:rustc-env=ASSAY_GIT_SHA={}", sha.unwrap_or_else(|| String::from("unknown")));
}
