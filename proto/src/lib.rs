//! The gRPC contract: messages, clients and servers made from `assay/v1/*.proto`, and, for the api, their conversions
//! to and from the resources.

#[cfg(feature = "convert")]
pub mod convert;

/// Package `assay.v1`.
#[expect(missing_docs, clippy::allow_attributes, reason = "generated; the documentation is in the .proto files")]
pub mod v1 {
    tonic::include_proto!("assay.v1");
}

/// The descriptors of the whole contract, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
