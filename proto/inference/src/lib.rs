//! The Open Inference Protocol between Assay and its engines: the messages, client and server
//! generated from `inference.proto`, and reading and building the tensors of these messages.

pub mod ids;
pub mod parameters;
pub mod tensors;

/// The package `inference`. The documentation of its items comes from the `.proto` file.
#[expect(clippy::allow_attributes, reason = "generated")]
pub mod v2 {
    tonic::include_proto!("inference");
}

/// The encoded `FileDescriptorSet` of the protocol, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
