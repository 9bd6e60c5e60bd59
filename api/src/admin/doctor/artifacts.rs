//! The artifact store check.

use std::time::Instant;

use assay_core::model::random;
use assay_core::runtime::artifacts::Artifacts;
use bytes::Bytes;

use super::checks::{Area, Check};

pub(super) async fn check_artifacts(location: &str, checks: &mut Vec<Check>) {
    let mut area = Area {
        name: "artifacts",
        checks,
    };
    let start = Instant::now();
    let (found, is_good) = match use_artifacts(location).await {
        Ok(()) => (
            format!(
                "written, read, listed and deleted in {:.0} ms",
                start.elapsed().as_secs_f64() * 1e3
            ),
            true,
        ),
        Err(message) => (message, false),
    };
    area.require(
        "store",
        is_good,
        found,
        "the folder of ASSAY_ARTIFACTS must exist and be writable; for a bucket, check AWS_… and the rights to get, put, list and \
         delete objects",
    );
}

/// Writes an object, reads it and a part of it, lists it, and deletes it.
async fn use_artifacts(location: &str) -> std::result::Result<(), String> {
    let failed = |what: &'static str| {
        move |error: assay_core::Error| format!("{what}: {}", error.cause_or_message())
    };
    let artifacts = Artifacts::at(location).map_err(failed("opening"))?;
    let suffix = random::base62(16).map_err(|error| error.to_string())?;
    let folder = format!("doctor/{suffix}");
    let key = format!("{folder}/object");
    let bytes = Bytes::from(vec![7; 1000]);
    artifacts
        .put(&key, bytes.clone())
        .await
        .map_err(failed("writing"))?;
    let read = artifacts.get(&key).await.map_err(failed("reading"))?;
    let part = artifacts
        .get_range(&key, 10..20)
        .await
        .map_err(failed("reading a part"))?;
    let listed = artifacts
        .list_under(&folder)
        .await
        .map_err(failed("listing"))?;
    artifacts.delete(&key).await.map_err(failed("deleting"))?;
    artifacts
        .delete_under(&folder)
        .await
        .map_err(failed("deleting"))?;
    let left = artifacts.get(&key).await.map_err(failed("reading"))?;
    let is_right = read == Some(bytes)
        && part.is_some_and(|part| part.len() == 10)
        && listed.len() == 1
        && left.is_none();
    is_right.then_some(()).ok_or_else(|| {
        "the store does not return what was written, or keeps what was deleted".into()
    })
}
