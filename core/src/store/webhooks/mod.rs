//! Webhooks and their deliveries.

pub mod delivery;
pub mod webhook;
