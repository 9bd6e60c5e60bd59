//! Compiles the protocol without `protoc`, and keeps its descriptors for reflection.

use std::error::Error;
use std::path::Path;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=inference.proto");
    let descriptors = protox::compile(["inference.proto"], ["."])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(
        Path::new(&out).join("descriptors.bin"),
        descriptors.encode_to_vec(),
    )?;
    // Elements stay slices of the message that they arrived in.
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
