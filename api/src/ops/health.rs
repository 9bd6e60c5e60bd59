//! The build and name of the installation: `GET /health`.

use assay_core::Result;
use assay_core::model::health::Health;

use crate::app::App;

/// Returns the build and name of the installation. It does not check the dependencies; `/readyz`
/// does.
pub async fn get(app: &App) -> Result<Health> {
    let settings = &app.settings;
    Ok(Health {
        git_sha: settings.common.git_sha.clone(),
        hfm_sha: settings.common.hfm_sha.clone(),
        env: settings.env.clone(),
    })
}
