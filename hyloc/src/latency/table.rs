//! Output of a latency measurement: table, CSV file, raw histograms, plot.

use std::fmt::Write;
use std::path::Path;

use hdrhistogram::serialization::V2Serializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::{MeasuredCount, plot};
use crate::commands::{write_file, written};
use crate::figures::plot::{to_png, to_svg};
use crate::figures::statistics::{Estimate, slope};

const HEADER: &str = "irs,rate_hz,stage,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,n,\
                      slope_ms_per_s,slope_low,slope_high,wait_p50_ms,utilisation";

/// The table, the judgements, and the exponent by which the fusion time grows with the number of IRSs.
pub fn markdown(all: &[MeasuredCount]) -> String {
    written(|out| write_markdown(out, all))
}

fn write_markdown(out: &mut String, all: &[MeasuredCount]) -> std::fmt::Result {
    writeln!(out, "| K | frames/s | stage | p50 (ms) | p90 | p99 | p99.9 | max | n |")?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
    for measured in all {
        for (stage, _) in measured.stages.iter() {
            let q = measured.quantiles(stage);
            writeln!(
                out,
                "| {} | {:.3} | {stage} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {} |",
                measured.nodes, measured.rate_hz, q.p50, q.p90, q.p99, q.p999, q.max, q.n
            )?;
        }
    }
    writeln!(out)?;
    for measured in all {
        let (nodes, judgement) = (measured.nodes, measured.judgement.in_words());
        let (stage, time_ms, share) = measured.limiting_stage();
        writeln!(
            out,
            "K = {nodes}: {:.3} frames a second hold: {judgement}; {stage} computes for {time_ms:.2} ms per frame at best, {:.0} % of all stages",
            measured.rate_hz,
            100.0 * share
        )?;
    }
    let fusion = all.iter().map(|measured| (measured.nodes as f64, measured.quantiles("fusion").p50));
    let positive = fusion.filter(|(nodes, p50)| *nodes > 0.0 && *p50 > 0.0);
    let logarithms: Vec<_> = positive.map(|(nodes, p50)| (nodes.ln(), Estimate::exact(p50.ln()))).collect();
    if let Some(exponent) = slope(&logarithms) {
        writeln!(out, "\nfusion p50 grows as K^{:.2}, over the rates that hold", exponent.value)?;
    }
    Ok(())
}

pub fn write(directory: &Path, all: &[MeasuredCount]) -> anyhow::Result<()> {
    let put = |name: &str, bytes: &[u8]| write_file(&directory.join(name), bytes);
    put("latency.csv", csv(all).as_bytes())?;
    let plot = plot::plot(all);
    put("latency.svg", to_svg(&plot).as_bytes())?;
    put("latency.png", &to_png(&plot)?)?;
    put("latency.md", format!("{}\n", markdown(all)).as_bytes())?;
    for measured in all {
        for (stage, histogram) in measured.stages.iter() {
            put(&format!("k{:02}-{stage}.hdr", measured.nodes), &interval_log(measured, stage, histogram)?)?;
        }
    }
    Ok(())
}

fn csv(all: &[MeasuredCount]) -> String {
    let mut out = format!("{HEADER}\n");
    for measured in all {
        for (stage, _) in measured.stages.iter() {
            let (q, j) = (measured.quantiles(stage), &measured.judgement);
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "{},{},{stage},{},{},{},{},{},{}",
                measured.nodes, measured.rate_hz, q.p50, q.p90, q.p99, q.p999, q.max, q.n
            );
            let _ = writeln!(
                out,
                ",{},{},{},{},{}",
                j.slope_ms_per_s, j.slope_low, j.slope_high, j.wait_p50_ms, j.utilisation
            );
        }
    }
    out
}

/// A histogram in nanoseconds as an HdrHistogram interval log of one interval.
fn interval_log(
    measured: &MeasuredCount,
    stage: &str,
    histogram: &hdrhistogram::Histogram<u64>,
) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut serializer = V2Serializer::new();
    let comment = format!("hyloc latency, K = {}, stage {stage}, nanoseconds", measured.nodes);
    let mut log =
        IntervalLogWriterBuilder::new().add_comment(&comment).begin_log_with(&mut bytes, &mut serializer)?;
    let length = std::time::Duration::from_secs_f64(histogram.len() as f64 / measured.rate_hz);
    log.write_histogram(histogram, std::time::Duration::ZERO, length, Tag::new(stage))
        .map_err(|_| anyhow::anyhow!("the histogram of {stage} cannot be encoded"))?;
    Ok(bytes)
}
