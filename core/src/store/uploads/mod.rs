//! Uploads, the bytes that an organization stores, and their removal.

pub mod cleanup;
pub mod old_rows;
pub mod reconcile;
pub mod storage;
pub mod upload;
