//! The term of a block: R with derivative R' at tau_0.
//!
//! With `c = a^H R b`, its derivative c' and the width B of the illumination, the peak is
//! `|c|^2 / ||m||^2 exp(2 d s - (B d)^2)`, `d = tau(x) + o - tau_0`, `s = Re(c^* c') / |c|^2`: value and slope at tau_0 are exact, the
//! curvature is that of a known spectrum, and far from tau_0 the block carries no information. `s` is limited to B.

use num_complex::Complex64;

use super::layout::{Layout, View};
use super::moments::inner;
use crate::ascent::Expansion;
use crate::delay::BlockExpansion;

/// Distance of the peak of a block from the delay of its expansion, in units of 1 / B, up to which it is taken as it is; it is
/// limited smoothly to 1.
const NEAR_PEAK: f64 = 0.8;

/// `a^H R` and `a^H R'` of a response and its derivatives.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockRows(Vec<[Vec<Complex64>; 2]>);

impl BlockRows {
    fn set(&mut self, block: &BlockExpansion, arrivals: &[Vec<Complex64>]) {
        self.0.resize_with(arrivals.len(), Default::default);
        for (rows, arrival) in self.0.iter_mut().zip(arrivals) {
            for (row, matrix) in rows.iter_mut().zip([&block.block, &block.block_derivative]) {
                row.clear();
                row.extend(matrix.column_iter().map(|column| inner(arrival, column.as_slice())));
            }
        }
    }
}

/// Term of a block at a path delay. `slopes_s` is the gradient of the delay with respect to the free coordinates, and to the offset of
/// the clock in metres if that is a parameter. `into` has as many parameters and the roughness of the atom as its information.
pub(super) fn expand_block(
    layout: &Layout,
    k: usize,
    block: &BlockExpansion,
    [sensor, reflector]: [&View; 2],
    (delay_s, slopes_s): (f64, &[f64]),
    rows: &mut BlockRows,
    into: &mut Expansion,
) {
    rows.set(block, &sensor.arrival);
    let rows = &rows.0;
    // c and c', and their derivatives.
    let content = &reflector.contents[0];
    let [c, turned] = [0, 1].map(|part| inner(content, &rows[0][part]));
    let strength = reflector.strength();
    let scale = (sensor.arrival[0].len() as f64).sqrt() * strength;
    let variances = layout.spectral_variance(k, reflector);
    let width = variances[0].sqrt();
    let d = delay_s - block.delay_s;
    let value = block_term(c / scale, turned / scale, width, d);
    into.value = value;
    into.information *= 2.0 * value;
    let energy = c.norm_sqr();
    if energy == 0.0 || width == 0.0 {
        into.information.fill(0.0);
        return;
    }
    let slope = (c.conj() * turned).re / energy;
    let (peak, bend) = limited_peak(slope / width);
    for (i, slope_s) in slopes_s.iter().enumerate() {
        // Neither response depends on the clock.
        if i + 1 == rows.len() {
            into.gradient[i] = value * 2.0 * slope_s * (width * peak - variances[0] * d);
            continue;
        }
        let derivative = |part: usize| {
            inner(&reflector.contents[1 + i], &rows[0][part]) + inner(content, &rows[1 + i][part])
        };
        let (by_c, by_turned) = (derivative(0), derivative(1));
        let growth = 2.0 * (c.conj() * by_c).re / energy;
        let strengthening = 2.0 * inner(content, &reflector.contents[1 + i]).re / strength.powi(2);
        let by_variance = variances[1 + i];
        let by_width = by_variance / (2.0 * width);
        let by_slope = ((by_c.conj() * turned).re + (c.conj() * by_turned).re) / energy - slope * growth;
        let by_peak = bend * (by_slope - slope * by_width / width) / width;
        let along = 2.0 * (slope_s * width * peak + d * by_width * peak + d * width * by_peak);
        let away = 2.0 * variances[0] * d * slope_s + d * d * by_variance;
        into.gradient[i] = value * (growth - strengthening + along - away);
    }
}

/// Term of a block from its products c and c' with the unit atom, `d` seconds from the delay of its expansion.
pub(super) fn block_term(z: Complex64, turned: Complex64, width: f64, d: f64) -> f64 {
    let energy = z.norm_sqr();
    if energy == 0.0 || width == 0.0 {
        return energy;
    }
    let slope = (z.conj() * turned).re / energy;
    let (peak, here) = (limited_peak(slope / width).0, width * d);
    energy * (peak.powi(2) - (here - peak).powi(2)).exp()
}

/// Beyond this offset from the delay of its expansion, seconds, the term of a block is below e^-30 of its peak.
pub(super) fn block_reach(width: f64) -> f64 {
    if width > 0.0 { 6.6 / width } else { f64::INFINITY }
}

/// The place of a peak, limited to plus or minus one, and its derivative.
fn limited_peak(place: f64) -> (f64, f64) {
    let past = (place.abs() - NEAR_PEAK) / (1.0 - NEAR_PEAK);
    if past <= 0.0 {
        return (place, 1.0);
    }
    let share = past.tanh();
    ((NEAR_PEAK + (1.0 - NEAR_PEAK) * share).copysign(place), 1.0 - share * share)
}
