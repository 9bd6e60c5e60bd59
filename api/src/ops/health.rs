//! `GET /health`

use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// Answer of `GET /health`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Health {
    /// The build of the api.
    pub git_sha: String,
    /// The build of the scoring and model library.
    pub hfm_sha: String,
    /// The name of the installation.
    pub env: String,
}

/// That the api answers, and as which build. It asks nobody else: whether the api is fit to serve is `/readyz`.
pub fn get(app: &App) -> Health {
    let settings = &app.settings;
    Health {
        git_sha: settings.common.git_sha.clone(),
        hfm_sha: settings.common.hfm_sha.clone(),
        env: settings.env.clone(),
    }
}
