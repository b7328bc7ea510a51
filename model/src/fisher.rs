//! Fisher information of the paths and the bounds that follow (Section III).
//!
//! The mean of path (l, k) is `alpha a(theta_l) (a(theta_k)^H S_k X_k .* exp(-j 2 pi f tau))`, parameters (AOA, AOD,
//! delay), and its information `(2 / sigma^2) Re(D^H P D)`. With the gain unknown (`exact`), P projects out the
//! mean's own direction; with the gain known (`paper`), P = I. The printed bound leaves out
//! 2 / sigma^2, writes N for M in F(theta_AOA), mixes the sums over l and k, and treats alpha as known; only the
//! last is kept, as the variant [`Gain::Known`], since it is a modelling choice and not an error.
//!
//! Angles describe plane waves at line arrays in the plane of the targets. Elsewhere (spherical waves, panels, heights) the
//! two angles become the coordinates of the target as the sensors see them, and those as the elements see them: what an
//! array's response says about a point. All schemes then are what they are in the plane: *hybrid* joins the three groups
//! of parameters, *angle only* leaves the delay of every path free, *delay only* leaves the two responses free.
//!
//! The mean is a Kronecker product of a sensor factor `a` and a stream factor `r`, and so are its derivatives:
//! inner products of M n_k-vectors are products of inner products of short ones. The projected derivatives
//! are formed as vectors before their norms are taken, so that AOD information twelve orders of magnitude below its
//! unprojected size is still accurate.
//! Cost per path: O(N D + D n_k).

mod clocks;
mod joint;

use std::f64::consts::TAU;

use nalgebra::{DMatrix, DVector};
use num_complex::Complex64;

use crate::algebra::{CMatrix, CVector};
use crate::geometry::{Point, cascade_delay_gradient_s_m};
use crate::system::System;

pub use joint::joint_crb_m2;

/// Assumption about the complex gain of every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gain {
    /// Unknown in amplitude and phase: the exact bound, with which estimators are compared.
    Unknown,
    /// Known: the paper's bound.
    Known,
}

/// Which measurements are used (Section VI-A). The paper's fifth scheme, a single IRS, is a separate system:
/// [`crate::scenario::Scenario::single_irs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Angles and delays of all K^2 paths.
    Hybrid,
    /// Angles of all paths; delays are nuisance parameters.
    AngleOnly,
    /// Delays of all paths; angles are nuisance parameters.
    DelayOnly,
    /// Angles and delays of the K paths (k, k).
    NoCollaboration,
}

/// The paths contain too little information to bound the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the position is not observable from these paths: the Fisher information is singular")]
pub struct SingularInformation;

/// Fisher information of every path of a system for one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Information {
    /// Information on the parameters of a path, indexed `[l][k]`: arrival, departure, and last the delay; none if the path
    /// is missing.
    paths: Vec<Vec<Option<DMatrix<f64>>>>,
    /// Jacobians of these parameters with respect to the free coordinates of the position, indexed `[l][k]`.
    geometry: Vec<Vec<DMatrix<f64>>>,
    /// Whether arrival and departure are angles.
    angular: bool,
}

/// A derivative counts as zero below this share of its unprojected norm.
const UNOBSERVABLE: f64 = 1e-13;
/// A parameter adds nothing to those before it if less than this share of its information is left beside them.
const DEPENDENT: f64 = 1e-9;

impl Information {
    /// Information on a target of radar cross-section `rcs_m2` at `target_m`, which the system does not contain.
    pub fn new(system: &System, target_m: Point, rcs_m2: f64, gain: Gain) -> Self {
        let count = system.irs_count();
        let angular = system.beyond_the_plane().is_none();
        let departures: Vec<StreamFactor> =
            (0..count).map(|k| StreamFactor::new(system, k, target_m, gain, angular)).collect();
        let arrivals: Vec<SensorFactor> =
            (0..count).map(|l| SensorFactor::new(system, l, target_m, gain, angular)).collect();
        let path = |l: usize, k: usize| {
            let scale = 2.0 * system.echo_gain(l, k, target_m, rcs_m2)?.powi(2) / system.noise_power_w;
            Some(arrivals[l].with(&departures[k]) * scale)
        };
        let paths = (0..count).map(|l| (0..count).map(|k| path(l, k)).collect()).collect();
        let jacobian = |l: usize, k: usize| path_jacobian(system, l, k, target_m, angular);
        let geometry = (0..count).map(|l| (0..count).map(|k| jacobian(l, k)).collect()).collect();
        Self { paths, geometry, angular }
    }

    /// The same information if node `l` reports the average of `frames` frames with constant path phases: the noise
    /// power is `frames` times lower, and the information of its paths `frames` times higher. No change without such a node.
    pub fn averaged(mut self, l: usize, frames: f64) -> Self {
        self.paths.get_mut(l).into_iter().flatten().flatten().for_each(|path| *path *= frames);
        self
    }

    /// The same information without path (l, k), if there is such a path.
    pub fn without(mut self, l: usize, k: usize) -> Self {
        if let Some(path) = self.paths.get_mut(l).and_then(|row| row.get_mut(k)) {
            *path = None;
        }
        self
    }

    /// Information on (AOA, AOD, delay) of every path, indexed `[l][k]`; none if the path is missing. Where angles do not
    /// describe the system, AOA and AOD are the coordinates of the target as sensors and elements see them.
    pub fn paths(&self) -> &[Vec<Option<DMatrix<f64>>>] {
        &self.paths
    }

    /// Number of free coordinates.
    fn axes(&self) -> usize {
        self.geometry.first().and_then(|row| row.first()).map_or(0, DMatrix::ncols)
    }

    fn present(&self) -> impl Iterator<Item = (usize, usize, &DMatrix<f64>)> {
        self.paths.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, f)| f.as_ref().map(|f| (l, k, f)))
        })
    }

    /// Joint information on the K angles, each both an AOA and an AOD; delays are nuisance parameters.
    fn angle_information(&self) -> Result<DMatrix<f64>, SingularInformation> {
        if !self.angular {
            return Err(SingularInformation);
        }
        let count = self.paths.len();
        let mut joint = DMatrix::zeros(count, count);
        for (l, k, f) in self.present() {
            let angles = without_delay(f);
            joint[(l, l)] += angles[(0, 0)];
            joint[(l, k)] += angles[(0, 1)];
            joint[(k, l)] += angles[(1, 0)];
            joint[(k, k)] += angles[(1, 1)];
        }
        Ok(joint)
    }

    /// Bound on each of the K angles; an error where angles do not describe the system.
    pub fn angle_crb_rad2(&self) -> Result<Vec<f64>, SingularInformation> {
        let inverse = self.angle_information()?.cholesky().ok_or(SingularInformation)?.inverse();
        Ok(inverse.diagonal().iter().copied().collect())
    }

    /// Bound on the delay of every path, jointly with the K shared angles, indexed `[l][k]`; none if the path is missing.
    /// An error where angles do not describe the system.
    ///
    /// By blocks, with A the angle information: `1/f_tt + g^T A^-1 g / f_tt^2`, g the coupling to the angles.
    pub fn delay_crb_s2(&self) -> Result<Vec<Vec<Option<f64>>>, SingularInformation> {
        let count = self.paths.len();
        let angles = self.angle_information()?.cholesky().ok_or(SingularInformation)?;
        let mut bounds = vec![vec![None; count]; count];
        for (l, k, f) in self.present() {
            let mut coupling = DVector::zeros(count);
            coupling[l] += f[(0, 2)];
            coupling[k] += f[(1, 2)];
            let delay = f[(2, 2)];
            bounds[l][k] = Some(1.0 / delay + coupling.dot(&angles.solve(&coupling)) / delay.powi(2));
        }
        Ok(bounds)
    }

    /// Bound on the free coordinates of the position from the measurements of a scheme.
    pub fn position_crb_m2(&self, scheme: Scheme) -> Result<DMatrix<f64>, SingularInformation> {
        inverse(self.position_information(scheme))
    }

    /// Information on the free coordinates of the position from the measurements of a scheme, per square metre.
    pub fn position_information(&self, scheme: Scheme) -> DMatrix<f64> {
        self.present().fold(DMatrix::zeros(self.axes(), self.axes()), |sum, (l, k, f)| {
            let jacobian = &self.geometry[l][k];
            let last = f.nrows() - 1;
            match scheme {
                Scheme::NoCollaboration if l != k => sum,
                Scheme::NoCollaboration | Scheme::Hybrid => sum + jacobian.tr_mul(&(f * jacobian)),
                Scheme::AngleOnly => {
                    let angles = jacobian.rows(0, last);
                    sum + angles.tr_mul(&(without_delay(f) * angles))
                }
                Scheme::DelayOnly => {
                    let delay = jacobian.rows(last, 1);
                    sum + delay.tr_mul(&(delay * delay_information(f)))
                }
            }
        })
    }
}

/// The bound that an information implies.
pub(crate) fn inverse(information: DMatrix<f64>) -> Result<DMatrix<f64>, SingularInformation> {
    let inverse = information.cholesky().ok_or(SingularInformation)?.inverse();
    // Symmetric up to rounding.
    let bound = (&inverse + inverse.transpose()) / 2.0;
    if bound.iter().all(|v| v.is_finite()) { Ok(bound) } else { Err(SingularInformation) }
}

/// Rows: gradients of arrival, departure and delay of path (l, k) with respect to the free coordinates.
fn path_jacobian(system: &System, l: usize, k: usize, target_m: Point, angular: bool) -> DMatrix<f64> {
    let (sensor, reflector) = (&system.irs[l].pose, &system.irs[k].pose);
    let axes = system.axes();
    let slopes_s = cascade_delay_gradient_s_m(sensor, reflector, target_m);
    if angular {
        let rows =
            [sensor.bearing_gradient_rad_m(target_m), reflector.bearing_gradient_rad_m(target_m), slopes_s];
        return DMatrix::from_fn(3, axes.len(), |row, i| rows[row][axes[i]]);
    }
    let count = axes.len();
    DMatrix::from_fn(2 * count + 1, count, |row, i| {
        if row == 2 * count { slopes_s[axes[i]] } else { f64::from(u8::from(row % count == i)) }
    })
}

/// Information on arrival and departure after the delay is profiled out.
fn without_delay(f: &DMatrix<f64>) -> DMatrix<f64> {
    let last = f.nrows() - 1;
    let angles = f.view((0, 0), (last, last)).into_owned();
    let coupling = f.view((0, last), (last, 1));
    if f[(last, last)] > 0.0 { angles - coupling * coupling.transpose() / f[(last, last)] } else { angles }
}

/// Information on the delay after arrival and departure are profiled out, departure first.
fn delay_information(f: &DMatrix<f64>) -> f64 {
    let mut left = f.clone();
    let last = f.nrows() - 1;
    for i in (0..last).rev() {
        let pivot = left[(i, i)];
        if pivot <= DEPENDENT * f[(i, i)] {
            continue;
        }
        let column = left.column(i).into_owned();
        left -= &column * column.transpose() / pivot;
    }
    left[(last, last)]
}

/// Sensor side of a path: `a`, and its derivatives (without their component along `a` if the gain is unknown) with respect to
/// the AOA or the free coordinates.
struct SensorFactor {
    energy: f64,
    along: Vec<Complex64>,
    products: CMatrix,
}

impl SensorFactor {
    fn new(system: &System, l: usize, target_m: Point, gain: Gain, angular: bool) -> Self {
        let pose = &system.irs[l].pose;
        let (a, derivatives) = if angular {
            let (array, theta) = (system.sensor_array(), pose.local_angle_rad(target_m));
            (array.steering(theta), vec![array.steering_derivative(theta)])
        } else {
            let aperture = system.sensor_aperture(l).unwrap_or_default();
            free_derivatives(system, aperture.expansion(&system.carrier(), &(target_m - pose.position_m)))
        };
        let derivatives: Vec<CVector> = derivatives.into_iter().map(|d| projected(d, &a, gain)).collect();
        Self {
            energy: a.norm_squared(),
            along: derivatives.iter().map(|d| a.dotc(d)).collect(),
            products: products(&derivatives),
        }
    }

    /// Information of the product of both factors, without the factor `2 |alpha|^2 / sigma^2`.
    fn with(&self, streams: &StreamFactor) -> DMatrix<f64> {
        let (arrivals, all) = (self.along.len(), self.along.len() + streams.along.len());
        DMatrix::from_fn(all, all, |i, j| match (i < arrivals, j < arrivals) {
            (true, true) => self.products[(i, j)].re * streams.energy,
            (true, false) => (self.along[i].conj() * streams.along[j - arrivals]).re,
            (false, true) => (self.along[j].conj() * streams.along[i - arrivals]).re,
            (false, false) => self.energy * streams.products[(i - arrivals, j - arrivals)].re,
        })
    }
}

/// Stream side of a path: `r = a^H S X .* exp(-j 2 pi f tau)` and its derivatives with respect to the AOD or the free
/// coordinates, and to the delay. The phasor is common to all and has modulus one, so that it cancels in every inner product.
struct StreamFactor {
    energy: f64,
    along: Vec<Complex64>,
    products: CMatrix,
}

impl StreamFactor {
    fn new(system: &System, k: usize, target_m: Point, gain: Gain, angular: bool) -> Self {
        let irs = &system.irs[k];
        // (a^H S X)^H = X^H S^H a: work with the adjoint, a column of n_k entries.
        let spectrum = |steering: &CVector| irs.waveform.codes.ad_mul(&irs.reflected_signal.ad_mul(steering));
        let (a, derivatives) = if angular {
            let (array, theta) = (system.element_array(), irs.pose.local_angle_rad(target_m));
            (array.steering(theta), vec![array.steering_derivative(theta)])
        } else {
            let aperture = system.element_aperture(k).unwrap_or_default();
            let relative_m = target_m - irs.pose.position_m;
            let (g, derivatives) =
                free_derivatives(system, aperture.expansion(&system.carrier(), &relative_m));
            (g.conjugate(), derivatives.iter().map(CVector::conjugate).collect())
        };
        let r = spectrum(&a);
        let by_delay = CVector::from_fn(r.len(), |i, _| {
            let frequency = system.frequency_hz(irs.waveform.subcarriers[i]);
            // Derivative -j 2 pi f of the row, conjugated with it.
            r[i] * Complex64::new(0.0, TAU * frequency)
        });
        let derivatives = derivatives.iter().map(spectrum).chain([by_delay]);
        let derivatives: Vec<CVector> = derivatives.map(|d| projected(d, &r, gain)).collect();
        Self {
            energy: r.norm_squared(),
            along: derivatives.iter().map(|d| r.dotc(d).conj()).collect(),
            products: products(&derivatives),
        }
    }
}

/// A response with its derivatives with respect to the free coordinates.
fn free_derivatives(system: &System, (response, all): (CVector, [CVector; 3])) -> (CVector, Vec<CVector>) {
    let [by_x, by_y, by_z] = all;
    let free = [by_x, by_y, by_z].into_iter().enumerate().filter(|(axis, _)| system.axes().contains(axis));
    (response, free.map(|(_, derivative)| derivative).collect())
}

/// Inner products of vectors.
fn products(vectors: &[CVector]) -> CMatrix {
    CMatrix::from_fn(vectors.len(), vectors.len(), |i, j| vectors[i].dotc(&vectors[j]))
}

/// `derivative` without its component along `mean` if the gain is unknown.
fn projected(derivative: CVector, mean: &CVector, gain: Gain) -> CVector {
    let energy = mean.norm_squared();
    if gain == Gain::Known || energy == 0.0 {
        return derivative;
    }
    let before = derivative.norm();
    // The second pass removes the rounding errors of the first.
    let mut rest = derivative;
    for _ in 0..2 {
        let along = mean.dotc(&rest) / energy;
        rest.axpy(-along, mean, Complex64::ONE);
    }
    if rest.norm() <= UNOBSERVABLE * before { CVector::zeros(rest.len()) } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panel::Wavefront;
    use crate::scenario::Scenario;

    fn bound_m2(scenario: &Scenario, target_m: Point, gain: Gain) -> DMatrix<f64> {
        let system = System::new(scenario).unwrap();
        Information::new(&system, target_m, scenario.rcs_m2(), gain).position_crb_m2(Scheme::Hybrid).unwrap()
    }

    /// With tiny arrays spherical waves are plane: the information from exact derivatives by position is that from angles and
    /// delays, whether phases refer to the end of an array or to its centre.
    #[test]
    fn both_wavefronts_agree_for_tiny_arrays() {
        let mut plane = Scenario::default();
        (plane.signal.wavelength_m, plane.signal.noise_dbm) = (3e-3, -170.0);
        let mut spherical = plane.clone();
        spherical.signal.wavefront = Wavefront::Spherical;
        let [a, b] =
            [&plane, &spherical].map(|scenario| bound_m2(scenario, Point::new(3.0, 6.0, 0.0), Gain::Unknown));
        assert!((&a - &b).norm() < 0.01 * a.norm(), "{a} {b}");
    }

    /// Table I with spherical waves, median of 41 scenes: 9 cm, 2.0 cm and 6.5 mm at 10, 20 and 40 elements, within a third.
    #[test]
    fn bounds_of_spherical_waves() {
        for (count, rms_m) in [(10, 0.09), (20, 0.020), (40, 0.0065)] {
            let mut all: Vec<f64> = (0..41)
                .map(|seed| {
                    let mut scenario = Scenario::default().with_seed(seed);
                    (scenario.surface.elements, scenario.surface.sensors) = (count.into(), count.into());
                    scenario.signal.wavefront = Wavefront::Spherical;
                    bound_m2(&scenario, Point::new(5.0, 5.0, 0.0), Gain::Unknown).trace().sqrt()
                })
                .collect();
            all.sort_by(f64::total_cmp);
            assert!((0.66..1.5).contains(&(all[20] / rms_m)), "{count}: {}", all[20]);
        }
    }
}
