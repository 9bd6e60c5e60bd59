//! The reasons why a process does not start, or ends before the shutdown signal.

use std::io;
use std::net::SocketAddr;

use crate::model::error::Error;
use crate::runtime::settings::BadSettings;

/// An error that ends a process. Its text is for the operator, and says how to resolve it.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Settings are missing or invalid.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// A setting's value is rejected by what it configures.
    #[error("{setting} must be {expected}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// The accepted values.
        expected: &'static str,
    },
    /// A port is in use, or must not be opened.
    #[error(
        "cannot listen on {address}: {cause}. Set {setting} to another address, or stop the process that listens there."
    )]
    Listen {
        /// The setting with the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// This build's migrations have not been applied.
    #[error("the database's schema is older than this build: run assay-api migrate")]
    SchemaOutdated,
    /// The API's database role has too many rights.
    #[error(
        "the role in ASSAY_DATABASE_URL can read the answers of suites, and the API must not: give it a login role that is a member \
         of assay_api and of nothing else, such as: create role assay_api_1 login password '…' in role assay_api"
    )]
    RoleReadsAnswers,
    /// The deliverer's database role has too many rights.
    #[error(
        "the role in ASSAY_DATABASE_URL can read more than deliveries, and the deliverer must not: give it a login role that is a member \
         of assay_delivery and of nothing else, such as: create role assay_delivery_1 login password '…' in role assay_delivery"
    )]
    RoleReadsMoreThanDeliveries,
    /// The receipt log's database role has too many rights.
    #[error(
        "the role in {setting} can do more than write the receipt log: give the process a login role that is a member of \
         assay_log and of nothing else, such as: create role assay_log_1 login password '…' in role assay_log"
    )]
    RoleDoesMoreThanLog {
        /// The setting with the database's address.
        setting: &'static str,
    },
    /// The checker's database role has too many rights.
    #[error(
        "the role in {setting} can do more than check drafts: give the process a login role that is a member of assay_checker and \
         of nothing else, such as: create role assay_checker_1 login password '…' in role assay_checker"
    )]
    RoleDoesMoreThanCheck {
        /// The setting with the database's address.
        setting: &'static str,
    },
    /// The API cannot write to the artifact store.
    #[error("cannot write to {location}, which ASSAY_ARTIFACTS names: {cause}")]
    ArtifactsNotWritable {
        /// The folder or bucket.
        location: String,
        /// The store's error.
        cause: String,
    },
    /// The location holds no artifact store: it is wrong, or a volume is not mounted.
    #[error(
        "{location} is not the artifact store of an API: set ASSAY_ARTIFACTS to the same value as in the API"
    )]
    NotAnArtifactStore {
        /// The folder or bucket.
        location: String,
    },
    /// A background task ended before the shutdown signal.
    #[error("the background task {name} ended")]
    TaskEnded {
        /// The task's name.
        name: &'static str,
    },
    /// A background task failed or panicked.
    #[error("the background task {name} failed: {cause}")]
    TaskFailed {
        /// The task's name.
        name: &'static str,
        /// The task's error.
        cause: String,
    },
    /// A dependency failed.
    #[error("{}", .0.cause_or_message())]
    Failed(Box<Error>),
    /// The runtime could not be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] io::Error),
}

impl From<Error> for ProcessError {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}
