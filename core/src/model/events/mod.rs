//! The audit log, events, and the webhooks that receive them.

pub mod audit;
pub mod event;
pub mod webhook;
pub mod webhook_secret;
pub mod webhook_target;
