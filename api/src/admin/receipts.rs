//! The commands about score receipts, their keys and their log.

use assay_core::Error;
use assay_core::model::random;
use assay_core::runtime::artifacts::Artifacts;
use assay_core::store::{self, PoolProfile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admin::commands::pool;
use crate::admin::error::{Result, refused};
use crate::receipt_log::recovery;
use crate::settings::{LogSettings, SigningSettings};

/// `log recover`: restores the entries that the database has lost.
pub async fn recover(settings: &LogSettings) -> Result<Value> {
    let SigningSettings { identity, .. } = &settings.signing;
    let artifacts = Artifacts::open(&settings.artifacts).await?;
    let pool = pool(&settings.database_url)?;
    let mut db = store::connect(&pool, "assay-log-recover", PoolProfile::REQUESTS).await?;
    let entries = recovery::recover(&mut db, &artifacts, identity)
        .await?
        .map_err(|reason| refused(reason.to_string()))?;
    Ok(json!({"entries": entries}))
}

/// `log keygen`: a new key of a log.
pub fn log_keygen(origin: &str) -> Result<Value> {
    let secret = random::bytes().map_err(Error::from)?;
    let (private, public) = assay_receipts::log::new_key(origin, &secret).map_err(refused)?;
    Ok(json!({"ASSAY_LOG_KEY": private, "ASSAY_LOG_ORIGIN": origin, "verifier_key": public}))
}

/// `receipt-key generate`: a new key of receipts, as the setting has it.
pub fn generate_receipt_key() -> Result<String> {
    let secret: [u8; 32] = random::bytes().map_err(Error::from)?;
    Ok(STANDARD.encode(secret))
}

/// `receipt-key revoke`: asks the log to revoke a key.
pub async fn revoke_receipt_key(url: &str, kid: &str, yes: bool) -> Result<Value> {
    if !yes {
        return Err(refused(
            "receipts that this key signed and that get their place in the log later become invalid for good; repeat the command with --yes",
        ));
    }
    let pool = pool(url)?;
    if store::receipt::request_revocation(&pool, kid).await? {
        Ok(json!({"kid": kid, "revocation_requested": true}))
    } else {
        Err(refused(format!(
            "there is no receipt key {kid} that is not revoked"
        )))
    }
}
