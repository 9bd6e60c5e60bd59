//! Users, organizations, credentials, and the permissions that follow from them.

pub mod auth;
pub mod device;
pub mod email_domain;
pub mod handle;
pub mod identity;
pub mod invite;
pub mod key;
pub mod mail_preferences;
pub mod member;
pub mod org;
pub mod permissions;
mod refusals;
pub mod session;
pub mod terms;
