//! GOSPA of sets and tracks of detections, JSON lines in and out; `benchmarks/tracking.py` compares them with Stone Soup.
//!
//! `{"truth": [[x, y], ..], "estimates": [..], "order": 2, "cutoff_m": 2}` asks for a distance. `{"start": {..}}` starts a run with
//! the statistics of detections, `{"time_s": t, "detections": [[x, y], ..], "deviation_m": d}` continues it and asks for the tracks.
//!
//! `echo '{"truth": [[0, 0]], "estimates": [[0, 1]], "order": 2, "cutoff_m": 2}' | cargo run -p hyloc-tracking --example score`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::BufRead;

use hyloc_tracking::*;
use nalgebra::DVector;
use serde_json::{Value, json};

fn number(value: &Value, key: &str) -> Result<f64, Box<dyn Error>> {
    value[key].as_f64().ok_or_else(|| format!("{key}: a number is expected").into())
}

fn points(value: &Value, key: &str) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    Ok(serde_json::from_value(value[key].clone())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut model, mut tracker) = (DetectionModel::default(), Tracker::new(2, TrackerSettings::default())?);
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        if let Some(start) = request.get("start") {
            model.detection_probability = number(start, "detection_probability")?;
            model.clutter_density = number(start, "clutter_density")?;
            model.birth_density = number(start, "birth_density")?;
            tracker = Tracker::new(2, TrackerSettings::default())?;
        } else if request.get("detections").is_some() {
            let (time_s, deviation_m) = (number(&request, "time_s")?, number(&request, "deviation_m")?);
            let law = |place_m: &Vec<f64>| PositionLaw::isotropic(place_m, deviation_m);
            let laws = points(&request, "detections")?.iter().map(law).collect::<Result<_, _>>()?;
            tracker.step(time_s, &Detections::new(laws, model)?)?;
            let tracks = tracker.confirmed();
            let tracks = tracks.map(|track| json!({"id": track.id, "state": track.state.as_slice()}));
            println!("{}", json!({"tracks": tracks.collect::<Vec<_>>()}));
        } else {
            let set = |key| points(&request, key).map(|set| set.into_iter().map(DVector::from_vec).collect());
            let (truth_m, estimates_m): (Vec<_>, Vec<_>) = (set("truth")?, set("estimates")?);
            let settings =
                GospaSettings { order: number(&request, "order")?, cutoff_m: number(&request, "cutoff_m")? };
            let found = gospa(&truth_m, &estimates_m, &settings)?;
            println!(
                "{}",
                json!({"total": found.total, "localisation": found.localisation, "missed": found.missed,
                    "false": found.false_})
            );
        }
    }
    Ok(())
}
