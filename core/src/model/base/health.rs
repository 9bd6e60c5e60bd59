//! The build and name of an installation.

use serde::Serialize;
use utoipa::ToSchema;

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
