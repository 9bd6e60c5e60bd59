//! `assay-api doctor`: what is in force of that which a process depends on. It reads the settings of
//! that process, changes nothing that stays, and names a remedy for each finding.

mod artifacts;
mod checks;
mod postgresql;
mod process;
mod receipt_log;
mod redis;

use self::artifacts::check_artifacts;
use self::checks::{Check, Outcome};
use self::postgresql::check_database;
pub use self::process::Process;
use self::receipt_log::check_receipts;
use self::redis::check_redis;
use crate::admin::error::{Result, refused};
use crate::settings::DoctorSettings;

/// Checks everything that a process depends on, and prints one line per check.
///
/// # Errors
/// If the settings are not valid, or a check fails.
pub async fn run(process: Process, as_json: bool) -> Result<()> {
    let settings = DoctorSettings::from_env(process.uses_redis(), process.uses_artifacts())?;
    let mut checks = Vec::new();
    let has_database = check_database(process, &settings, &mut checks).await;
    if let Some(url) = &settings.redis_url {
        check_redis(url, &settings.redis_prefix, &mut checks).await;
    }
    if let Some(location) = &settings.artifacts {
        check_artifacts(location, &mut checks).await;
        if let (Some(signing), true) = (&settings.signing, has_database) {
            check_receipts(&settings, location, signing, &mut checks).await;
        }
    }
    print(&checks, as_json)?;
    let failed = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Fail)
        .count();
    match failed {
        0 => Ok(()),
        1 => Err(refused("1 check failed")),
        n => Err(refused(format!("{n} checks failed"))),
    }
}

fn print(checks: &[Check], as_json: bool) -> Result<()> {
    if as_json {
        let text = serde_json::to_string_pretty(checks).map_err(assay_core::Error::internal)?;
        println!("{text}");
        return Ok(());
    }
    for Check {
        area,
        check,
        outcome,
        found,
        remedy,
    } in checks
    {
        println!("{outcome:<4}  {area:<10}  {check:<22}  {found}");
        if let Some(remedy) = remedy {
            println!("      {:<10}  {:<22}  → {remedy}", "", "");
        }
    }
    Ok(())
}
