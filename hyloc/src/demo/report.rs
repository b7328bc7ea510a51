//! The report at the end of a demo.

use std::fmt::Write;

use fusion_center::load::OVERLOAD_AGE_MS;
use fusion_center::solve::NO_TARGET;
use serde_json::{Value, json};
use telemetry::exit;

use crate::commands::written;
use crate::summary::{number, write_accuracy, write_latency};

/// Reasons for shed frames, and for frames that too few nodes reported.
const SHED: &str = "frames were shed: they come faster than they are solved";
const MINORITY: &str = "too few nodes reported a frame";

/// Result of a demo with the summaries of its processes, which are null for a process that was killed.
#[derive(Debug, Clone)]
pub struct DemoReport {
    pub nodes: usize,
    /// Targets of the scenario.
    pub targets: usize,
    /// Requested number of fixes; 0 if unlimited.
    pub expected_fixes: u64,
    pub interrupted: bool,
    /// Time from the start of the first process to the first fix with a position.
    pub first_fix_s: Option<f64>,
    pub power_dbm: f64,
    /// Echo frames per second.
    pub rate_hz: f64,
    /// The verdict on the scenario in words, if there was no fix.
    pub outlook: Option<String>,
    pub fusion: Value,
    /// Figures of the clocks, where they are not trusted.
    pub clocks: Option<Value>,
    pub simulator: Value,
    pub node_summaries: Vec<Value>,
    /// Messages about processes that died unexpectedly.
    pub deaths: Vec<String>,
    /// Exit code if there are any.
    pub death_code: u8,
}

impl DemoReport {
    /// Fixes divided by requested frames or, in an unlimited demo, by closed frames.
    fn availability(&self) -> Option<f64> {
        let closed: u64 = ["fixes", "without_fix", "frames_shed", "frames_minority"]
            .iter()
            .map(|key| self.count(key))
            .sum();
        let frames = if self.expected_fixes > 0 { self.expected_fixes } else { closed };
        (frames > 0).then(|| self.fixes() as f64 / frames as f64)
    }

    pub fn exit_code(&self) -> u8 {
        if !self.deaths.is_empty() {
            self.death_code
        } else if self.fixes() == 0 && self.targets > 0 && !self.interrupted {
            exit::UNAVAILABLE
        } else {
            exit::CLEAN
        }
    }

    /// Reason for an exit code other than 0.
    pub fn failure(&self) -> Option<String> {
        match self.exit_code() {
            exit::CLEAN => None,
            exit::UNAVAILABLE => Some(self.no_fix_reason()),
            _ => Some(self.deaths.join("; ")),
        }
    }

    fn fixes(&self) -> u64 {
        self.count("fixes")
    }

    fn count(&self, key: &str) -> u64 {
        self.fusion[key].as_u64().unwrap_or(0)
    }

    /// The most frequent reason for a frame without a fix, with advice.
    fn no_fix_reason(&self) -> String {
        let reasons = self.fusion["without_fix_reasons"].as_object().into_iter().flatten();
        let solved = reasons.filter_map(|(reason, count)| Some((count.as_u64()?, reason.as_str())));
        let lost = [("frames_shed", SHED), ("frames_minority", MINORITY)];
        let lost = lost.map(|(key, reason)| (self.count(key), reason));
        let Some((count, reason)) = solved.chain(lost).filter(|(count, _)| *count > 0).max() else {
            return "no fix: no frame reached the fusion center; run again with HYLOC_LOG=info".into();
        };
        let advice = match reason {
            NO_TARGET => match &self.outlook {
                Some(outlook) => outlook,
                None => "raise --power-dbm, or average more frames with --frames-per-fix",
            },
            SHED => "lower --rate",
            MINORITY => "run again with HYLOC_LOG=info to see what holds the nodes up",
            _ => "see the cautions in the log that --fixes FILE writes",
        };
        format!("no fix: {reason} (in {count} frames); {advice}")
    }

    pub fn json(&self) -> String {
        let mut report = self.fusion.clone();
        if let Some(object) = report.as_object_mut() {
            object.remove("role");
            object.insert("nodes".into(), json!(self.nodes));
            object.insert("availability".into(), json!(self.availability()));
            object.insert("first_fix_s".into(), json!(self.first_fix_s));
            object.insert("power_dbm".into(), json!(self.power_dbm));
            object.insert("rate_hz".into(), json!(self.rate_hz));
            if let Some(clocks) = &self.clocks {
                object.insert("clocks".into(), clocks.clone());
            }
            object.insert("simulator".into(), self.simulator.clone());
            object.insert("node_summaries".into(), json!(self.node_summaries));
            object.insert("deaths".into(), json!(self.deaths));
            object.insert("failure".into(), json!(self.failure()));
        }
        report.to_string()
    }

    pub fn tables(&self) -> String {
        written(|out| self.write(out))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let fusion = &self.fusion;
        writeln!(
            out,
            "{} fixes of {} IRSs at {} dBm ({} nominal, {} degraded, {} doubtful), availability {}, first fix after {}",
            number(&fusion["fixes"]),
            self.nodes,
            self.power_dbm,
            number(&fusion["nominal"]),
            number(&fusion["degraded"]),
            number(&fusion["doubtful"]),
            self.availability().map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
            self.first_fix_s.map_or("-".into(), |s| format!("{s:.2} s")),
        )?;
        write_accuracy(out, fusion, self.targets)?;
        self.write_clocks(out)?;
        self.write_load(out)?;
        writeln!(out)?;
        write_latency(out, &fusion["latency_ms"])?;
        self.write_ledger(out)
    }

    /// What became of clocks that were not trusted.
    fn write_clocks(&self, out: &mut String) -> std::fmt::Result {
        let Some(clocks) = &self.clocks else { return Ok(()) };
        let figure = |key: &str| clocks[key].as_f64().map_or("-".into(), |value| format!("{value:.2}"));
        writeln!(
            out,
            "clocks: converged after {} frames; then offsets off by {} ns rms, NEES {} ({} is expected), gap to known clocks {} dB",
            clocks["converged_after_frames"].as_u64().map_or("-".into(), |frames| frames.to_string()),
            figure("offset_rms_ns"),
            figure("nees"),
            number(&clocks["nees_expected"]),
            figure("gap_known_db"),
        )
    }

    fn write_load(&self, out: &mut String) -> std::fmt::Result {
        let (shed, longest_ms) = (self.count("frames_shed"), self.count("longest_waiting_ms"));
        if shed == 0 && longest_ms < OVERLOAD_AGE_MS {
            return Ok(());
        }
        writeln!(
            out,
            "overloaded: of {} frames offered {shed} were shed, up to {} waited for a solver, the longest {:.2} s: \
             lower --rate",
            self.count("frames_offered"),
            self.count("most_frames_waiting"),
            longest_ms as f64 * 1e-3,
        )
    }

    fn write_ledger(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\npaths         sent    fused     late  duplicate  dropped  in flight  unaccounted  (never sent)"
        )?;
        for node in self.fusion["ledger"].as_array().into_iter().flatten() {
            let [index, sent, fused, late, duplicate, dropped, in_flight, never_sent] =
                ["index", "sent", "fused", "late", "duplicate", "dropped", "in_flight", "dropped_at_node"]
                    .map(|key| number(&node[key]));
            let unaccounted = node["unaccounted"].as_i64().unwrap_or(0);
            write!(out, "  node {index:<3} {sent:>8} {fused:>8} {late:>8} {duplicate:>10} {dropped:>8}")?;
            writeln!(out, " {in_flight:>10} {unaccounted:>12} {never_sent:>13}")?;
        }
        let unaccounted = self.fusion["unaccounted"].as_i64();
        writeln!(out, "unaccounted {}", unaccounted.map_or("not known".into(), |count| count.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(fusion: Value) -> DemoReport {
        DemoReport {
            nodes: 3,
            targets: 1,
            expected_fixes: 10,
            interrupted: false,
            first_fix_s: None,
            power_dbm: 50.0,
            rate_hz: 50.0,
            outlook: None,
            fusion,
            clocks: None,
            simulator: Value::Null,
            node_summaries: Vec::new(),
            deaths: Vec::new(),
            death_code: exit::SOFTWARE,
        }
    }

    #[test]
    fn a_demo_without_a_fix_says_why_and_fails() {
        let noise = json!({ "fixes": 0, "without_fix": 9, "frames_shed": 1,
                            "without_fix_reasons": { NO_TARGET: 7, "two places fit": 2 } });
        let silent = report(noise);
        assert_eq!(silent.exit_code(), exit::UNAVAILABLE);
        let reason = silent.failure().unwrap();
        assert!(reason.contains(NO_TARGET) && reason.contains("7 frames") && reason.contains("--power-dbm"));
        assert!(silent.tables().contains("first fix after -"));
        let expected = DemoReport { outlook: Some("this scenario cannot give a fix".into()), ..silent };
        assert!(expected.failure().unwrap().ends_with("7 frames); this scenario cannot give a fix"));
        let shed = report(json!({ "fixes": 0, "frames_shed": 10 })).failure().unwrap();
        assert!(shed.contains("shed") && shed.contains("--rate"), "{shed}");
        assert!(report(json!({ "fixes": 0 })).failure().unwrap().contains("no frame reached"));
        let stopped = DemoReport { interrupted: true, ..report(json!({ "fixes": 0 })) };
        assert_eq!((stopped.exit_code(), stopped.failure()), (exit::CLEAN, None));
    }

    #[test]
    fn a_death_is_named_whatever_the_fixes() {
        let died =
            DemoReport { deaths: vec!["node 1 died: signal: 9".into()], ..report(json!({ "fixes": 5 })) };
        assert_eq!(
            (died.exit_code(), died.failure().unwrap().as_str()),
            (exit::SOFTWARE, "node 1 died: signal: 9")
        );
        assert_eq!(report(json!({ "fixes": 5 })).exit_code(), exit::CLEAN);
    }

    #[test]
    fn intervals_and_overload_are_in_the_tables() {
        let text = report(json!({
            "fixes": 5, "gap_db": 0.1, "gap_db_interval": [-0.4, 0.6], "nees": 2.1, "nees_interval": [1.9, 2.3],
            "frames_offered": 100, "frames_shed": 3, "most_frames_waiting": 64, "longest_waiting_ms": 3200,
        }))
        .tables();
        assert!(text.contains("gap 0.10 dB (95 %: -0.40 to 0.60), NEES 2.10 (95 %: 1.90 to 2.30)"), "{text}");
        assert!(text.contains("of 100 frames offered 3 were shed, up to 64 waited"), "{text}");
        assert!(!report(json!({ "fixes": 5, "longest_waiting_ms": 80 })).tables().contains("overloaded"));
    }

    #[test]
    fn heights_have_figures_of_their_own() {
        let axis = |rms_m: f64| json!({ "rms_m": rms_m, "bound_rms_m": rms_m / 2.0, "gap_db": 6.02 });
        let text = report(json!({
            "fixes": 5, "nees": 3.1, "nees_expected": 3,
            "axes": { "x": axis(0.03), "y": axis(0.04), "z": axis(0.2) },
        }))
        .tables();
        assert!(text.contains("NEES 3.10, 3 is expected"), "{text}");
        let line = "horizontal rms 5.0 cm, bound 2.5 cm; vertical rms 20.0 cm, bound 10.0 cm";
        assert!(text.contains(line) && text.contains("x 6.02 dB, y 6.02 dB, z 6.02 dB"), "{text}");
        assert!(!report(json!({ "fixes": 5, "nees": 2.0 })).tables().contains("vertical"));
    }
}
