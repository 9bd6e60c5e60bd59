//! Uploads and their parts.

pub mod upload;
