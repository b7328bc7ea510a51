//! The clocks of a demo: what the fixes say about them beside the truth that they carry.

use nalgebra::{DMatrix, DVector};
use proto::v1;
use serde_json::{Value, json};

/// Clocks have converged where every deviation is below this multiple of its value at the end,
const CONVERGED: f64 = 2.0;
/// which is the median over the fixes of this last share.
const LAST_SHARE: f64 = 0.25;

/// Fixes that are kept; the older half is dropped beyond.
const MOST_FIXES: usize = 100_000;

/// Offsets in nanoseconds that fixes have told, and the error of their positions.
#[derive(Debug, Default)]
pub struct ClockScore {
    fixes: Vec<ScoredFix>,
}

#[derive(Debug)]
struct ScoredFix {
    frame: u64,
    /// Mean squared error of the offsets, where the truth came in time.
    squared_ns2: Option<f64>,
    /// Normalised squared error of the offsets; its mean is their number.
    nees: Option<f64>,
    deviations_ns: Vec<f64>,
    /// Squared error of the position and its bound for known clocks, where the truth came in time.
    position_m2: Option<(f64, f64)>,
}

impl ClockScore {
    pub fn take(&mut self, fix: &v1::Fix) {
        let count = fix.clocks.len();
        if count == 0 {
            return;
        }
        // A demo may continue for days.
        if self.fixes.len() == MOST_FIXES {
            self.fixes.drain(..MOST_FIXES / 2);
        }
        let errors = fix.clocks.iter().map(|clock| Some((clock.offset_s - clock.true_offset_s?) * 1e9));
        let error_ns = errors.collect::<Option<Vec<f64>>>().map(DVector::from_vec);
        let nees = |error_ns: &DVector<f64>| {
            let covariance = covariance_ns2(&fix.clock_covariance_s2, count)?;
            Some(error_ns.dot(&covariance.cholesky()?.solve(error_ns)))
        };
        self.fixes.push(ScoredFix {
            frame: fix.frame,
            squared_ns2: error_ns.as_ref().map(|error_ns| error_ns.norm_squared() / count as f64),
            nees: error_ns.as_ref().and_then(nees),
            deviations_ns: fix.clocks.iter().map(|clock| clock.deviation_s * 1e9).collect(),
            position_m2: position_m2(fix),
        });
    }

    /// The summary of the demo.
    pub fn summary(&self) -> Value {
        let converged = self.converged_after();
        let after = || self.fixes.iter().filter(|fix| converged.is_some_and(|from| fix.frame >= from));
        let mean =
            |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let squared_ns2 = mean(after().filter_map(|fix| fix.squared_ns2).collect());
        let (errors, bounds): (Vec<f64>, Vec<f64>) = after().filter_map(|fix| fix.position_m2).unzip();
        let gap = mean(errors).zip(mean(bounds)).map(|(error, bound)| 10.0 * (error / bound).log10());
        json!({
            "offset_rms_ns": squared_ns2.map(f64::sqrt),
            "nees": mean(after().filter_map(|fix| fix.nees).collect()),
            "nees_expected": self.fixes.first().map(|fix| fix.deviations_ns.len()),
            "converged_after_frames": converged,
            "gap_known_db": gap,
        })
    }

    /// The first frame at which every offset is known nearly as well as at the end.
    fn converged_after(&self) -> Option<u64> {
        let last = ((self.fixes.len() as f64 * LAST_SHARE).ceil() as usize).max(1);
        let end = self.fixes.get(self.fixes.len().checked_sub(last)?..)?;
        let nodes = end.first()?.deviations_ns.len();
        let limits: Vec<f64> = (0..nodes)
            .map(|l| {
                let mut all: Vec<f64> =
                    end.iter().filter_map(|fix| fix.deviations_ns.get(l)).copied().collect();
                all.sort_by(f64::total_cmp);
                CONVERGED * all.get(all.len() / 2).copied().unwrap_or(f64::INFINITY)
            })
            .collect();
        let known = |fix: &&ScoredFix| fix.deviations_ns.iter().zip(&limits).all(|(own, most)| own <= most);
        self.fixes.iter().find(known).map(|fix| fix.frame)
    }
}

/// A covariance from its upper triangle.
fn covariance_ns2(triangle_s2: &[f64], count: usize) -> Option<DMatrix<f64>> {
    let place = |i: usize, j: usize| {
        let (i, j) = (i.min(j), i.max(j));
        i * count - i * (i + 1) / 2 + j
    };
    (triangle_s2.len() == count * (count + 1) / 2)
        .then(|| DMatrix::from_fn(count, count, |i, j| triangle_s2[place(i, j)] * 1e18))
}

fn position_m2(fix: &v1::Fix) -> Option<(f64, f64)> {
    let (at, truth) = (fix.position.as_ref()?, fix.truth.as_ref()?);
    let error = [at.x_m - truth.x_m, at.y_m - truth.y_m, at.z_m - truth.z_m];
    Some((error.iter().map(|e| e * e).sum(), fix.bound_rms_m?.powi(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets that are off by one nanosecond, with deviations that shrink from 8 ns to 1 ns. The truth of one frame did not come
    /// in time.
    #[test]
    fn the_summary_begins_where_the_clocks_have_converged() {
        let mut score = ClockScore::default();
        for frame in 0..20u64 {
            let deviation_s = if frame < 4 { 8e-9 } else { 1e-9 };
            let clock = |l| v1::FixClock {
                offset_s: (f64::from(l) + 1.0) * 1e-9,
                deviation_s,
                true_offset_s: (frame != 7).then_some(f64::from(l) * 1e-9),
                ..v1::FixClock::default()
            };
            let own = deviation_s * deviation_s;
            let at = |x_m| Some(v1::Point { x_m, ..v1::Point::default() });
            score.take(&v1::Fix {
                frame,
                clocks: (0..3).map(clock).collect(),
                clock_covariance_s2: vec![own, 0.0, 0.0, own, 0.0, own],
                position: at(0.2),
                truth: at(0.0),
                bound_rms_m: Some(0.1),
                ..v1::Fix::default()
            });
        }
        let summary = score.summary();
        assert_eq!(summary["converged_after_frames"], 4);
        let close = |key: &str, value: f64| (summary[key].as_f64().unwrap() - value).abs() < 1e-3;
        assert!(
            close("offset_rms_ns", 1.0) && close("nees", 3.0) && close("gap_known_db", 6.0206),
            "{summary}"
        );
    }
}
