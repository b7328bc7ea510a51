//! Fisher information of the paths and the bounds that follow (Section III).
//!
//! The mean of path (l, k) is `alpha a(theta_l) (a(theta_k)^H S_k X_k .* exp(-j 2 pi f tau))`, parameters (AOA, AOD,
//! delay), and its information `(2 / sigma^2) Re(D^H P D)`. With the gain unknown (`exact`), P projects out the
//! mean's own direction; with the gain known (`paper`), P = I. The printed bound leaves out
//! 2 / sigma^2, writes N for M in F(theta_AOA), mixes the sums over l and k, and treats alpha as known; only the
//! last is kept, as the variant [`Gain::Known`], since it is a modelling choice and not an error.
//!
//! The mean is a Kronecker product of a sensor factor `a` and a stream factor `r`, and so are its derivatives:
//! inner products of M n_k-vectors are products of inner products of short ones. The projected derivatives
//! are formed as vectors before their norms are taken, so that AOD information twelve orders of magnitude below its
//! unprojected size is still accurate.
//! Cost per path: O(N D + D n_k).

use std::f64::consts::TAU;

use nalgebra::{DMatrix, DVector, Matrix2, Matrix3, Matrix3x2, SMatrix};
use num_complex::Complex64;

use crate::algebra::CVector;
use crate::geometry::{Point, cascade_delay_gradient_s_m};
use crate::panel::{Wavefront, at_height_zero};
use crate::system::System;

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
    /// Information on (AOA, AOD, delay), indexed `[l][k]`; none if the path is missing.
    paths: Vec<Vec<Option<Matrix3<f64>>>>,
    /// Jacobians of (AOA, AOD, delay) with respect to the position, indexed `[l][k]`.
    geometry: Vec<Vec<Matrix3x2<f64>>>,
    /// Information on the position itself, indexed `[l][k]`, where waves are spherical: these have no angle.
    curved: Option<Vec<Vec<Matrix2<f64>>>>,
}

/// A derivative counts as zero below this share of its unprojected norm.
const UNOBSERVABLE: f64 = 1e-13;

impl Information {
    /// Information on a target of radar cross-section `rcs_m2` at `target_m`, which the system does not contain.
    pub fn new(system: &System, target_m: Point, rcs_m2: f64, gain: Gain) -> Self {
        let count = system.irs_count();
        let departures: Vec<StreamFactor> =
            (0..count).map(|k| StreamFactor::new(system, k, target_m, gain)).collect();
        let arrivals: Vec<SensorFactor> =
            (0..count).map(|l| SensorFactor::new(system, l, target_m, gain)).collect();
        let path = |l: usize, k: usize| {
            let scale = 2.0 * system.echo_gain(l, k, target_m, rcs_m2)?.powi(2) / system.noise_power_w;
            Some(arrivals[l].with(&departures[k]) * scale)
        };
        let paths = (0..count).map(|l| (0..count).map(|k| path(l, k)).collect()).collect();
        let geometry =
            (0..count).map(|l| (0..count).map(|k| path_jacobian(system, l, k, target_m)).collect()).collect();
        let curved = (system.wavefront == Wavefront::Spherical).then(|| {
            let scale = |l, k| {
                let gain = system.echo_gain(l, k, target_m, rcs_m2).unwrap_or(0.0);
                2.0 * gain.powi(2) / system.noise_power_w
            };
            let mut all = position_factors(system, target_m, gain);
            for (l, row) in all.iter_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(k, path)| *path *= scale(l, k));
            }
            all
        });
        Self { paths, geometry, curved }
    }

    /// The same information if node `l` reports the average of `frames` frames with constant path phases: the noise
    /// power is `frames` times lower, and the information of its paths `frames` times higher. No change without such a node.
    pub fn averaged(mut self, l: usize, frames: f64) -> Self {
        self.paths.get_mut(l).into_iter().flatten().flatten().for_each(|path| *path *= frames);
        let curved = self.curved.as_mut().and_then(|curved| curved.get_mut(l));
        curved.into_iter().flatten().for_each(|path| *path *= frames);
        self
    }

    /// The same information without path (l, k), if there is such a path.
    pub fn without(mut self, l: usize, k: usize) -> Self {
        if let Some(path) = self.paths.get_mut(l).and_then(|row| row.get_mut(k)) {
            *path = None;
        }
        self
    }

    /// Information on (AOA, AOD, delay) of every path, indexed `[l][k]`; none if the path is missing.
    pub fn paths(&self) -> &[Vec<Option<Matrix3<f64>>>] {
        &self.paths
    }

    fn present(&self) -> impl Iterator<Item = (usize, usize, &Matrix3<f64>)> {
        self.paths.iter().enumerate().flat_map(|(l, row)| {
            row.iter().enumerate().filter_map(move |(k, f)| f.as_ref().map(|f| (l, k, f)))
        })
    }

    /// Joint information on the K angles, each both an AOA and an AOD; delays are nuisance parameters.
    fn angle_information(&self) -> DMatrix<f64> {
        let count = self.paths.len();
        let mut joint = DMatrix::zeros(count, count);
        for (l, k, f) in self.present() {
            let angles = without_delay(f);
            joint[(l, l)] += angles[(0, 0)];
            joint[(l, k)] += angles[(0, 1)];
            joint[(k, l)] += angles[(1, 0)];
            joint[(k, k)] += angles[(1, 1)];
        }
        joint
    }

    /// Bound on each of the K angles.
    pub fn angle_crb_rad2(&self) -> Result<Vec<f64>, SingularInformation> {
        let inverse = self.angle_information().cholesky().ok_or(SingularInformation)?.inverse();
        Ok(inverse.diagonal().iter().copied().collect())
    }

    /// Bound on the delay of every path, jointly with the K shared angles, indexed `[l][k]`; none if the path is missing.
    ///
    /// By blocks, with A the angle information: `1/f_tt + g^T A^-1 g / f_tt^2`, g the coupling to the angles.
    pub fn delay_crb_s2(&self) -> Result<Vec<Vec<Option<f64>>>, SingularInformation> {
        let count = self.paths.len();
        let angles = self.angle_information().cholesky().ok_or(SingularInformation)?;
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

    /// Bound on the position from the measurements of a scheme.
    pub fn position_crb_m2(&self, scheme: Scheme) -> Result<Matrix2<f64>, SingularInformation> {
        inverse(self.position_information(scheme))
    }

    /// Information on the position from the measurements of a scheme, per square metre. Angles alone and delays alone are
    /// schemes of plane waves: for spherical waves they have no information.
    pub fn position_information(&self, scheme: Scheme) -> Matrix2<f64> {
        self.present().fold(Matrix2::zeros(), |sum, (l, k, f)| {
            let jacobian = &self.geometry[l][k];
            sum + match (scheme, &self.curved) {
                (Scheme::NoCollaboration, _) if l != k => Matrix2::zeros(),
                (Scheme::NoCollaboration | Scheme::Hybrid, Some(curved)) => curved[l][k],
                (_, Some(_)) => Matrix2::zeros(),
                (Scheme::NoCollaboration | Scheme::Hybrid, None) => jacobian.transpose() * f * jacobian,
                (Scheme::AngleOnly, None) => {
                    let angles = jacobian.fixed_rows::<2>(0).into_owned();
                    angles.transpose() * without_delay(f) * angles
                }
                (Scheme::DelayOnly, None) => {
                    let delay = jacobian.fixed_rows::<1>(2).into_owned();
                    delay.transpose() * delay_information(f) * delay
                }
            }
        })
    }
}

/// The bound that an information implies.
pub(crate) fn inverse<const N: usize>(
    information: SMatrix<f64, N, N>,
) -> Result<SMatrix<f64, N, N>, SingularInformation> {
    let inverse = information.cholesky().ok_or(SingularInformation)?.inverse();
    // Symmetric up to rounding.
    let bound = (inverse + inverse.transpose()) / 2.0;
    if bound.iter().all(|v| v.is_finite()) { Ok(bound) } else { Err(SingularInformation) }
}

/// Rows: gradient of AOA, AOD and delay of path (l, k).
fn path_jacobian(system: &System, l: usize, k: usize, target_m: Point) -> Matrix3x2<f64> {
    let (sensor, reflector) = (&system.irs[l].pose, &system.irs[k].pose);
    Matrix3x2::from_rows(&[
        sensor.bearing_gradient_rad_m(target_m).transpose(),
        reflector.bearing_gradient_rad_m(target_m).transpose(),
        cascade_delay_gradient_s_m(sensor, reflector, target_m).transpose(),
    ])
}

/// Information on the two angles after the delay is profiled out.
fn without_delay(f: &Matrix3<f64>) -> Matrix2<f64> {
    let coupling = f.fixed_view::<2, 1>(0, 2).into_owned();
    let angles = f.fixed_view::<2, 2>(0, 0).into_owned();
    if f[(2, 2)] > 0.0 { angles - coupling * coupling.transpose() / f[(2, 2)] } else { angles }
}

/// Information on the delay after the two angles are profiled out, AOD first.
fn delay_information(f: &Matrix3<f64>) -> f64 {
    let (mut aoa, mut coupling, mut delay) = (f[(0, 0)], f[(0, 2)], f[(2, 2)]);
    if f[(1, 1)] > 0.0 {
        aoa -= f[(0, 1)].powi(2) / f[(1, 1)];
        coupling -= f[(0, 1)] * f[(1, 2)] / f[(1, 1)];
        delay -= f[(1, 2)].powi(2) / f[(1, 1)];
    }
    if aoa > 0.0 { delay - coupling.powi(2) / aoa } else { delay }
}

/// Information of every path on the position, without the factor `2 |alpha|^2 / sigma^2`: `Re D^H (I - P) D` with the exact
/// derivatives D of the mean with respect to x and y, P onto the mean if the gain is unknown.
fn position_factors(system: &System, target_m: Point, gain: Gain) -> Vec<Vec<Matrix2<f64>>> {
    let count = system.irs_count();
    let carrier = system.carrier();
    let relative_m = |k: usize| at_height_zero(target_m - system.irs[k].pose.position_m);
    let arrivals = (0..count).filter_map(|l| {
        let (a, [by_x, by_y, _]) = system.sensor_aperture(l)?.expansion(&carrier, &relative_m(l));
        Some([a, by_x, by_y])
    });
    let arrivals: Vec<[CVector; 3]> = arrivals.collect();
    let streams = (0..count).filter_map(|k| {
        let irs = &system.irs[k];
        let (g, [by_x, by_y, _]) = system.element_aperture(k)?.expansion(&carrier, &relative_m(k));
        let spectrum = |g: &CVector| irs.waveform.codes.tr_mul(&irs.reflected_signal.tr_mul(g));
        Some([spectrum(&g), spectrum(&by_x), spectrum(&by_y)])
    });
    let streams: Vec<[CVector; 3]> = streams.collect();
    let path = |l: usize, k: usize| {
        let (sensor, reflector) = (&system.irs[l], &system.irs[k]);
        let slopes_s = cascade_delay_gradient_s_m(&sensor.pose, &reflector.pose, target_m);
        let (a, r) = (&arrivals[l], &streams[k]);
        let delayed = |axis: usize| {
            CVector::from_fn(r[0].len(), |i, _| {
                let frequency = system.frequency_hz(reflector.waveform.subcarriers[i]);
                r[1 + axis][i] - r[0][i] * Complex64::new(0.0, TAU * frequency * slopes_s[axis])
            })
        };
        let d = [delayed(0), delayed(1)];
        let energy = a[0].norm_squared() * r[0].norm_squared();
        let along = [0, 1]
            .map(|i| a[0].dotc(&a[1 + i]) * r[0].norm_squared() + r[0].dotc(&d[i]) * a[0].norm_squared());
        Matrix2::from_fn(|i, j| {
            let whole = a[1 + i].dotc(&a[1 + j]) * r[0].norm_squared()
                + a[1 + i].dotc(&a[0]) * r[0].dotc(&d[j])
                + a[0].dotc(&a[1 + j]) * d[i].dotc(&r[0])
                + d[i].dotc(&d[j]) * a[0].norm_squared();
            let known =
                if gain == Gain::Unknown { along[i].conj() * along[j] / energy } else { Complex64::ZERO };
            (whole - known).re
        })
    };
    (0..count).map(|l| (0..count).map(|k| path(l, k)).collect()).collect()
}

/// Sensor side of a path: `a`, and its derivative (without its component along `a` if the gain is unknown).
struct SensorFactor {
    energy: f64,
    along: Complex64,
    derivative_energy: f64,
}

impl SensorFactor {
    fn new(system: &System, l: usize, target_m: Point, gain: Gain) -> Self {
        let theta = system.irs[l].pose.local_angle_rad(target_m);
        let array = system.sensor_array();
        let (a, derivative) = (array.steering(theta), array.steering_derivative(theta));
        let derivative = projected(derivative, &a, gain);
        Self {
            energy: a.norm_squared(),
            along: a.dotc(&derivative),
            derivative_energy: derivative.norm_squared(),
        }
    }

    /// Information of the product of both factors, without the factor `2 |alpha|^2 / sigma^2`.
    fn with(&self, streams: &StreamFactor) -> Matrix3<f64> {
        let aoa = self.derivative_energy * streams.energy;
        let aoa_aod = (self.along.conj() * streams.along_aod).re;
        let aoa_delay = (self.along.conj() * streams.along_delay).re;
        let [aod, aod_delay, delay] =
            [streams.aod_energy, streams.aod_delay, streams.delay_energy].map(|value| self.energy * value);
        [[aoa, aoa_aod, aoa_delay], [aoa_aod, aod, aod_delay], [aoa_delay, aod_delay, delay]].into()
    }
}

/// Stream side of a path: `r = a^H S X .* exp(-j 2 pi f tau)` and its derivatives with respect to AOD and delay. The
/// phasor is common to all three and has modulus one, so that it cancels in every inner product.
struct StreamFactor {
    energy: f64,
    along_aod: Complex64,
    along_delay: Complex64,
    aod_energy: f64,
    aod_delay: f64,
    delay_energy: f64,
}

impl StreamFactor {
    fn new(system: &System, k: usize, target_m: Point, gain: Gain) -> Self {
        let irs = &system.irs[k];
        let theta = irs.pose.local_angle_rad(target_m);
        let array = system.element_array();
        // (a^H S X)^H = X^H S^H a: work with the adjoint, a column of n_k entries.
        let spectrum = |steering: &CVector| irs.waveform.codes.ad_mul(&irs.reflected_signal.ad_mul(steering));
        let r = spectrum(&array.steering(theta));
        let by_aod = spectrum(&array.steering_derivative(theta));
        let by_delay = CVector::from_fn(r.len(), |i, _| {
            let frequency = system.frequency_hz(irs.waveform.subcarriers[i]);
            // Derivative -j 2 pi f of the row, conjugated with it.
            r[i] * Complex64::new(0.0, TAU * frequency)
        });
        let (by_aod, by_delay) = (projected(by_aod, &r, gain), projected(by_delay, &r, gain));
        Self {
            energy: r.norm_squared(),
            along_aod: r.dotc(&by_aod).conj(),
            along_delay: r.dotc(&by_delay).conj(),
            aod_energy: by_aod.norm_squared(),
            aod_delay: by_aod.dotc(&by_delay).re,
            delay_energy: by_delay.norm_squared(),
        }
    }
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
    use crate::scenario::Scenario;

    fn bound_m2(scenario: &Scenario, target_m: Point, gain: Gain) -> Matrix2<f64> {
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
            [&plane, &spherical].map(|scenario| bound_m2(scenario, Point::new(3.0, 6.0), Gain::Unknown));
        assert!((a - b).norm() < 0.01 * a.norm(), "{a} {b}");
    }

    /// Table I with spherical waves, median of 41 scenes: 9 cm, 2.0 cm and 6.5 mm at 10, 20 and 40 elements, within a third.
    #[test]
    fn bounds_of_spherical_waves() {
        for (count, rms_m) in [(10, 0.09), (20, 0.020), (40, 0.0065)] {
            let mut all: Vec<f64> = (0..41)
                .map(|seed| {
                    let mut scenario = Scenario::default().with_seed(seed);
                    (scenario.surface.elements, scenario.surface.sensors) = (count, count);
                    scenario.signal.wavefront = Wavefront::Spherical;
                    bound_m2(&scenario, Point::new(5.0, 5.0), Gain::Unknown).trace().sqrt()
                })
                .collect();
            all.sort_by(f64::total_cmp);
            assert!((0.66..1.5).contains(&(all[20] / rms_m)), "{count}: {}", all[20]);
        }
    }
}
