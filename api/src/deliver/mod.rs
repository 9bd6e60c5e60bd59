//! Event delivery to webhooks, in `assay-api deliver` or in the API process.
//!
//! [`attempts`] claims due deliveries and records their results; [`sender`] makes one attempt. The
//! rows are stored by `background/webhooks.rs`, in the API process.

pub mod attempts;
pub mod process;
pub mod sender;
