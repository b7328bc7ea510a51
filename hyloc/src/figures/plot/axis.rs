//! Axes: from data to positions and ticks.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal ratios.
    Log,
}

#[derive(Debug, Clone)]
pub struct Axis {
    /// Label with unit.
    pub label: String,
    pub scale: Scale,
    /// Labelled values; chosen automatically when empty.
    pub ticks: Vec<f64>,
    /// Lower limit; by default that of the data.
    pub least: Option<f64>,
    /// Upper limit; by default that of the data.
    pub most: Option<f64>,
}

impl Axis {
    /// An axis that follows its data.
    pub fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.into(), scale, ticks: Vec::new(), least: None, most: None }
    }

    pub fn with_ticks(self, ticks: &[f64]) -> Self {
        Self { ticks: ticks.to_vec(), ..self }
    }

    pub fn within(self, least: f64, most: f64) -> Self {
        Self { least: Some(least), most: Some(most), ..self }
    }
}

/// A tick at a fraction of the axis, and its label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub at: f64,
    pub label: Option<TickLabel>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TickLabel {
    Plain(String),
    /// 10 to this power.
    PowerOfTen(i32),
}

/// An axis fitted to data.
pub(super) struct Fitted {
    scale: Scale,
    from: f64,
    to: f64,
    pub ticks: Vec<Tick>,
}

impl Fitted {
    /// Fits `axis` to `values`; those that cannot be shown are passed over.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>, margin: f64) -> Self {
        let shown = |v: &f64| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0);
        let place = |v: f64| if axis.scale == Scale::Log { v.log10() } else { v };
        let (mut from, mut to) = values
            .filter(shown)
            .map(place)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), v| (from.min(v), to.max(v)));
        if from > to {
            (from, to) = (0.0, 1.0);
        }
        let pad = if to > from { (to - from) * margin } else { 0.5 };
        from = axis.least.filter(shown).map_or(from - pad, place);
        to = axis.most.filter(shown).map_or(to + pad, place);
        let mut fitted = Self { scale: axis.scale, from, to, ticks: Vec::new() };
        fitted.ticks = fitted.chosen_ticks(axis);
        fitted
    }

    /// Fraction of the axis at which `value` lies; none where it cannot be shown.
    pub fn fraction(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log10(),
            Scale::Log => return None,
        };
        place.is_finite().then(|| (place - self.from) / (self.to - self.from))
    }

    fn chosen_ticks(&self, axis: &Axis) -> Vec<Tick> {
        if !axis.ticks.is_empty() {
            return self.labelled(&axis.ticks);
        }
        match self.scale {
            Scale::Linear => self.labelled(&even_steps(self.from, self.to)),
            Scale::Log => self.decades(),
        }
    }

    fn labelled(&self, values: &[f64]) -> Vec<Tick> {
        let ticks = values.iter().filter_map(|&value| {
            let label = Some(TickLabel::Plain(format!("{value}").replace('-', "\u{2212}")));
            Some(Tick { at: self.fraction(value)?, label })
        });
        ticks.filter(inside).collect()
    }

    /// Powers of ten labelled, their multiples marked; below two decades, multiples are labelled too.
    fn decades(&self) -> Vec<Tick> {
        let span = self.to - self.from;
        let stride = (span / 8.0).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for decade in (self.from.floor() as i32)..=(self.to.ceil() as i32) {
            let base = 10f64.powi(decade);
            let label = (decade.rem_euclid(stride) == 0).then_some(TickLabel::PowerOfTen(decade));
            ticks.extend(self.fraction(base).map(|at| Tick { at, label }));
            for multiple in (2..10).filter(|_| span < 6.0) {
                let value = base * f64::from(multiple);
                let labelled = span < 1.7 && [2, 5].contains(&multiple);
                let label = labelled.then(|| TickLabel::Plain(plain(value)));
                ticks.extend(self.fraction(value).map(|at| Tick { at, label }));
            }
        }
        ticks.into_iter().filter(inside).collect()
    }
}

fn inside(tick: &Tick) -> bool {
    (-1e-9..=1.0 + 1e-9).contains(&tick.at)
}

fn plain(value: f64) -> String {
    if value >= 0.001 { format!("{}", (value * 1e6).round() / 1e6) } else { format!("{value:.0e}") }
}

/// Five to ten round values.
fn even_steps(from: f64, to: f64) -> Vec<f64> {
    let raw = (to - from) / 7.0;
    let base = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * base).find(|s| *s >= raw).unwrap_or(base);
    let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
    let digits = 10f64.powf(-step.log10().floor().min(0.0));
    (first..=last).map(|i| (i as f64 * step * digits).round() / digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_steps_are_round() {
        assert_eq!(even_steps(0.0, 1.0), vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(even_steps(28.0, 72.0), vec![30.0, 40.0, 50.0, 60.0, 70.0]);
    }

    #[test]
    fn powers_of_ten_are_labelled_and_nothing_impossible_is_shown() {
        let axis = Axis::new("x", Scale::Log);
        let fitted = Fitted::new(&axis, [1e-3, 1.0, f64::NAN, -1.0, f64::INFINITY].into_iter(), 0.0);
        assert_eq!(fitted.fraction(1e-3), Some(0.0));
        assert_eq!(fitted.fraction(0.0), None);
        let powers: Vec<_> = fitted.ticks.iter().filter_map(|t| t.label.clone()).collect();
        assert_eq!(powers, (-3..=0).map(TickLabel::PowerOfTen).collect::<Vec<_>>());
    }
}
