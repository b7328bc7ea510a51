//! Generates the gRPC types from `hyloc/v1/*.proto` with a compiler written in Rust: only cargo is needed.

use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=hyloc");
    let descriptors = protox::compile(["hyloc/v1/fusion.proto", "hyloc/v1/echoes.proto"], ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
