//! The build and name of the installation: `GET /health`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// The build and name of the installation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Health {
    /// The build of the API.
    pub git_sha: String,
    /// The build of the scoring and model library.
    pub hfm_sha: String,
    /// The name of the installation.
    pub env: String,
}

/// Returns the build and name of the installation. It does not check the dependencies; `/readyz`
/// does.
pub fn get(app: &App) -> Health {
    let settings = &app.settings;
    Health {
        git_sha: settings.common.git_sha.clone(),
        hfm_sha: settings.common.hfm_sha.clone(),
        env: settings.env.clone(),
    }
}
