//! The receipt log check.

use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::{self, PoolProfile, migrations, receipt_log};

use super::checks::{Area, Check};
use crate::receipt_log::publication::read_checkpoint;
use crate::settings::{DoctorSettings, SigningSettings};

/// Checks the receipt log: its role, and that the database continues the published checkpoint.
pub(super) async fn check_receipts(
    settings: &DoctorSettings,
    location: &str,
    signing: &SigningSettings,
    checks: &mut Vec<Check>,
) {
    let mut area = Area {
        name: "receipts",
        checks,
    };
    let url = settings
        .log_database_url
        .as_ref()
        .unwrap_or(&settings.database_url);
    let compare = async {
        let pool = store::pool(url, 1, "assay-doctor", PoolProfile::REQUESTS)?;
        if migrations::can_do_more_than_log(&pool).await? {
            return Ok(Err("its role may do more than write the log".to_owned()));
        }
        let state = receipt_log::state(&pool).await?;
        pool.close().await;
        let artifacts = Artifacts::at(location)?;
        let published = match read_checkpoint(&artifacts, &signing.identity).await? {
            Ok(checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.tree.size()),
            Err(refusal) => return Ok(Err(refusal.to_string())),
        };
        let entries = u64::try_from(state.entries).unwrap_or_default();
        Ok::<_, assay_core::Error>(if entries < published {
            Err(format!(
                "the database has {entries} entries, the published checkpoint {published}"
            ))
        } else {
            Ok(format!("{published} of {entries} entries are published"))
        })
    };
    let (found, is_good) = match compare.await {
        Ok(Ok(found)) => (found, true),
        Ok(Err(problem)) => (problem, false),
        Err(error) => (error.cause_or_message(), false),
    };
    area.require(
        "log",
        is_good,
        found,
        "after a restore, run assay-api log recover; a login role in assay_log alone belongs in ASSAY_LOG_DATABASE_URL",
    );
}
