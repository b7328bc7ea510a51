//! Generates the types of `hyloc/v1/*.proto` and `foxglove/*.proto` with a compiler written in Rust: only cargo is needed.

use std::path::PathBuf;

use prost::Message;

/// The services, whose descriptors are served by reflection.
const SERVICES: [&str; 2] = ["hyloc/v1/fusion.proto", "hyloc/v1/echoes.proto"];

/// What recordings contain in addition.
const RECORDED: [&str; 4] =
    ["hyloc/v1/recording.proto", "foxglove/log.proto", "foxglove/pose.proto", "foxglove/scene.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=hyloc");
    println!("cargo:rerun-if-changed=foxglove");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let services = protox::compile(SERVICES, ["."])?;
    std::fs::write(out.join("descriptors.bin"), services.encode_to_vec())?;
    let mut all = protox::compile(SERVICES.iter().chain(&RECORDED), ["."])?;
    tonic_prost_build::configure().bytes(".").compile_fds(all.clone())?;
    // Recordings need no comments.
    all.file.iter_mut().for_each(|file| file.source_code_info = None);
    std::fs::write(out.join("schemas.bin"), all.encode_to_vec())?;
    Ok(())
}
