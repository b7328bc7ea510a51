//! Where angles are ambiguous: beyond `|sin| = 1 / (2 s)` along columns and rows, s the spacing in wavelengths.

use std::f64::consts::FRAC_PI_2;

use model::System;
use model::units::SPEED_OF_LIGHT_M_S;
use serde::Serialize;

/// How far from broadside an IRS sees the coverage area.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sector {
    pub unambiguous_deg: f64,
    pub along_columns_deg: f64,
    /// None for line arrays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub along_rows_deg: Option<f64>,
    /// Bandwidth from which the delays of the other IRSs tell the alias of a direction from it; none without an alias, and none
    /// where there is no other IRS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolving_bandwidth_hz: Option<f64>,
}

/// The sector of every IRS, with warnings that say what would help.
pub fn sectors(system: &System) -> (Vec<Sector>, Vec<String>) {
    let limit = 0.5 / system.spacing_wavelengths;
    let fractions = || (0..=8).map(|i| f64::from(i) / 8.0);
    let coverage = &system.coverage;
    let places =
        || fractions().flat_map(|u| fractions().flat_map(move |v| fractions().map(move |w| (u, v, w))));
    let rows = system.sensor_grid.rows.max(system.element_grid.rows) > 1;
    let (mut sectors, mut warnings) = (Vec::new(), Vec::new());
    for (k, irs) in system.irs.iter().enumerate() {
        let axes = irs.pose.orientation.axes();
        let (mut widest, mut nearest_m) = ([0.0f64; 2], f64::INFINITY);
        for (u, v, w) in places() {
            let place = coverage.at_height(u, v, w);
            let direction = irs.pose.direction(place);
            nearest_m = nearest_m.min(irs.pose.distance_m(place));
            for (axis, sine) in widest.iter_mut().enumerate() {
                *sine = sine.max(direction.dot(&axes.column(axis)).abs());
            }
        }
        let seen = widest[0].max(if rows { widest[1] } else { 0.0 });
        let ambiguous = seen > limit;
        // Directions of the same phases are 1 / s apart in their sines.
        let apart_m = nearest_m / system.spacing_wavelengths;
        let others = system.irs_count() > 1;
        let bandwidth_hz = SPEED_OF_LIGHT_M_S / apart_m;
        if ambiguous {
            let help = if others {
                format!(
                    "delays of the other IRSs tell them apart from a bandwidth of about {:.1} MHz (here {:.1} MHz)",
                    bandwidth_hz / 1e6,
                    system.bandwidth_hz / 1e6
                )
            } else {
                "no delay tells them apart with a single IRS".to_owned()
            };
            warnings.push(format!(
                "irs[{k}]: directions beyond +-{:.1} degrees look like others; {help}, and a spacing of {:.2} wavelengths \
                 has none of them",
                limit.asin().to_degrees(),
                0.5 / seen
            ));
        }
        let degrees = |sine: f64| sine.min(1.0).asin().to_degrees();
        sectors.push(Sector {
            unambiguous_deg: (if limit >= 1.0 { FRAC_PI_2 } else { limit.asin() }).to_degrees(),
            along_columns_deg: degrees(widest[0]),
            along_rows_deg: rows.then(|| degrees(widest[1])),
            resolving_bandwidth_hz: (ambiguous && others).then_some(bandwidth_hz),
        });
    }
    (sectors, warnings)
}
