//! What a demo shows at its end.

use std::fmt::Write;

use serde_json::{Value, json};

/// The outcome of a demo.
#[derive(Debug, Clone)]
pub struct DemoReport {
    /// IRSs, and node processes.
    pub nodes: usize,
    /// Fixes asked for; 0 when there was no such number.
    pub expected_fixes: u64,
    /// From the start of the first process to the first fix.
    pub first_fix_s: Option<f64>,
    /// Transmit power.
    pub power_dbm: f64,
    /// Echo frames per second.
    pub rate_hz: f64,
    /// Summary of the fusion center.
    pub fusion: Value,
    /// Summary of the simulator.
    pub simulator: Value,
    /// Summaries of the nodes; null for one that was killed.
    pub node_summaries: Vec<Value>,
}

impl DemoReport {
    /// Fixes over frames that were asked for or, in an endless demo, closed.
    fn availability(&self) -> Option<f64> {
        let number = |key: &str| self.fusion[key].as_u64().unwrap_or(0);
        let closed: u64 =
            ["fixes", "without_fix", "frames_shed", "frames_minority"].iter().map(|key| number(key)).sum();
        let frames = if self.expected_fixes > 0 { self.expected_fixes } else { closed };
        (frames > 0).then(|| number("fixes") as f64 / frames as f64)
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let mut report = self.fusion.clone();
        if let Some(object) = report.as_object_mut() {
            object.remove("role");
            object.insert("nodes".into(), json!(self.nodes));
            object.insert("availability".into(), json!(self.availability()));
            object.insert("first_fix_s".into(), json!(self.first_fix_s));
            object.insert("power_dbm".into(), json!(self.power_dbm));
            object.insert("rate_hz".into(), json!(self.rate_hz));
            object.insert("simulator".into(), self.simulator.clone());
            object.insert("node_summaries".into(), json!(self.node_summaries));
        }
        report.to_string()
    }

    /// Tables for people.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out.trim_end().to_owned()
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let fusion = &self.fusion;
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let centimetres =
            |value: &Value| value.as_f64().map_or("-".into(), |metres| format!("{:.1} cm", 100.0 * metres));
        writeln!(
            out,
            "{} fixes of {} IRSs at {} dBm ({} nominal, {} degraded), availability {}, first fix after {}",
            number(&fusion["fixes"]),
            self.nodes,
            self.power_dbm,
            number(&fusion["nominal"]),
            number(&fusion["degraded"]),
            self.availability().map_or("-".into(), |share| format!("{:.1} %", 100.0 * share)),
            self.first_fix_s.map_or("-".into(), |s| format!("{s:.2} s")),
        )?;
        writeln!(
            out,
            "rms error {}, exact bound {}, gap {}, NEES {}\n",
            centimetres(&fusion["rms_error_m"]),
            centimetres(&fusion["bound_rms_m"]),
            fusion["gap_db"].as_f64().map_or("-".into(), |gap| format!("{gap:.2} dB")),
            fusion["nees"].as_f64().map_or("-".into(), |nees| format!("{nees:.2} (2 is honest)")),
        )?;
        writeln!(out, "latency (ms)       p50      p90      p99    p99.9      max        n")?;
        for stage in fusion_center::statistics::STAGES {
            let row = &fusion["latency_ms"][stage];
            write!(out, "  {stage:<12}")?;
            for quantile in ["p50", "p90", "p99", "p999", "max"] {
                write!(out, " {:>8.3}", row[quantile].as_f64().unwrap_or(f64::NAN))?;
            }
            writeln!(out, " {:>8}", number(&row["n"]))?;
        }
        writeln!(
            out,
            "\nblocks        sent    fused     late  duplicate  dropped  in flight  unaccounted  (never sent)"
        )?;
        for node in fusion["ledger"].as_array().into_iter().flatten() {
            writeln!(
                out,
                "  node {:<3} {:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>12} {:>13}",
                number(&node["index"]),
                number(&node["sent"]),
                number(&node["fused"]),
                number(&node["late"]),
                number(&node["duplicate"]),
                number(&node["dropped"]),
                number(&node["in_flight"]),
                node["unaccounted"].as_i64().unwrap_or(0),
                number(&node["dropped_at_node"]),
            )?;
        }
        writeln!(out, "unaccounted {}", fusion["unaccounted"].as_i64().unwrap_or(0))
    }
}
