//! Writes a SigMF recording: `node-INDEX.sigmf-data`, then its metadata.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha512};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::sigmf::NAMESPACE;
use super::{EchoFilePlan, EchoWriter, create_new, hex};
use crate::echo::EchoFrame;

/// The version of SigMF that is written.
const SIGMF_VERSION: &str = "1.2.0";

/// The version of our keys.
const EXTENSION_VERSION: &str = "1.0.0";

pub(super) struct SigmfWriter {
    plan: EchoFilePlan,
    metadata: (PathBuf, File),
    data: (PathBuf, BufWriter<File>),
    hasher: Sha512,
    left: u64,
}

impl SigmfWriter {
    pub(super) fn create(stem: &Path, plan: &EchoFilePlan) -> io::Result<Self> {
        let (metadata, data) = (stem.with_extension("sigmf-meta"), stem.with_extension("sigmf-data"));
        let meta_file = create_new(&metadata)?;
        let data_file = create_new(&data).inspect_err(|_| drop(std::fs::remove_file(&metadata)))?;
        Ok(Self {
            plan: plan.clone(),
            metadata: (metadata, meta_file),
            data: (data, BufWriter::with_capacity(1 << 16, data_file)),
            hasher: Sha512::new(),
            left: plan.frames,
        })
    }

    fn metadata(&self, sha512: &str) -> serde_json::Value {
        let EchoFilePlan { layout, run, frame_rate_hz, start_ns, .. } = &self.plan;
        let start = OffsetDateTime::from_unix_timestamp_nanos(i128::from(*start_ns));
        let start = start.ok().and_then(|time| time.format(&Rfc3339).ok());
        json!({
            "global": {
                "core:datatype": "cf64_le",
                "core:version": SIGMF_VERSION,
                "core:sample_rate": layout.bandwidth_hz,
                "core:num_channels": layout.sensors,
                "core:sha512": sha512,
                "core:recorder": concat!("hyloc ", env!("CARGO_PKG_VERSION")),
                "core:description": "Echo frames of one IRS: a frame is core:num_channels sensors x hyloc:subcarriers samples",
                "core:extensions": [{ "name": NAMESPACE, "version": EXTENSION_VERSION, "optional": false }],
                "hyloc:node": layout.node,
                "hyloc:run": run,
                "hyloc:site_sha256": hex(&layout.site_sha256),
                "hyloc:sensors": layout.sensors,
                "hyloc:subcarriers": layout.subcarriers,
                "hyloc:domain": "subcarriers",
                "hyloc:first_frame": 0,
                "hyloc:frame_rate_hz": frame_rate_hz,
            },
            "captures": [{
                "core:sample_start": 0,
                "core:datetime": start,
                "hyloc:frame": 0,
                "hyloc:time_ns": start_ns,
            }],
            "annotations": [],
        })
    }
}

impl EchoWriter for SigmfWriter {
    fn paths(&self) -> Vec<PathBuf> {
        vec![self.metadata.0.clone(), self.data.0.clone()]
    }

    fn write(&mut self, frame: &EchoFrame) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        let parts = frame.samples.iter().flat_map(|sample| [sample.re, sample.im]);
        let bytes: Vec<u8> = parts.flat_map(f64::to_le_bytes).collect();
        self.hasher.update(&bytes);
        self.data.1.write_all(&bytes)
    }

    fn finish(mut self: Box<Self>) -> io::Result<Vec<PathBuf>> {
        if self.left > 0 {
            return Err(io::Error::other(format!("{} frames were not written", self.left)));
        }
        self.data.1.flush()?;
        self.data.1.get_ref().sync_all()?;
        let sha512 = hex(&std::mem::take(&mut self.hasher).finalize());
        let text = serde_json::to_string_pretty(&self.metadata(&sha512))?;
        self.metadata.1.write_all(text.as_bytes())?;
        self.metadata.1.write_all(b"\n")?;
        self.metadata.1.sync_all()?;
        Ok(self.paths())
    }
}
