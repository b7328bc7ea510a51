//! What all formats do with the samples of a frame: check, convert, pass on.

use std::ops::ControlFlow;

use model::CMatrix;
use model::waveform::subcarriers_of_samples;
use num_complex::Complex64;

use super::{EchoDomain, EchoFault, EchoFileHeader, HeaderKeys, TakeFrame};
use crate::echo::EchoFrame;
use crate::echo::grpc::service::EchoLayout;

/// Frames on their way from a file to the node.
pub struct FrameTaker<'a> {
    layout: &'a EchoLayout,
    take: TakeFrame<'a>,
    run: u64,
    domain: EchoDomain,
    last: Option<u64>,
    /// Frames so far.
    pub taken: u64,
}

/// A frame as a file has it, M x L, column by column.
pub(super) struct FileFrame {
    pub number: u64,
    /// When it was taken; 0 if the file does not say.
    pub time_ns: u64,
    /// Where it begins, for errors.
    pub byte: u64,
    pub samples: Vec<Complex64>,
}

impl<'a> FrameTaker<'a> {
    pub(super) fn new(layout: &'a EchoLayout, take: TakeFrame<'a>) -> Self {
        Self { layout, take, run: 0, domain: EchoDomain::default(), last: None, taken: 0 }
    }

    /// Checks the header of the file; its frames follow.
    pub(super) fn begin(&mut self, header: &EchoFileHeader, keys: &HeaderKeys) -> Result<(), EchoFault> {
        header.check(self.layout, keys)?;
        (self.run, self.domain) = (header.run, header.domain);
        Ok(())
    }

    /// M and L of a frame.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.layout.sensors, self.layout.subcarriers)
    }

    pub(super) fn frame(&mut self, frame: FileFrame) -> Result<ControlFlow<()>, EchoFault> {
        let FileFrame { number, time_ns, byte, samples } = frame;
        let refuse = |reason: String| Err(EchoFault::Frame { frame: number, byte, reason });
        if let Some(last) = self.last.filter(|last| *last >= number) {
            return refuse(format!("comes after frame {last}: numbers must increase"));
        }
        if let Some(at) = samples.iter().position(|sample| !sample.is_finite()) {
            let (sensor, column) = (at % self.layout.sensors, at / self.layout.sensors);
            return refuse(format!("sample {column} of sensor {sensor} is not finite"));
        }
        self.last = Some(number);
        let (sensors, subcarriers) = self.shape();
        let samples = match self.domain {
            EchoDomain::Subcarriers => samples,
            EchoDomain::Time => {
                let in_time = CMatrix::from_vec(sensors, subcarriers, samples);
                subcarriers_of_samples(&in_time).as_slice().to_vec()
            }
        };
        self.taken += 1;
        Ok((self.take)(EchoFrame {
            run: self.run,
            frame: number,
            node: self.layout.node,
            intended_ns: time_ns,
            sensors: sensors as u32,
            subcarriers: subcarriers as u32,
            samples,
        }))
    }
}
