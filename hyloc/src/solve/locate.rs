//! `hyloc solve locate`: a position from cascade delays and bearings. A measurement that is `null` is missing.

use anyhow::ensure;
use estimation::location::{
    Bearing, CascadeDelay, Fix, LocateSettings, Measurements, Status, Unobservable, locate,
};
use model::PlanePoint;
use serde::{Deserialize, Serialize};

use super::{Problem, ensure_square, limits};

/// Measurements of one target; rows of the tables are sensing IRSs, columns reflecting ones.
#[derive(Debug, Clone, Deserialize)]
pub struct LocateCase {
    irs_position_m: Vec<[f64; 2]>,
    #[serde(default = "limits::speed_of_light")]
    speed_of_light_m_s: f64,
    cascade_delay_s: Vec<Vec<Option<f64>>>,
    cascade_delay_variance_s2: Vec<Vec<Option<f64>>>,
    bearing_rad: Vec<Option<f64>>,
    bearing_variance_rad2: Vec<Option<f64>>,
}

/// Results of all stages; `null` if a stage has none.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LocateAnswer {
    segment_delay_s: Vec<Option<f64>>,
    segment_delay_covariance_s2: Vec<Vec<f64>>,
    two_stage_m: Option<[f64; 2]>,
    two_stage_square_m2: Option<f64>,
    three_stage_m: Option<[f64; 2]>,
    maximum_likelihood_m: Option<[f64; 2]>,
    maximum_likelihood_covariance_m2: Option<[[f64; 2]; 2]>,
    protection_level_m: Option<f64>,
    status: String,
    reasons: Vec<String>,
    excluded: Vec<String>,
}

impl Problem for LocateCase {
    type Settings = ();
    type Answer = LocateAnswer;

    fn solve(&self, _: &()) -> anyhow::Result<LocateAnswer> {
        let outcome = locate(&measurements(self)?, &LocateSettings::default());
        Ok(answer(self.irs_position_m.len(), &outcome))
    }
}

fn measurements(case: &LocateCase) -> anyhow::Result<Measurements> {
    let count = case.irs_position_m.len();
    limits::at_speed_of_light(case.speed_of_light_m_s)?;
    ensure_square("cascade_delay_s", &case.cascade_delay_s, count)?;
    ensure_square("cascade_delay_variance_s2", &case.cascade_delay_variance_s2, count)?;
    for (name, list) in
        [("bearing_rad", &case.bearing_rad), ("bearing_variance_rad2", &case.bearing_variance_rad2)]
    {
        ensure!(list.len() == count, "{name}: expected {count} entries, one for each IRS");
    }
    limits::irs_count("IRSs", count)?;
    case.irs_position_m.iter().try_for_each(|&at| limits::position("irs_position_m", at))?;
    for delay in case.cascade_delay_s.iter().flatten().flatten() {
        limits::within("cascade_delay_s", *delay, -1.0, 1.0)?;
    }
    for bearing in case.bearing_rad.iter().flatten() {
        limits::within("bearing_rad", *bearing, -100.0, 100.0)?;
    }
    for variance in case.cascade_delay_variance_s2.iter().flatten().flatten() {
        limits::within("cascade_delay_variance_s2", *variance, 1e-36, 1.0)?;
    }
    for variance in case.bearing_variance_rad2.iter().flatten() {
        limits::within("bearing_variance_rad2", *variance, 1e-24, 1e4)?;
    }
    let positions = case.irs_position_m.iter().map(|&p| PlanePoint::from(p)).collect();
    let values = case.cascade_delay_s.iter().flatten().zip(case.cascade_delay_variance_s2.iter().flatten());
    let delays = values.map(|(&delay, &variance)| {
        Some(CascadeDelay { delay_s: delay?, variance_s2: variance.unwrap_or(f64::NAN) })
    });
    let bearings = case.bearing_rad.iter().zip(&case.bearing_variance_rad2).map(|(&bearing, &variance)| {
        Some(Bearing { bearing_rad: bearing?, variance_rad2: variance.unwrap_or(f64::NAN) })
    });
    Ok(Measurements::new(positions, delays.collect(), bearings.collect())?)
}

fn answer(count: usize, outcome: &Result<Fix, Unobservable>) -> LocateAnswer {
    let pair = |point: PlanePoint| [point.x, point.y];
    let status = Status::of(outcome).to_string();
    let fix = match outcome {
        Ok(fix) => fix,
        Err(reason) => {
            return LocateAnswer {
                segment_delay_s: vec![None; count],
                status,
                reasons: vec![reason.to_string()],
                ..LocateAnswer::default()
            };
        }
    };
    let segments = &fix.stages.segments;
    let mut segment_delay_s = vec![None; count];
    for (&node, &delay) in segments.nodes.iter().zip(segments.delay_s.iter()) {
        segment_delay_s[node] = Some(delay);
    }
    let covariance = fix.covariance_m2();
    LocateAnswer {
        segment_delay_s,
        segment_delay_covariance_s2: segments
            .covariance_s2
            .row_iter()
            .map(|row| row.iter().copied().collect())
            .collect(),
        two_stage_m: fix.stages.two_stage.as_ref().map(|stage| pair(stage.position_m)),
        two_stage_square_m2: fix.stages.two_stage.as_ref().map(|stage| stage.square_m2),
        three_stage_m: fix.stages.three_stage.as_ref().map(|stage| pair(stage.position_m)),
        maximum_likelihood_m: Some(pair(fix.position_m())),
        maximum_likelihood_covariance_m2: Some([
            [covariance[(0, 0)], covariance[(0, 1)]],
            [covariance[(1, 0)], covariance[(1, 1)]],
        ]),
        protection_level_m: fix.protection_level_m,
        status,
        reasons: fix.cautions.iter().map(ToString::to_string).collect(),
        excluded: fix.excluded.iter().map(ToString::to_string).collect(),
    }
}
