//! The gRPC contract: the messages, clients and servers generated from `assay/v1/*.proto`, and, for
//! the API, the conversions between messages and resources.

pub mod codec;
#[cfg(feature = "convert")]
pub mod convert;
pub mod operations;
/// The code that `cargo contract` writes.
mod generated {
    #[cfg(feature = "convert")]
    #[rustfmt::skip]
    mod conversions;
    #[rustfmt::skip]
    pub mod operations;
}

pub use generated::operations::OPERATIONS;

/// The package `assay.v1`. The documentation of its items comes from the `.proto` files.
#[expect(clippy::allow_attributes, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("assay.v1");
}

/// The encoded `FileDescriptorSet` of the contract, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
