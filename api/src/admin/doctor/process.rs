//! The processes that can be examined, and their dependencies.

use assay_core::store::PoolProfile;

/// A process of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Process {
    /// `assay-api serve`
    Api,
    /// `assay-worker run`
    Worker,
    /// `assay-api deliver`
    Deliverer,
    /// `assay-api log`
    Log,
}

impl Process {
    /// Returns the role that the login role of the process must be a member of.
    pub(super) const fn role(self) -> &'static str {
        match self {
            Self::Api => "assay_api",
            Self::Worker => "assay_worker",
            Self::Deliverer => "assay_delivery",
            Self::Log => "assay_log",
        }
    }

    pub(super) const fn profile(self) -> PoolProfile {
        match self {
            Self::Worker => PoolProfile::WORK,
            Self::Api | Self::Deliverer | Self::Log => PoolProfile::REQUESTS,
        }
    }

    pub(super) const fn uses_redis(self) -> bool {
        matches!(self, Self::Api | Self::Worker)
    }

    pub(super) const fn uses_artifacts(self) -> bool {
        !matches!(self, Self::Deliverer)
    }
}
