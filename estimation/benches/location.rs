//! Time of one fix, integrity included: clean, with one gross error, and with a third of the
//! paths missing.
//!
//! Bound: not flops (some 3000 at K = 3, 60 ns at the peak) but their order: closed-form stages and four Gauss-Newton steps
//! are about 1500 operations that wait for each other, 1.3 ns each: 1.9 us. Measured 3.7 us, 51 %; divisions, roots and
//! arc tangents are the rest.

use divan::Bencher;
use hyloc_estimation::location::{Bearing, CascadeDelay, LocateSettings, Measurements, locate};
use model::geometry::{Point, Pose, cascade_delay_s};

fn main() {
    divan::main();
}

/// A target among `count` IRSs on a ring, with errors of about one standard deviation.
fn scene(count: usize, gross_m: f64, keep: impl Fn(usize) -> bool) -> Measurements {
    let target_m = Point::new(4.0, 7.0, 0.0);
    let irs: Vec<Pose> = (0..count)
        .map(|k| {
            let angle = std::f64::consts::TAU * (k as f64 + 0.3) / count as f64;
            Pose::facing(Point::new(50.0 * angle.cos(), 50.0 * angle.sin(), 0.0), Point::zeros())
        })
        .collect();
    let error = |index: usize| (2.3 * index as f64 + 0.4).sin() * 1.4;
    let (delay_deviation_s, bearing_deviation_rad) = (1.2e-9, 3e-3);
    let delays = (0..count * count)
        .map(|path| {
            let gross_s = if path == 1 { gross_m / 3e8 } else { 0.0 };
            keep(path).then(|| CascadeDelay {
                delay_s: cascade_delay_s(&irs[path / count], &irs[path % count], target_m)
                    + error(path) * delay_deviation_s
                    + gross_s,
                variance_s2: delay_deviation_s * delay_deviation_s,
            })
        })
        .collect();
    let bearings = irs
        .iter()
        .enumerate()
        .map(|(k, pose)| {
            Some(Bearing {
                bearing_rad: pose.bearing_rad(target_m) + error(k + 7) * bearing_deviation_rad,
                variance_rad2: bearing_deviation_rad * bearing_deviation_rad,
            })
        })
        .collect();
    Measurements::new(irs.iter().map(|pose| pose.position_m.xy()).collect(), delays, bearings).expect("valid")
}

#[divan::bench(args = [3, 4, 8, 16, 32])]
fn clean(bencher: Bencher, count: usize) {
    let measurements = scene(count, 0.0, |_| true);
    let settings = LocateSettings::default();
    bencher.bench(|| locate(divan::black_box(&measurements), &settings).expect("observable"));
}

#[divan::bench(args = [3, 4, 8, 16, 32])]
fn one_gross_error(bencher: Bencher, count: usize) {
    let measurements = scene(count, 30.0, |_| true);
    let settings = LocateSettings::default();
    bencher.bench(|| locate(divan::black_box(&measurements), &settings).expect("observable"));
}

#[divan::bench(args = [3, 4, 8, 16, 32])]
fn third_missing(bencher: Bencher, count: usize) {
    let measurements = scene(count, 0.0, |path| path % 3 != 1);
    let settings = LocateSettings::default();
    bencher.bench(|| locate(divan::black_box(&measurements), &settings).expect("observable"));
}
