//! The adapters and inputs that `cargo contract` generates from the declarations in `proto/assay/v1`.

#[rustfmt::skip]
pub mod grpc;
#[rustfmt::skip]
pub mod inputs;
#[rustfmt::skip]
pub mod rest;
#[rustfmt::skip]
#[expect(dead_code, reason = "the structs only have schemas")]
mod schemas;
