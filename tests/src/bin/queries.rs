//! `cargo queries`: writes the types of all SQL statements to `.sqlx`, so that a build needs no
//! database. `cargo queries --check` fails if they do not match the sources.
//!
//! It starts a private PostgreSQL, migrates it from the files, and runs `cargo sqlx prepare`. It
//! does not depend on the other crates, because these do not build while a statement differs from
//! `.sqlx`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use assay_tests::databases;
use assay_tests::servers::{Servers, Trouble};
use sqlx::migrate::Migrator;

/// The version of sqlx-cli, which must equal that of sqlx in Cargo.toml.
const SQLX: &str = "0.9.0";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match queries(&arguments).await {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("cargo queries: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn queries(arguments: &[String]) -> Result<ExitCode, Trouble> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or_else(|| Trouble::new("the tests' crate is in no workspace"))?;
    let tool = tool(root)?;
    let servers = Servers::start(&|line| eprintln!("{line}"))?;
    let name = databases::fresh_name("queries");
    databases::create(&servers, &name, None).await?;
    let url = servers.postgres_url(&name);
    let migrations = Migrator::new(root.join("migrations"))
        .await
        .map_err(Trouble::because("cannot read the migrations"))?;
    let mut connection = databases::connect(&url).await?;
    migrations
        .run(&mut connection)
        .await
        .map_err(Trouble::because("cannot run the migrations"))?;
    let status = Command::new(tool)
        .current_dir(root)
        .args(["sqlx", "prepare", "--workspace"])
        .args(arguments)
        .env("DATABASE_URL", &url)
        .env("SQLX_OFFLINE", "false")
        .status()
        .map_err(Trouble::because("cannot run cargo-sqlx"))?;
    databases::remove(&servers, &name).await?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the path of `cargo-sqlx` in the target folder, and builds it there first if needed.
fn tool(root: &Path) -> Result<PathBuf, Trouble> {
    let home = root.join("target/tools");
    let tool = home.join("bin/cargo-sqlx");
    if tool.exists() {
        return Ok(tool);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "install",
            "--quiet",
            "--locked",
            // The build takes longer than the run.
            "--debug",
            "sqlx-cli",
            "--version",
            SQLX,
            "--no-default-features",
            "--features",
            "postgres",
        ])
        .arg("--root")
        .arg(&home)
        .status()
        .map_err(Trouble::because("cannot run cargo"))?;
    if status.success() {
        Ok(tool)
    } else {
        Err(Trouble::new("sqlx-cli does not build; see above"))
    }
}
