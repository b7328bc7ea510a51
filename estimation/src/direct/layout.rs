//! The IRSs as the likelihood knows them, and a point in space as they see it, with derivatives.
//!
//! Arrays appear only through the response of their elements to a point and its derivatives ([`model::panel`]), so that
//! line arrays and panels, plane and spherical waves are one case. Subcarriers are kept in the order of their owners:
//! those of one IRS are contiguous.

use std::f64::consts::TAU;
use std::ops::Range;

use model::algebra::unit_phasor;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{Aperture, CMatrix, Carrier, Point, System};
use nalgebra::DVector;
use num_complex::Complex64;

/// Why IRSs make no layout.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of every variant describes it")]
pub enum LayoutError {
    #[error("no IRS at all: at least one is needed")]
    Empty,
    #[error("wavelength = {value} m: must be positive and finite")]
    Wavelength { value: f64 },
    #[error("IRS {k}: there are no {what}")]
    Nothing { k: usize, what: &'static str },
    #[error("IRS {k}: {what} is {rows} x {columns}, expected {expected_rows} x {expected_columns}")]
    Shape {
        k: usize,
        what: &'static str,
        rows: usize,
        columns: usize,
        expected_rows: usize,
        expected_columns: usize,
    },
    #[error("IRS {k}: {what} holds a value that is not finite")]
    NotFinite { k: usize, what: &'static str },
    #[error("IRS {k} radiates nothing: its reflected signal or its codes are zero")]
    Dark { k: usize },
}

/// One IRS as the likelihood knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutIrs {
    /// Point to which phases and delays refer: the centre of a panel.
    pub centre_m: Point,
    /// Sensors, M.
    pub sensors: Aperture,
    /// Reflecting elements, N.
    pub elements: Aperture,
    /// S_k, N x D.
    pub reflected_signal: CMatrix,
    /// X_k, D x n.
    pub codes: CMatrix,
    /// Baseband frequencies of its n subcarriers.
    pub frequencies_hz: Vec<f64>,
}

/// The IRSs of a likelihood.
#[derive(Debug, Clone)]
pub struct Layout {
    carrier: Carrier,
    irs: Vec<LayoutIrs>,
    /// Free coordinates of a target: 0 and 1 in a plane, 0 to 2 in space.
    axes: Vec<usize>,
    /// A point whose other coordinates are those of all targets.
    base_m: Point,
    /// Where the subcarriers of IRS k are.
    ranges: Vec<Range<usize>>,
    /// Angular baseband frequency of all subcarriers, rad/s.
    frequencies_rad_s: Vec<f64>,
    comb: Option<Comb>,
    /// `S_k^T`: N columns of D values each.
    signals: Vec<CMatrix>,
    /// `X_k^T`: D columns of n values each.
    codes: Vec<CMatrix>,
}

/// Equally spaced frequencies, of which any may be missing: their phasors are products of two short tables.
#[derive(Debug, Clone)]
struct Comb {
    lowest_rad_s: f64,
    step_rad_s: f64,
    /// Place of every subcarrier in the comb.
    places: Vec<usize>,
    blocks: usize,
}

/// A point as one IRS sees it. Every list of vectors has the value first, then the derivatives with respect to the free
/// coordinates, if these were asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    pub distance_m: f64,
    /// Gradient of the distance with respect to the free coordinates.
    pub direction: Vec<f64>,
    /// `a_l(p)`.
    pub arrival: Vec<Vec<Complex64>>,
    /// `S_k^T g_k(p)`, per stream: the conjugate of the paper's `b_k`.
    pub contents: Vec<Vec<Complex64>>,
    /// `(S_k X_k)^T g_k(p)` on the IRS's own subcarriers, without delay.
    pub streams: Vec<Vec<Complex64>>,
    /// `exp(-j w d / c)` on all subcarriers.
    pub phasors: Vec<Complex64>,
}

impl Layout {
    /// Checks the parts; targets are free to move along `axes` (0, 1 or 2), and have the other coordinates of `base_m`.
    pub fn new(
        carrier: Carrier,
        irs: Vec<LayoutIrs>,
        axes: Vec<usize>,
        base_m: Point,
    ) -> Result<Self, LayoutError> {
        let value = carrier.wavelength_m;
        if !(value.is_finite() && value > 0.0) {
            return Err(LayoutError::Wavelength { value });
        }
        if irs.is_empty() {
            return Err(LayoutError::Empty);
        }
        irs.iter().enumerate().try_for_each(|(k, irs)| irs.check(k))?;
        Ok(Self::assembled(carrier, irs, axes, base_m))
    }

    /// The layout of a system, which is consistent.
    pub(super) fn of_system(system: &System) -> Self {
        let irs = system.irs.iter().enumerate().filter_map(|(k, irs)| {
            Some(LayoutIrs {
                centre_m: irs.pose.position_m,
                sensors: system.sensor_aperture(k)?,
                elements: system.element_aperture(k)?,
                reflected_signal: irs.reflected_signal.clone(),
                codes: irs.waveform.codes.clone(),
                frequencies_hz: irs.waveform.subcarriers.iter().map(|&i| system.frequency_hz(i)).collect(),
            })
        });
        Self::assembled(system.carrier(), irs.collect(), system.axes().to_vec(), system.coverage.min_m.into())
    }

    fn assembled(carrier: Carrier, irs: Vec<LayoutIrs>, axes: Vec<usize>, base_m: Point) -> Self {
        let signals = irs.iter().map(|irs| irs.reflected_signal.transpose()).collect();
        let codes = irs.iter().map(|irs| irs.codes.transpose()).collect();
        let mut ranges = Vec::with_capacity(irs.len());
        let mut frequencies_rad_s = Vec::new();
        for irs in &irs {
            let begin = frequencies_rad_s.len();
            frequencies_rad_s.extend(irs.frequencies_hz.iter().map(|f| TAU * f));
            ranges.push(begin..frequencies_rad_s.len());
        }
        let comb = Comb::new(&frequencies_rad_s);
        Self { carrier, irs, axes, base_m, ranges, frequencies_rad_s, comb, signals, codes }
    }

    /// The IRSs.
    pub fn irs(&self) -> &[LayoutIrs] {
        &self.irs
    }

    /// Free coordinates of a target.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// The position with these free coordinates.
    pub(super) fn position_m<'a>(&self, coordinates: impl IntoIterator<Item = &'a f64>) -> Point {
        let mut position_m = self.base_m;
        for (&axis, value) in self.axes.iter().zip(coordinates) {
            position_m[axis] = *value;
        }
        position_m
    }

    /// Free coordinates of a position.
    pub(super) fn coordinates(&self, position_m: &Point) -> DVector<f64> {
        DVector::from_iterator(self.axes.len(), self.axes.iter().map(|&axis| position_m[axis]))
    }

    /// Free coordinates of some positions, one after the other.
    pub(super) fn joint_coordinates(&self, positions_m: &[Point]) -> DVector<f64> {
        let each = positions_m.iter().flat_map(|position_m| self.axes.iter().map(|&axis| position_m[axis]));
        DVector::from_iterator(positions_m.len() * self.axes.len(), each)
    }

    /// Angular baseband frequency of all subcarriers, by owner.
    pub(super) fn frequencies_rad_s(&self) -> &[f64] {
        &self.frequencies_rad_s
    }

    /// Where the subcarriers of IRS `k` are.
    pub(super) fn range(&self, k: usize) -> Range<usize> {
        self.ranges[k].clone()
    }

    /// The point as IRS `k` sees it, with derivatives if `expand` says so. Buffers of `view` are reused.
    pub(super) fn look(&self, k: usize, point: &Point, expand: bool, view: &mut View) {
        let irs = &self.irs[k];
        let relative_m = point - irs.centre_m;
        view.distance_m = relative_m.norm();
        view.direction.clear();
        view.direction.extend(self.axes.iter().map(|&axis| relative_m[axis] / view.distance_m));
        let count = if expand { 1 + self.axes.len() } else { 1 };
        reset(&mut view.arrival, count, irs.sensors.len());
        reset(&mut view.contents, count, irs.codes.nrows());
        reset(&mut view.streams, count, irs.frequencies_hz.len());
        for (m, offset) in irs.sensors.offsets_m.iter().enumerate() {
            let (phase, gradient) = self.carrier.phase_rad(offset, &relative_m);
            let response = unit_phasor(phase);
            view.arrival[0][m] = response;
            for (values, &axis) in view.arrival[1..].iter_mut().zip(&self.axes) {
                values[m] = response * Complex64::new(0.0, gradient[axis]);
            }
        }
        for (offset, signal) in irs.elements.offsets_m.iter().zip(self.signals[k].column_iter()) {
            let (phase, gradient) = self.carrier.phase_rad(offset, &relative_m);
            let response = unit_phasor(phase);
            add_scaled(&mut view.contents[0], signal.as_slice(), response);
            for (values, &axis) in view.contents[1..].iter_mut().zip(&self.axes) {
                add_scaled(values, signal.as_slice(), response * Complex64::new(0.0, gradient[axis]));
            }
        }
        for (content, stream) in view.contents.iter().zip(&mut view.streams) {
            for (factor, code) in content.iter().zip(self.codes[k].column_iter()) {
                add_scaled(stream, code.as_slice(), *factor);
            }
        }
        self.set_phasors(&mut view.phasors, -view.distance_m / SPEED_OF_LIGHT_M_S);
    }

    /// `exp(j w t)` on all subcarriers.
    pub(super) fn phasors(&self, time_s: f64) -> Vec<Complex64> {
        let mut phasors = Vec::new();
        self.set_phasors(&mut phasors, time_s);
        phasors
    }

    /// [`Self::phasors`] into a buffer that exists.
    pub(super) fn set_phasors(&self, phasors: &mut Vec<Complex64>, time_s: f64) {
        phasors.clear();
        match &self.comb {
            Some(comb) => comb.extend(phasors, time_s),
            None => phasors.extend(self.frequencies_rad_s.iter().map(|w| unit_phasor(w * time_s))),
        }
    }

    /// Root mean square width of the subcarriers of the widest IRS; 0 where each has but one.
    pub(super) fn spread_rad_s(&self) -> f64 {
        let spread = |range: &Range<usize>| {
            let own = &self.frequencies_rad_s[range.clone()];
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            (own.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / own.len() as f64).sqrt()
        };
        self.ranges.iter().map(spread).fold(0.0, f64::max)
    }

    /// The point as every IRS sees it.
    pub(super) fn views(&self, point: &Point, expand: bool) -> Vec<View> {
        let mut views = vec![View::default(); self.irs.len()];
        self.look_all(point, expand, &mut views);
        views
    }

    /// [`Self::views`] into buffers that exist.
    pub(super) fn look_all(&self, point: &Point, expand: bool, views: &mut [View]) {
        for (k, view) in views.iter_mut().enumerate() {
            self.look(k, point, expand, view);
        }
    }
}

impl Layout {
    /// Variance of the spectrum that IRS `k` sends to a point, rad^2/s^2, and its derivatives with respect to the free coordinates,
    /// as far as there are any.
    pub(super) fn spectral_variance(&self, k: usize, view: &View) -> [f64; 4] {
        let frequencies = &self.frequencies_rad_s[self.range(k)];
        let powers = |i: usize| {
            let twice = if i == 0 { 1.0 } else { 2.0 };
            view.streams[0].iter().zip(&view.streams[i]).map(move |(x, d)| twice * (x.conj() * d).re)
        };
        let energy = powers(0).sum::<f64>().max(f64::MIN_POSITIVE);
        let centre = powers(0).zip(frequencies).map(|(p, w)| p * w).sum::<f64>() / energy;
        // The derivative of the centre drops out.
        let second = |i: usize| {
            powers(i).zip(frequencies).map(|(p, w)| p * (w - centre).powi(2)).sum::<f64>() / energy
        };
        let variance = second(0);
        let slope = |i: usize| second(i) - variance * powers(i).sum::<f64>() / energy;
        std::array::from_fn(|i| match i {
            0 => variance,
            _ if i < view.streams.len() => slope(i),
            _ => 0.0,
        })
    }
}

impl View {
    /// `||b_k||`.
    pub fn strength(&self) -> f64 {
        self.contents[0].iter().map(Complex64::norm_sqr).sum::<f64>().sqrt().max(f64::MIN_POSITIVE)
    }
}

/// Makes `count` lists of `length` zeros.
fn reset(lists: &mut Vec<Vec<Complex64>>, count: usize, length: usize) {
    lists.resize_with(count, Vec::new);
    for values in lists {
        values.clear();
        values.resize(length, Complex64::ZERO);
    }
}

impl Comb {
    const STRIDE: usize = 16;
    /// Largest number of places; the tables stay much shorter than this.
    const MOST_PLACES: f64 = 65_536.0;

    /// The comb of these frequencies, if they have one that is worth its tables.
    fn new(frequencies_rad_s: &[f64]) -> Option<Self> {
        let mut sorted = frequencies_rad_s.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (lowest_rad_s, highest) = (*sorted.first()?, *sorted.last()?);
        let gaps = sorted.windows(2).map(|pair| pair[1] - pair[0]);
        let step_rad_s = gaps.filter(|gap| *gap > 1e-9 * highest.abs()).fold(f64::INFINITY, f64::min);
        let place = |w: f64| (w - lowest_rad_s) / step_rad_s;
        let regular = |w: &f64| (place(*w) - place(*w).round()).abs() < 1e-6;
        let short = step_rad_s.is_finite() && place(highest) < Self::MOST_PLACES;
        if !short || !frequencies_rad_s.iter().all(regular) {
            return None;
        }
        let places: Vec<usize> = frequencies_rad_s.iter().map(|w| place(*w).round() as usize).collect();
        let blocks = place(highest).round() as usize / Self::STRIDE + 1;
        (blocks + Self::STRIDE < places.len()).then_some(Self { lowest_rad_s, step_rad_s, places, blocks })
    }

    /// Adds `exp(j w t)` of every subcarrier to an empty list.
    fn extend(&self, phasors: &mut Vec<Complex64>, time_s: f64) {
        let (lowest, step) = (self.lowest_rad_s * time_s, self.step_rad_s * time_s);
        let fine: [Complex64; Self::STRIDE] = std::array::from_fn(|i| unit_phasor(step * i as f64));
        // The rough table is at the beginning of the list and leaves it in the end.
        phasors.extend((0..self.blocks).map(|i| unit_phasor(lowest + step * (i * Self::STRIDE) as f64)));
        phasors.resize(self.blocks + self.places.len(), Complex64::ZERO);
        let (rough, products) = phasors.split_at_mut(self.blocks);
        for (product, place) in products.iter_mut().zip(&self.places) {
            *product = rough[place / Self::STRIDE] * fine[place % Self::STRIDE];
        }
        phasors.drain(..self.blocks);
    }
}

/// `sum += values * factor`.
#[inline]
fn add_scaled(sum: &mut [Complex64], values: &[Complex64], factor: Complex64) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value * factor;
    }
}

impl LayoutIrs {
    fn check(&self, k: usize) -> Result<(), LayoutError> {
        for (what, aperture) in [("sensors", &self.sensors), ("elements", &self.elements)] {
            if aperture.is_empty() {
                return Err(LayoutError::Nothing { k, what });
            }
            if aperture.offsets_m.iter().flatten().any(|v| !v.is_finite()) {
                return Err(LayoutError::NotFinite { k, what });
            }
        }
        if self.frequencies_hz.is_empty() {
            return Err(LayoutError::Nothing { k, what: "subcarriers" });
        }
        let streams = self.reflected_signal.ncols();
        let expected = [
            ("reflected signal", &self.reflected_signal, (self.elements.len(), streams)),
            ("matrix of codes", &self.codes, (streams, self.frequencies_hz.len())),
        ];
        for (what, matrix, (expected_rows, expected_columns)) in expected {
            let (rows, columns) = matrix.shape();
            if (rows, columns) != (expected_rows, expected_columns) || matrix.is_empty() {
                return Err(LayoutError::Shape { k, what, rows, columns, expected_rows, expected_columns });
            }
            if matrix.iter().any(|v| !v.is_finite()) {
                return Err(LayoutError::NotFinite { k, what });
            }
        }
        if self.frequencies_hz.iter().chain(self.centre_m.iter()).any(|v| !v.is_finite()) {
            return Err(LayoutError::NotFinite { k, what: "centre or list of frequencies" });
        }
        let radiated = (&self.reflected_signal * &self.codes).norm_squared();
        if radiated > 0.0 { Ok(()) } else { Err(LayoutError::Dark { k }) }
    }
}

#[cfg(test)]
mod tests {
    use model::Scenario;

    use super::*;

    /// What does not fit together is refused, and said which.
    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let layout = Layout::of_system(&System::new(&Scenario::default()).unwrap());
        let build = |change: &dyn Fn(&mut LayoutIrs)| {
            let mut irs = layout.irs.clone();
            change(&mut irs[1]);
            Layout::new(layout.carrier, irs, vec![0, 1], Point::zeros())
        };
        assert!(build(&|_| ()).is_ok());
        type Change = dyn Fn(&mut LayoutIrs);
        let changes: [(&Change, &str); 8] = [
            (&|irs| irs.codes = irs.codes.clone().remove_column(0), "matrix of codes"),
            (&|irs| irs.codes = irs.codes.clone().remove_row(0), "matrix of codes"),
            (&|irs| irs.reflected_signal = irs.reflected_signal.clone().remove_row(0), "reflected signal"),
            (&|irs| irs.reflected_signal.fill(Complex64::ZERO), "radiates nothing"),
            (&|irs| irs.codes[(0, 0)].re = f64::NAN, "matrix of codes holds"),
            (&|irs| irs.frequencies_hz.clear(), "no subcarriers"),
            (&|irs| irs.frequencies_hz[0] = f64::INFINITY, "centre or list"),
            (&|irs| irs.sensors.offsets_m.clear(), "no sensors"),
        ];
        for (change, reason) in changes {
            let error = build(change).unwrap_err().to_string();
            assert!(error.contains("IRS 1") && error.contains(reason), "{error}: {reason}");
        }
        let none = Layout::new(layout.carrier, Vec::new(), vec![0, 1], Point::zeros());
        assert!(matches!(none, Err(LayoutError::Empty)));
    }

    /// Phasors from the tables of a comb, and without a comb.
    #[test]
    fn phasors_turn_with_the_frequency() {
        let layout = Layout::of_system(&System::new(&Scenario::default()).unwrap());
        assert!(layout.comb.is_some());
        let plain = Layout { comb: None, ..layout.clone() };
        for ((a, b), w) in layout.phasors(3e-8).iter().zip(plain.phasors(3e-8)).zip(&layout.frequencies_rad_s)
        {
            let exact = Complex64::from_polar(1.0, w * 3e-8);
            assert!((a - exact).norm() < 1e-9 && (b - exact).norm() < 1e-12);
        }
        let irregular: Vec<f64> =
            layout.frequencies_rad_s.iter().map(|w| w + 1e-3 * w.abs().sqrt()).collect();
        assert!(Comb::new(&irregular).is_none());
    }
}
