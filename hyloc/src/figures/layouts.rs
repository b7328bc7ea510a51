//! Which rows become which curves of which panel.

use super::catalogue::Figure;
use super::plot::{Axis, Marker, Panel, Plot, Scale, Series, Style};
use super::rows::Row;
use super::statistics::Estimate;

const BLACK: &str = "#000000";
const GREY: &str = "#7f7f7f";
const ORANGE: &str = "#e69f00";
const SKY: &str = "#56b4e9";
const GREEN: &str = "#009e73";
const BLUE: &str = "#0072b2";
const RED: &str = "#d55e00";
const PINK: &str = "#cc79a7";
const BROWN: &str = "#8c564b";

const SOLID: &str = "";
const DASHED: &str = "6 3";
const DOTTED: &str = "1.5 3";

/// Scheme, name in the legend, colour, marker.
type Curve = (&'static str, &'static str, &'static str, Marker);

const BOUND_SCHEMES: [Curve; 5] = [
    ("hybrid", "hybrid", BLACK, Marker::Disc),
    ("angle", "angle-based", BLUE, Marker::Square),
    ("delay", "delay-based", GREEN, Marker::Triangle),
    ("no-collaboration", "no collaboration", ORANGE, Marker::Diamond),
    ("single-irs", "single IRS", RED, Marker::Cross),
];

const INFORMATION: [Curve; 3] = [
    ("information-aoa", "AOA", BLUE, Marker::OpenSquare),
    ("information-aod", "AOD", PINK, Marker::OpenDiamond),
    ("information-delay", "delay", GREEN, Marker::OpenTriangle),
];

const PROPOSED: [Curve; 4] = [
    ("proposed-polished", "proposed, polished", RED, Marker::Disc),
    ("beamformer-polished", "joint beamformer, polished", BLUE, Marker::Ring),
    ("proposed-denoised", "proposed, denoised", ORANGE, Marker::Ring),
    ("proposed-eigenvector", "proposed, eigenvector", BROWN, Marker::Square),
];

const ALL_BLOCKS: [Curve; 6] = [
    ("music-all-blocks", "MUSIC", BLUE, Marker::Triangle),
    ("root-music-all-blocks", "root-MUSIC", SKY, Marker::OpenTriangle),
    ("esprit-all-blocks", "ESPRIT", GREEN, Marker::Diamond),
    ("capon-all-blocks", "Capon", PINK, Marker::Cross),
    ("beamformer-all-blocks", "beamformer", GREY, Marker::Plus),
    ("joint-beamformer-all-blocks", "joint beamformer", GREY, Marker::OpenSquare),
];

const ONE_BLOCK: [Curve; 6] = [
    ("music-one-block", "MUSIC", BLUE, Marker::Triangle),
    ("root-music-one-block", "root-MUSIC", SKY, Marker::OpenTriangle),
    ("esprit-one-block", "ESPRIT", GREEN, Marker::Diamond),
    ("capon-one-block", "Capon", PINK, Marker::Cross),
    ("beamformer-one-block", "beamformer", GREY, Marker::Plus),
    ("joint-beamformer-one-block", "joint beamformer", GREY, Marker::OpenSquare),
];

const LITERAL_ANGLES: Curve = ("paper-literal", "paper, to the letter", BLACK, Marker::OpenDiamond);

const LOCATORS: [Curve; 8] = [
    ("ls", "LS", GREY, Marker::Cross),
    ("wls", "WLS", SKY, Marker::Plus),
    ("paper-literal", "paper, to the letter", BLACK, Marker::OpenDiamond),
    ("paper-two-stage", "two-stage, paper's form", GREEN, Marker::OpenTriangle),
    ("paper-three-stage", "three-stage, paper's form", GREEN, Marker::Triangle),
    ("two-stage", "two-stage", ORANGE, Marker::OpenSquare),
    ("three-stage", "three-stage", BLUE, Marker::Square),
    ("maximum-likelihood", "maximum likelihood", RED, Marker::Disc),
];

/// The plot of a figure from its rows.
pub fn plot(figure: Figure, rows: &[Row]) -> Plot {
    let data = Data { rows };
    let panels = match figure {
        Figure::CrbElements => {
            data.bounds_and_information("Reflecting elements N", &[4.0, 6.0, 10.0, 14.0, 20.0, 28.0, 40.0])
        }
        Figure::CrbSensors => {
            data.bounds_and_information("Sensors M", &[4.0, 6.0, 10.0, 14.0, 20.0, 28.0, 40.0])
        }
        Figure::CrbCoverage => {
            let ticks = [5.0, 10.0, 20.0, 30.0, 50.0, 80.0, 120.0, 200.0, 300.0];
            let x = Axis::new("Radius r of the area (m)", Scale::Log).with_ticks(&ticks);
            data.bounds_and_gains(&x, "median_", "(b) median against that of hybrid")
        }
        Figure::CrbIrsCount => {
            let x = Axis::new("Number of IRSs K", Scale::Linear);
            data.bounds_and_gains(&x, "", "(b) mean against that of hybrid")
        }
        Figure::AnglePower | Figure::AnglePowerFullRank => data.angles(),
        Figure::LiteralSweep => data.literal_sweep(),
        Figure::LocationPower => data.locators(&Axis::new("Transmit power (dBm)", Scale::Linear)),
        Figure::LocationDistance => {
            data.locators(&Axis::new("Abscissa d of the first two IRSs (m)", Scale::Linear))
        }
        Figure::EndToEndPower => data.end_to_end(),
        Figure::Imperfections => data.imperfections(),
        Figure::BackhaulAccuracy => data.backhaul(),
    };
    Plot { id: figure.name().into(), description: figure.caption().into(), panels }
}

struct Data<'a> {
    rows: &'a [Row],
}

impl Data<'_> {
    fn points(&self, scheme: &str, metric: &str) -> Vec<(f64, Estimate)> {
        let chosen = self.rows.iter().filter(|row| row.scheme == scheme && row.metric == metric);
        chosen.map(|row| (row.x, row.estimate)).collect()
    }

    fn curves(&self, curves: &[Curve], metric: &str, dash: &'static str) -> Vec<Series> {
        let series = |&(scheme, name, color, marker): &Curve| Series {
            name: name.into(),
            style: Style { color, dash, marker },
            points: self.points(scheme, metric),
        };
        curves.iter().map(series).collect()
    }

    /// A bound drawn as a line.
    fn bound(&self, name: &str, dash: &'static str, scheme: &str, metric: &str) -> Series {
        Series {
            name: name.into(),
            style: Style { color: BLACK, dash, marker: Marker::None },
            points: self.points(scheme, metric),
        }
    }

    fn both_bounds(&self, metric: &str) -> Vec<Series> {
        vec![
            self.bound("exact bound", SOLID, "exact-bound", metric),
            self.bound("paper's bound", DASHED, "paper-bound", metric),
        ]
    }

    /// Every scheme under both bounds: the exact solid, the paper's dashed.
    fn position_bounds(&self, x: Axis) -> Panel {
        let mut series = self.curves(&BOUND_SCHEMES, "crb_exact_m2", SOLID);
        for exact in &mut series {
            exact.name.push_str(", exact bound");
        }
        for (scheme, name, color, _) in BOUND_SCHEMES {
            series.push(Series {
                name: format!("{name}, paper's bound"),
                style: Style { color, dash: DASHED, marker: Marker::None },
                points: self.points(scheme, "crb_paper_m2"),
            });
        }
        let y = Axis::new("Mean position bound (m\u{b2})", Scale::Log);
        Panel { heading: "(a) position bound".into(), x, y, series }
    }

    fn bounds_and_information(&self, label: &str, ticks: &[f64]) -> Vec<Panel> {
        let x = || Axis::new(label, Scale::Log).with_ticks(ticks);
        let mut series = Vec::new();
        for (metric, dash, gain) in [("fisher_exact", SOLID, "exact"), ("fisher_paper", DASHED, "paper's")] {
            for mut curve in self.curves(&INFORMATION, metric, dash) {
                curve.name = format!("{} information, {gain}", curve.name);
                if dash == DASHED {
                    curve.style.marker = Marker::None;
                }
                curve.points = relative_to_first(&curve.points);
                series.push(curve);
            }
        }
        let y = Axis::new("Fisher information, relative to the first point", Scale::Log);
        let information = Panel { heading: "(b) information per path".into(), x: x(), y, series };
        vec![self.position_bounds(x()), information]
    }

    fn bounds_and_gains(&self, x: &Axis, statistic: &str, heading: &str) -> Vec<Panel> {
        let others = &BOUND_SCHEMES[3..];
        let mut series = self.curves(others, &format!("over_hybrid_exact_{statistic}db"), SOLID);
        for exact in &mut series {
            exact.name.push_str(", exact bound");
        }
        for &(scheme, name, color, _) in others {
            series.push(Series {
                name: format!("{name}, paper's bound"),
                style: Style { color, dash: DASHED, marker: Marker::None },
                points: self.points(scheme, &format!("over_hybrid_paper_{statistic}db")),
            });
        }
        let y = Axis::new("Bound above that of hybrid (dB)", Scale::Linear);
        let gains = Panel { heading: heading.into(), x: x.clone(), y, series };
        vec![self.position_bounds(x.clone()), gains]
    }

    fn angles(&self) -> Vec<Panel> {
        let panel = |heading: &str, curves: Vec<Series>| {
            let mut series = self.both_bounds("crb_rad2");
            series.extend(curves);
            Panel {
                heading: heading.into(),
                x: Axis::new("Transmit power (dBm)", Scale::Linear),
                y: Axis::new("Mean squared error of the angles (rad\u{b2})", Scale::Log).within(1e-8, 0.3),
                series,
            }
        };
        let mut all = self.curves(&PROPOSED, "mse_rad2", SOLID);
        all.extend(self.curves(&ALL_BLOCKS, "mse_rad2", DOTTED));
        let mut one = self.curves(&[LITERAL_ANGLES], "mse_rad2", SOLID);
        one.extend(self.curves(&ONE_BLOCK, "mse_rad2", DOTTED));
        vec![panel("(a) all blocks", all), panel("(b) one block, and the paper to the letter", one)]
    }

    /// Error and convergence of the printed algorithm over lambda and over rho.
    fn literal_sweep(&self) -> Vec<Panel> {
        let panel = |heading: &str, swept: &str, label: &str| {
            let curves = |metric, dash, what: &str| {
                [("full-rank", BLUE, Marker::Disc), ("table-one", RED, Marker::Square)].map(
                    |(scene, color, marker)| {
                        let name = if scene == "full-rank" { "well-conditioned S" } else { "Table I" };
                        Series {
                            name: format!("{name}, {what}"),
                            style: Style { color, dash, marker },
                            points: self.points(&format!("{scene}-{swept}"), metric),
                        }
                    },
                )
            };
            let mut series = curves("gap_exact_db", SOLID, "above the exact bound").to_vec();
            series.extend(curves("gap_paper_db", DASHED, "above the paper's bound"));
            Panel {
                heading: heading.into(),
                x: Axis::new(label, Scale::Log),
                y: Axis::new("Error above the bound (dB)", Scale::Linear),
                series,
            }
        };
        vec![
            panel("(a) weight of the fit", "lambda", "Weight lambda"),
            panel("(b) penalty, fixed", "rho", "Penalty rho"),
        ]
    }

    fn locators(&self, x: &Axis) -> Vec<Panel> {
        let mut series = self.both_bounds("crb_m2");
        series.extend(self.curves(&LOCATORS, "mse_m2", SOLID));
        let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
        let errors = Panel { heading: "(a) error".into(), x: x.clone(), y, series };
        let y = Axis::new("Error above the exact bound (dB)", Scale::Linear);
        let series = self.curves(&LOCATORS, "gap_exact_db", SOLID);
        vec![errors, Panel { heading: "(b) against the exact bound".into(), x: x.clone(), y, series }]
    }

    fn end_to_end(&self) -> Vec<Panel> {
        let x = || Axis::new("Transmit power (dBm)", Scale::Linear);
        let each = |markers: [Marker; 3], what: &str, metric| {
            let dash = if metric == "median_squared_error_m2" { DOTTED } else { SOLID };
            let mut curves = self.curves(
                &[
                    ("chain", "chain", RED, markers[0]),
                    ("chain-beamformer", "chain without ADMM", GREEN, markers[2]),
                    ("direct", "direct", BLUE, markers[1]),
                ],
                metric,
                dash,
            );
            curves.iter_mut().for_each(|curve| curve.name = format!("{}, {what}", curve.name));
            curves
        };
        let mut errors = self.both_bounds("crb_m2");
        errors.extend(each([Marker::Disc, Marker::Square, Marker::Triangle], "mean", "mse_m2"));
        errors.extend(each(
            [Marker::Ring, Marker::OpenSquare, Marker::OpenTriangle],
            "median",
            "median_squared_error_m2",
        ));
        let y = Axis::new("Squared position error (m\u{b2})", Scale::Log);
        let share =
            each([Marker::Disc, Marker::Square, Marker::Triangle], "gross errors", "gross_error_share");
        let gross = Axis::new("Share of errors above 1 m", Scale::Linear).within(-0.02, 1.0);
        vec![
            Panel { heading: "(a) error".into(), x: x(), y, series: errors },
            Panel { heading: "(b) gross errors".into(), x: x(), y: gross, series: share },
        ]
    }

    /// One panel per power; along a curve the bits per real change.
    fn backhaul(&self) -> Vec<Panel> {
        let panel = |(letter, power): (char, u32)| {
            let scheme = |kind: &str| self.points(&format!("{kind}-{power}dbm"), "gap_exact_db");
            let series = |kind: &str, name: &str, color, marker| Series {
                name: name.into(),
                style: Style { color, dash: SOLID, marker },
                points: scheme(kind),
            };
            Panel {
                heading: format!("({letter}) {power} dBm"),
                x: Axis::new("Kilobytes per fix", Scale::Log).with_ticks(&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0]),
                y: Axis::new("Error above the exact bound (dB)", Scale::Linear).within(-4.0, 12.0),
                series: vec![
                    self.bound("exact bound", SOLID, &format!("exact-bound-{power}dbm"), "gap_exact_db"),
                    self.bound("paper's bound", DASHED, &format!("paper-bound-{power}dbm"), "gap_exact_db"),
                    series("parameters", "delays and angles only", GREY, Marker::Cross),
                    series("block", "blocks", ORANGE, Marker::Square),
                    series("spectrum", "spectra", BLUE, Marker::Disc),
                ],
            }
        };
        [('a', 40), ('b', 50), ('c', 60)].into_iter().map(panel).collect()
    }

    fn imperfections(&self) -> Vec<Panel> {
        let panel = |heading: &str, x: Axis, curves: &[Curve]| {
            let scheme = curves[0].0;
            let mut series = vec![
                self.bound("exact bound, ideal system", SOLID, scheme, "crb_exact_m2"),
                self.bound("paper's bound, ideal system", DASHED, scheme, "crb_paper_m2"),
            ];
            series.extend(self.curves(curves, "mse_m2", SOLID));
            let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
            Panel { heading: heading.into(), x, y, series }
        };
        vec![
            panel(
                "(a) leaking beams, 60 dBm",
                Axis::new("Error of the channel estimate (dB)", Scale::Linear),
                &[("leakage", "leakage", BLUE, Marker::Square)],
            ),
            panel(
                "(b) clock offsets, 60 dBm",
                Axis::new("Deviation of a node's clock (ns)", Scale::Log)
                    .with_ticks(&[0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
                &[("clock-offset", "clock offset", GREEN, Marker::Triangle)],
            ),
            panel(
                "(c) cross-section",
                Axis::new("Transmit power (dBm)", Scale::Linear),
                &[
                    ("constant-cross-section", "constant cross-section", ORANGE, Marker::Ring),
                    ("fluctuating-cross-section", "fluctuating cross-section", RED, Marker::Disc),
                ],
            ),
        ]
    }
}

fn relative_to_first(points: &[(f64, Estimate)]) -> Vec<(f64, Estimate)> {
    let Some((_, first)) = points.first() else { return Vec::new() };
    let scale = first.value;
    points.iter().map(|(x, y)| (*x, y.map(|v| v / scale))).collect()
}
