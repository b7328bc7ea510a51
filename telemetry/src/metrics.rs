//! Counters, gauges and histograms of a process, served to Prometheus in the OpenMetrics text format.
//!
//! A metric is a handle of `prometheus_client` that is cloned into the tasks that update it; updates are atomic and take
//! no lock. Requesting the same name and labels twice returns the same metric.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::{TypedMetric, counter, gauge, histogram};
use prometheus_client::registry::Registry;

pub use counter::Counter;
pub use histogram::Histogram;

/// A number that can increase and decrease.
pub type Gauge = gauge::Gauge<f64, AtomicU64>;

/// A sum of numbers that are not negative.
pub type Sum = Counter<f64, AtomicU64>;

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets for times, in seconds: 0.1 ms to 10 s.
const SECONDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

type Labels = Vec<(String, String)>;
type Families<M, C = fn() -> M> = BTreeMap<String, Family<Labels, M, C>>;

/// All metrics of a process.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<MetricFamilies>>);

#[derive(Debug, Default)]
struct MetricFamilies {
    registry: Registry,
    counters: Families<Counter>,
    sums: Families<Sum>,
    gauges: Families<Gauge>,
    histograms: Families<Histogram>,
}

impl Metrics {
    pub fn new() -> Self {
        Self::default()
    }

    fn families(&self) -> MutexGuard<'_, MetricFamilies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A counter, whose name ends in `_total`.
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Counter {
        let MetricFamilies { registry, counters, .. } = &mut *self.families();
        // The encoder adds the suffix.
        metric(registry, counters, name.trim_end_matches("_total"), help, labels, Counter::default)
    }

    /// A sum of numbers, whose name ends in `_total`: with the number of its summands it gives a mean over any time.
    pub fn sum(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Sum {
        let MetricFamilies { registry, sums, .. } = &mut *self.families();
        metric(registry, sums, name.trim_end_matches("_total"), help, labels, Sum::default)
    }

    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Gauge {
        let MetricFamilies { registry, gauges, .. } = &mut *self.families();
        metric(registry, gauges, name, help, labels, Gauge::default)
    }

    /// A histogram of times in seconds.
    pub fn seconds(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Histogram {
        let MetricFamilies { registry, histograms, .. } = &mut *self.families();
        metric(registry, histograms, name, help, labels, || Histogram::new(SECONDS))
    }

    /// All metrics as text.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.families().registry);
        out
    }
}

/// The metric of this name and these labels; a new family is registered.
fn metric<M>(
    registry: &mut Registry,
    families: &mut Families<M>,
    name: &str,
    help: &str,
    labels: &[(&str, &str)],
    new: fn() -> M,
) -> M
where
    M: EncodeMetric + TypedMetric + Clone + Debug + Send + Sync + 'static,
    fn() -> M: MetricConstructor<M>,
{
    let family = families.entry(name.to_owned()).or_insert_with(|| {
        let family = Family::new_with_constructor(new);
        // The encoder ends the text with a full stop.
        registry.register(name, help.trim_end_matches('.'), family.clone());
        family
    });
    // The encoder writes values as they are.
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), escaped(value))).collect();
    family.get_or_create_owned(&labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::new();
        for count in [9, 1] {
            let labels = [("node", "0"), ("fate", "fused")];
            metrics.counter("hyloc_blocks_total", "Paths.", &labels).inc_by(count);
        }
        metrics.sum("hyloc_error_square_metres_total", "Errors.", &[]).inc_by(0.25);
        metrics.gauge("hyloc_queue", "Frames waiting.", &[("who", "a\"b")]).set(-1.5);
        let times = metrics.seconds("hyloc_filter_seconds", "Time.", &[]);
        for value in [0.125, 0.25, 0.375, 20.0] {
            times.observe(value);
        }
        let text = metrics.render();
        for expected in [
            "# HELP hyloc_blocks Paths.\n# TYPE hyloc_blocks counter\n",
            "hyloc_blocks_total{node=\"0\",fate=\"fused\"} 10\n",
            "# TYPE hyloc_error_square_metres counter\nhyloc_error_square_metres_total{} 0.25\n",
            "# TYPE hyloc_queue gauge\nhyloc_queue{who=\"a\\\"b\"} -1.5\n",
            "hyloc_filter_seconds_bucket{le=\"0.25\"} 2\nhyloc_filter_seconds_bucket{le=\"0.5\"} 3\n",
            "hyloc_filter_seconds_bucket{le=\"10.0\"} 3\nhyloc_filter_seconds_bucket{le=\"+Inf\"} 4\n",
            "hyloc_filter_seconds_sum{} 20.75\nhyloc_filter_seconds_count{} 4\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
