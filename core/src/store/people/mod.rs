//! Users, organizations, and the credentials with which they sign in.

pub mod auth;
pub mod credential;
pub mod device;
pub mod email_domain;
pub mod identity;
pub mod invite;
pub mod key;
pub mod mail_preferences;
pub mod org;
pub mod session;
pub mod terms;
