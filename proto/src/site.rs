//! A site on the wire: what estimators may know, and nothing that only the simulator knows.
//!
//! A scenario contains the seed, from which channels, noise, motion and path phases are drawn: whoever has it can compute
//! the truth. The site is sent instead, with the reflected signals and codes as numbers. Two processes compare a
//! SHA-256 of its canonical encoding: the message in single precision, so that the last bits of a sine, which
//! differ between platforms, do not make two sites of one.

use model::scenario::{Coverage, ScenarioError};
use model::system::Irs;
use model::waveform::Waveform;
use model::{
    CMatrix, CrossSectionPrior, ElementGrid, MOST_IRS, Orientation, Point, Pose, System, SystemParts,
    Wavefront,
};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::samples::{DitherKey, Precision, pack, unpack};
use crate::v1;

/// Largest encoded site. Table I takes 22 kB.
pub const MAX_SITE_BYTES: usize = 64 << 20;

/// Largest number of elements, sensors, streams or subcarriers, checked before any matrix is allocated.
const LARGEST_COUNT: u32 = 4096;

/// Why a site cannot be sent or accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SiteError {
    #[error("the site is not valid: {0}")]
    Invalid(#[from] ScenarioError),
    #[error("the site has no {0}")]
    Missing(&'static str),
    #[error("{key} = {value} of the site: must be between 1 and {most}")]
    Count { key: &'static str, value: usize, most: usize },
    #[error("{rows} rows of {count} {what} of the site: the rows of a panel must divide its elements")]
    Rows { what: &'static str, rows: u32, count: usize },
    #[error("the {what} of irs[{k}] has {found} bytes, expected {expected}")]
    Length { what: &'static str, k: usize, found: usize, expected: usize },
    #[error(
        "the site takes {found} bytes, more than {MAX_SITE_BYTES}: use fewer elements, streams or subcarriers"
    )]
    Size { found: usize },
    #[error("not a site: {0}")]
    Decode(String),
    #[error("the site that was sent does not match its hash")]
    Hash,
}

/// A checked site with its message and hash.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedSite {
    pub system: System,
    pub message: v1::Site,
    /// SHA-256 of the canonical encoding.
    pub sha256: [u8; 32],
}

impl SharedSite {
    /// Prepares a site for sending; an error if it is too large.
    pub fn new(system: System) -> Result<Self, SiteError> {
        let message = site_message(&system, Precision::F64);
        let found = message.encoded_len();
        if found > MAX_SITE_BYTES {
            return Err(SiteError::Size { found });
        }
        let sha256 = Sha256::digest(site_message(&system, Precision::F32).encode_to_vec()).into();
        Ok(Self { sha256, message, system })
    }

    pub fn from_wire(message: v1::Site) -> Result<Self, SiteError> {
        Self::new(site_from_wire(&message)?)
    }

    /// A site from the wire, which must match the hash that its sender states.
    pub fn with_hash(message: v1::Site, sha256: &[u8]) -> Result<Self, SiteError> {
        let site = Self::from_wire(message)?;
        if site.sha256 == sha256 { Ok(site) } else { Err(SiteError::Hash) }
    }

    /// A site from bytes, as recordings contain them.
    pub fn decode(bytes: &[u8]) -> Result<Self, SiteError> {
        let count = irs_fields(bytes)?;
        if count > MOST_IRS {
            return Err(SiteError::Count { key: "IRSs", value: count, most: MOST_IRS });
        }
        let message = v1::Site::decode(bytes).map_err(|error| SiteError::Decode(error.to_string()))?;
        Self::from_wire(message)
    }

    pub fn encode(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }

    pub fn short_hash(&self) -> String {
        short_hash(&self.sha256)
    }
}

/// Number of IRSs in an encoded site, counted without decoding them: an empty one takes two bytes here, but many in memory.
fn irs_fields(mut bytes: &[u8]) -> Result<usize, SiteError> {
    use prost::encoding::{DecodeContext, decode_key, skip_field};
    const IRS: u32 = 15;
    let invalid = |error: prost::DecodeError| SiteError::Decode(error.to_string());
    let mut count = 0;
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes).map_err(invalid)?;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).map_err(invalid)?;
        count += usize::from(tag == IRS);
    }
    Ok(count)
}

/// The first eight hexadecimal digits of a hash.
pub fn short_hash(sha256: &[u8]) -> String {
    sha256.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The site in this precision, which also applies to scalars.
fn site_message(system: &System, precision: Precision) -> v1::Site {
    let real = |value: f64| match precision {
        Precision::F64 => value,
        _ => f64::from(value as f32),
    };
    let point = |at: Point| Some(v1::Point { x_m: real(at.x), y_m: real(at.y), z_m: real(at.z) });
    let packed = |matrix: &CMatrix| pack(matrix, precision, DitherKey([0; 4])).bytes;
    let irs = system.irs.iter().map(|irs| v1::SiteIrs {
        position: point(irs.pose.position_m),
        broadside_rad: real(irs.pose.broadside_rad()),
        streams: irs.reflected_signal.ncols() as u32,
        reflected_signal: packed(&irs.reflected_signal),
        subcarriers: irs.waveform.subcarriers.iter().map(|&index| index as u32).collect(),
        codes: packed(&irs.waveform.codes),
        elevation_rad: real(irs.pose.orientation.elevation_rad),
        roll_rad: real(irs.pose.orientation.roll_rad),
    });
    // One row is the default, so that line arrays are encoded as before there were panels.
    let rows = |grid: ElementGrid| if grid.is_line() { 0 } else { grid.rows as u32 };
    v1::Site {
        wavelength_m: real(system.wavelength_m),
        spacing_wavelengths: real(system.spacing_wavelengths),
        spherical_waves: system.wavefront == Wavefront::Spherical,
        bandwidth_hz: real(system.bandwidth_hz),
        subcarriers: system.subcarriers as u32,
        noise_power_w: real(system.noise_power_w),
        transmit_power_w: real(system.transmit_power_w),
        coherent_frames: system.coherent_frames,
        prior_rcs_median_m2: real(system.prior.median_m2),
        prior_rcs_deviation_db: real(system.prior.deviation_db),
        clock_prior_s: real(system.clock_prior_s),
        sensors: system.sensors() as u32,
        elements: system.elements() as u32,
        sensor_rows: rows(system.sensor_grid),
        element_rows: rows(system.element_grid),
        base_station: point(system.base_station_m),
        coverage_min: point(system.coverage.min_m.into()),
        coverage_max: point(system.coverage.max_m.into()),
        irs: irs.collect(),
    }
}

fn site_from_wire(message: &v1::Site) -> Result<System, SiteError> {
    let elements = size("elements", message.elements)?;
    let subcarriers = size("subcarriers", message.subcarriers)?;
    let count = message.irs.len();
    if !(1..=MOST_IRS).contains(&count) {
        return Err(SiteError::Count { key: "IRSs", value: count, most: MOST_IRS });
    }
    let coverage = Coverage {
        min_m: point("coverage_min", message.coverage_min)?.into(),
        max_m: point("coverage_max", message.coverage_max)?.into(),
    };
    let irs = message.irs.iter().enumerate().map(|(k, irs)| irs_from_wire(k, irs, elements, subcarriers));
    Ok(System::checked(SystemParts {
        wavelength_m: message.wavelength_m,
        spacing_wavelengths: message.spacing_wavelengths,
        wavefront: if message.spherical_waves { Wavefront::Spherical } else { Wavefront::Plane },
        bandwidth_hz: message.bandwidth_hz,
        subcarriers,
        noise_power_w: message.noise_power_w,
        transmit_power_w: message.transmit_power_w,
        coherent_frames: message.coherent_frames,
        prior: CrossSectionPrior {
            median_m2: message.prior_rcs_median_m2,
            deviation_db: message.prior_rcs_deviation_db,
        },
        clock_prior_s: message.clock_prior_s,
        base_station_m: point("base_station", message.base_station)?,
        sensor_grid: grid("sensors", size("sensors", message.sensors)?, message.sensor_rows)?,
        element_grid: grid("elements", elements, message.element_rows)?,
        coverage,
        irs: irs.collect::<Result<_, _>>()?,
    })?)
}

fn irs_from_wire(k: usize, irs: &v1::SiteIrs, elements: usize, subcarriers: usize) -> Result<Irs, SiteError> {
    let streams = size("streams", irs.streams)?;
    let owned = irs.subcarriers.len();
    if !(1..=subcarriers).contains(&owned) {
        return Err(SiteError::Count { key: "subcarriers of an IRS", value: owned, most: subcarriers });
    }
    let matrix = |what: &'static str, bytes: &[u8], shape: (usize, usize)| {
        let expected = Precision::F64.bytes(shape.0 * shape.1);
        unpack(bytes, shape, Precision::F64, DitherKey([0; 4])).ok_or(SiteError::Length {
            what,
            k,
            found: bytes.len(),
            expected,
        })
    };
    Ok(Irs {
        pose: Pose {
            position_m: point("position of an IRS", irs.position)?,
            orientation: Orientation {
                azimuth_rad: irs.broadside_rad,
                elevation_rad: irs.elevation_rad,
                roll_rad: irs.roll_rad,
            },
        },
        reflected_signal: matrix("reflected signal", &irs.reflected_signal, (elements, streams))?,
        waveform: Waveform {
            subcarriers: irs.subcarriers.iter().map(|&index| index as usize).collect(),
            codes: matrix("codes", &irs.codes, (streams, owned))?,
        },
    })
}

fn size(key: &'static str, value: u32) -> Result<usize, SiteError> {
    let most = LARGEST_COUNT as usize;
    let value = value as usize;
    if (1..=most).contains(&value) { Ok(value) } else { Err(SiteError::Count { key, value, most }) }
}

/// The columns and rows of a panel of `count` elements; 0 rows count as one.
fn grid(what: &'static str, count: usize, rows: u32) -> Result<ElementGrid, SiteError> {
    let rows_of_panel = rows.max(1) as usize;
    if count.is_multiple_of(rows_of_panel) {
        return Ok(ElementGrid { columns: count / rows_of_panel, rows: rows_of_panel });
    }
    Err(SiteError::Rows { what, rows, count })
}

fn point(what: &'static str, message: Option<v1::Point>) -> Result<Point, SiteError> {
    message.map(|at| Point::new(at.x_m, at.y_m, at.z_m)).ok_or(SiteError::Missing(what))
}
