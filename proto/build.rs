//! Compiles the contract without `protoc`, and keeps its descriptors for reflection.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=assay");
    let mut files: Vec<PathBuf> = std::fs::read_dir("assay/v1")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "proto")
    });
    files.sort();
    let descriptors = protox::compile(&files, ["."])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(
        Path::new(&out).join("descriptors.bin"),
        descriptors.encode_to_vec(),
    )?;
    tonic_prost_build::configure()
        .codec_path("crate::codec::ChargedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
