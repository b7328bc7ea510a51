//! Counters, gauges and histograms in Prometheus' text format.
//!
//! A metric is a handle that is cloned into the tasks that move it; updates are atomic and lock nothing.
//! Asking twice for the same name and labels gives the same metric.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Upper ends of the buckets for times, in seconds: 0.1 ms to 10 s.
pub const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A number that only grows.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// `count` more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Where it stands.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Where it stands.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// A distribution over fixed buckets.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    ends: Vec<f64>,
    /// One per end and one for what lies beyond the last.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    fn new(ends: &[f64]) -> Self {
        let counts = (0..=ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { ends: ends.to_vec(), counts, sum: AtomicU64::new(0) }))
    }

    /// Adds one value.
    pub fn observe(&self, value: f64) {
        let bucket = self.0.ends.partition_point(|&end| end < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure never refuses.
        let _ = self.0.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Adds one duration, in seconds.
    pub fn observe_time(&self, time: Duration) {
        self.observe(time.as_secs_f64());
    }

    /// Values so far.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug, Clone)]
enum Metric {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Metric {
    fn kind(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Gauge(_) => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

#[derive(Debug)]
struct Family {
    help: String,
    kind: &'static str,
    /// By labels as they are written.
    series: BTreeMap<String, Metric>,
}

/// All metrics of a process.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<String, Family>>>);

impl Metrics {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A counter; by convention its name ends in `_total`.
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Counter {
        match self.metric(name, help, labels, Metric::Counter(Counter::default())) {
            Metric::Counter(counter) => counter,
            _ => Counter::default(),
        }
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Gauge {
        match self.metric(name, help, labels, Metric::Gauge(Gauge::default())) {
            Metric::Gauge(gauge) => gauge,
            _ => Gauge::default(),
        }
    }

    /// A histogram over `ends`, ascending.
    pub fn histogram(&self, name: &str, help: &str, labels: &[(&str, &str)], ends: &[f64]) -> Histogram {
        match self.metric(name, help, labels, Metric::Histogram(Histogram::new(ends))) {
            Metric::Histogram(histogram) => histogram,
            _ => Histogram::new(ends),
        }
    }

    /// The metric of that name and labels, `fresh` if it is new. One name has one kind: another is not kept.
    fn metric(&self, name: &str, help: &str, labels: &[(&str, &str)], fresh: Metric) -> Metric {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = fresh.kind();
        let family = families.entry(name.into()).or_insert_with(|| Family {
            help: help.into(),
            kind,
            series: BTreeMap::new(),
        });
        if family.kind != kind {
            tracing::error!(name, is = family.kind, asked = kind, "a metric cannot be of two kinds");
            return fresh;
        }
        family.series.entry(written(labels)).or_insert(fresh).clone()
    }

    /// All metrics as text.
    pub fn render(&self) -> String {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        for (name, family) in families.iter() {
            // Writing to a string cannot fail.
            let _ = write_family(&mut out, name, family);
        }
        out
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
    pairs.join(",")
}

fn write_family(out: &mut String, name: &str, family: &Family) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {}", family.help.replace('\\', "\\\\").replace('\n', "\\n"))?;
    writeln!(out, "# TYPE {name} {}", family.kind)?;
    for (labels, metric) in &family.series {
        let braces = |extra: &str| match (labels.is_empty(), extra.is_empty()) {
            (true, true) => String::new(),
            (false, true) => format!("{{{labels}}}"),
            (true, false) => format!("{{{extra}}}"),
            (false, false) => format!("{{{labels},{extra}}}"),
        };
        match metric {
            Metric::Counter(counter) => writeln!(out, "{name}{} {}", braces(""), counter.get())?,
            Metric::Gauge(gauge) => writeln!(out, "{name}{} {}", braces(""), gauge.get())?,
            Metric::Histogram(Histogram(buckets)) => {
                let mut below = 0;
                let ends = buckets.ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
                for (end, count) in ends.zip(&buckets.counts) {
                    below += count.load(Ordering::Relaxed);
                    writeln!(out, "{name}_bucket{} {below}", braces(&format!("le=\"{end}\"")))?;
                }
                let sum = f64::from_bits(buckets.sum.load(Ordering::Relaxed));
                writeln!(out, "{name}_sum{} {sum}\n{name}_count{} {below}", braces(""), braces(""))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::new();
        metrics.counter("hyloc_blocks_total", "Blocks.", &[("node", "0"), ("fate", "fused")]).add(9);
        metrics.counter("hyloc_blocks_total", "Blocks.", &[("node", "0"), ("fate", "fused")]).increment();
        metrics.gauge("hyloc_queue", "Frames \\ waiting.", &[("who", "a\"b")]).set(-1.5);
        let times = metrics.histogram("hyloc_filter_seconds", "Time.", &[], &[0.25, 0.5]);
        for value in [0.125, 0.25, 0.375, 2.0] {
            times.observe(value);
        }
        assert_eq!(times.count(), 4);
        let expected = "\
# HELP hyloc_blocks_total Blocks.
# TYPE hyloc_blocks_total counter
hyloc_blocks_total{node=\"0\",fate=\"fused\"} 10
# HELP hyloc_filter_seconds Time.
# TYPE hyloc_filter_seconds histogram
hyloc_filter_seconds_bucket{le=\"0.25\"} 2
hyloc_filter_seconds_bucket{le=\"0.5\"} 3
hyloc_filter_seconds_bucket{le=\"+Inf\"} 4
hyloc_filter_seconds_sum 2.75
hyloc_filter_seconds_count 4
# HELP hyloc_queue Frames \\\\ waiting.
# TYPE hyloc_queue gauge
hyloc_queue{who=\"a\\\"b\"} -1.5
";
        assert_eq!(metrics.render(), expected);
    }

    #[test]
    fn a_name_has_one_kind() {
        let metrics = Metrics::new();
        metrics.counter("hyloc_x", "X.", &[]).add(2);
        metrics.gauge("hyloc_x", "X.", &[]).set(7.0);
        assert!(metrics.render().ends_with("hyloc_x 2\n"));
    }
}
