//! Angle estimators for comparison with the joint solver.
//!
//! All are given the blocks R_lk, and by [`Extent`] either the one block (l, l), as in the paper's
//! comparison, or all blocks sensed at IRS l: M sensors x sum of D_k snapshots, since every R_lk has the
//! column space a(theta_l). The angle of an IRS is its AOA, except for [`Baseline::JointBeamformer`], which
//! also reads the AOD role of the same angle from S_l. One source is assumed throughout, as there is one
//! target.
//!
//! Every spectrum is a quadratic form in the steering vector, hence a trigonometric polynomial in
//! sin(theta) over the sensor lags: it is searched over the sector `|sin theta| < 1 / (2 s)` in which an
//! angle is unambiguous, on a grid of eight points per beamwidth (what a zero-padded FFT would give), and
//! refined by Newton on exact derivatives. No baseline is limited by its grid.
//!
//! Cost: M^2 sum D_k for the covariance, M^3 for eigenvectors, (2 M)^3 for the roots.

mod joint;
mod subspace;

use std::f64::consts::TAU;

use model::CMatrix;
use num_complex::Complex64;

use crate::blocks::Blocks;
use crate::harmonic::HarmonicSeries;

/// Points of the search grid per beamwidth 1 / (M s).
const POINTS_PER_BEAM: f64 = 8.0;

/// Why a baseline gives no angle.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum BaselineError {
    #[error("IRS {l} does not exist: there are {count}")]
    Irs { l: usize, count: usize },
    #[error("no block to estimate the angle of IRS {l} from")]
    Missing { l: usize },
    #[error("the blocks of IRS {l} are zero")]
    NoEnergy { l: usize },
    #[error("an angle needs at least two sensors, found {sensors}")]
    Sensors { sensors: usize },
    #[error("{what} gives no angle for IRS {l}")]
    NotComputable { l: usize, what: &'static str },
}

/// The blocks that an estimator uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Block (l, l) only.
    OneBlock,
    /// All blocks of IRS l that are present.
    AllBlocks,
}

/// An angle estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// MUSIC: the steering vector nearest to the signal subspace.
    Music,
    /// Root-MUSIC: the root of the null spectrum's polynomial nearest to the unit circle.
    RootMusic,
    /// ESPRIT: the phase between the two overlapping subarrays; least squares and total least squares agree
    /// for one source.
    Esprit,
    /// Capon's minimum-variance spectrum. The sample covariance, of as many snapshots as sensors where one
    /// block is used, is loaded on its diagonal with the known noise variance.
    Capon,
    /// FFT beamformer with Newton: `sum_k ||a(theta)^H R_lk||^2`, the maximum likelihood AOA of one source.
    Beamformer,
    /// Beamformer in both roles of the angle: AOA at IRS l, AOD of its reflected signal, each without
    /// knowledge of the angle at the other end of the path.
    JointBeamformer,
}

impl Baseline {
    /// All baselines.
    pub const ALL: [Self; 6] =
        [Self::Music, Self::RootMusic, Self::Esprit, Self::Capon, Self::Beamformer, Self::JointBeamformer];

    /// Local angle of IRS `l`, radians.
    pub fn estimate(self, blocks: &Blocks, l: usize, extent: Extent) -> Result<f64, BaselineError> {
        let count = blocks.irs_count();
        if l >= count {
            return Err(BaselineError::Irs { l, count });
        }
        if blocks.sensors() < 2 {
            return Err(BaselineError::Sensors { sensors: blocks.sensors() });
        }
        let step_rad = TAU * blocks.spacing_wavelengths();
        let array = Array { l, step_rad, sensors: blocks.sensors() };
        if self == Self::JointBeamformer {
            return array.angle(joint::sine(blocks, &array, extent)?);
        }
        let snapshots = Snapshots::new(blocks, l, extent)?;
        let sine = match self {
            Self::Music => {
                let signal = subspace::principal_vector(&snapshots.covariance, l)?;
                array.maximum(&(&signal * signal.adjoint()))
            }
            Self::RootMusic => subspace::root_music(&snapshots.covariance, &array)?,
            Self::Esprit => subspace::esprit(&snapshots.covariance, &array)?,
            Self::Capon => subspace::capon(&snapshots, &array)?,
            Self::Beamformer | Self::JointBeamformer => array.maximum(&snapshots.covariance),
        };
        array.angle(sine)
    }
}

/// Covariance of the snapshots of one IRS, `sum R R^H / count`, in units in which the largest entry of a
/// block is one.
struct Snapshots {
    covariance: CMatrix,
    noise_variance: f64,
}

impl Snapshots {
    fn new(blocks: &Blocks, l: usize, extent: Extent) -> Result<Self, BaselineError> {
        let used: Vec<&CMatrix> = match extent {
            Extent::OneBlock => blocks.block(l, l).into_iter().collect(),
            Extent::AllBlocks => (0..blocks.irs_count()).filter_map(|k| blocks.block(l, k)).collect(),
        };
        if used.is_empty() {
            return Err(BaselineError::Missing { l });
        }
        let scale = largest_entry(&used);
        if scale == 0.0 {
            return Err(BaselineError::NoEnergy { l });
        }
        let count: usize = used.iter().map(|block| block.ncols()).sum();
        let mut covariance = CMatrix::zeros(blocks.sensors(), blocks.sensors());
        for block in used {
            let scaled = block.unscale(scale);
            covariance += &scaled * scaled.adjoint();
        }
        covariance.unscale_mut(count as f64);
        Ok(Self { covariance, noise_variance: blocks.noise_variance() / scale / scale })
    }
}

fn largest_entry(blocks: &[&CMatrix]) -> f64 {
    blocks
        .iter()
        .flat_map(|block| block.iter())
        .map(|v: &Complex64| v.re.abs().max(v.im.abs()))
        .fold(0.0, f64::max)
}

/// The sensors of one IRS.
struct Array {
    l: usize,
    /// 2 pi s: phase per sensor and unit of sin(theta).
    step_rad: f64,
    sensors: usize,
}

impl Array {
    /// Half width of the unambiguous sector, in sin(theta).
    fn half_sector(&self) -> f64 {
        (TAU / 2.0 / self.step_rad).min(1.0)
    }

    /// Distance of grid points for an array of `elements` elements.
    fn grid_spacing(&self, elements: usize) -> f64 {
        TAU / self.step_rad / (elements as f64 * POINTS_PER_BEAM)
    }

    /// sin(theta) at which `a^H G a` is highest.
    fn maximum(&self, matrix: &CMatrix) -> f64 {
        let series = HarmonicSeries::of_hermitian(matrix, self.step_rad);
        series.maximum(-self.half_sector(), self.half_sector(), self.grid_spacing(self.sensors)).at
    }

    /// The angle of a sine.
    fn angle(&self, sine: f64) -> Result<f64, BaselineError> {
        if (-1.0..=1.0).contains(&sine) {
            Ok(sine.asin())
        } else {
            Err(BaselineError::NotComputable { l: self.l, what: "a phase outside the visible region" })
        }
    }
}
