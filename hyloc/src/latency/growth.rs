//! How latency grows with the number of IRSs: the exponent of a power law, fitted on logarithms.

/// Least-squares slope of `log y` over `log x`; none with fewer than two different x.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(x, y)| *x > 0.0 && *y > 0.0 && y.is_finite())
        .map(|(x, y)| (x.ln(), y.ln()))
        .collect();
    let count = logs.len() as f64;
    let mean = |value: &dyn Fn(&(f64, f64)) -> f64| logs.iter().map(value).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(&|p| p.0), mean(&|p| p.1));
    let spread: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let product: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    (logs.len() >= 2 && spread > 0.0).then(|| product / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_gives_its_exponent() {
        let points: Vec<(f64, f64)> = [2.0f64, 3.0, 8.0].iter().map(|&k| (k, 0.3 * k.powf(2.1))).collect();
        assert!((exponent(&points).unwrap() - 2.1).abs() < 1e-12);
        assert_eq!(exponent(&[(2.0, 1.0), (2.0, 3.0)]), None);
        assert_eq!(exponent(&[]), None);
    }
}
