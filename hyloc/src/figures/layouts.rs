//! Layout of every figure: panels, axes, and the rows of each curve.

use super::catalogue::Figure;
use super::plot::{Axis, Marker, Plot, PlotPanel, Scale, Series, Style};
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
type CurveStyle = (&'static str, &'static str, &'static str, Marker);

const BOUND_NAMES: [&str; 2] = [", exact bound", ", paper's bound"];

const BOUND_SCHEMES: [CurveStyle; 5] = [
    ("hybrid", "hybrid", BLACK, Marker::Disc),
    ("angle", "angle-based", BLUE, Marker::Square),
    ("delay", "delay-based", GREEN, Marker::Triangle),
    ("no-collaboration", "no collaboration", ORANGE, Marker::Diamond),
    ("single-irs", "single IRS", RED, Marker::Cross),
];

const INFORMATION: [CurveStyle; 3] = [
    ("information-aoa", "AOA", BLUE, Marker::OpenSquare),
    ("information-aod", "AOD", PINK, Marker::OpenDiamond),
    ("information-delay", "delay", GREEN, Marker::OpenTriangle),
];

const PROPOSED: [CurveStyle; 4] = [
    ("proposed-polished", "proposed, polished", RED, Marker::Disc),
    ("beamformer-polished", "joint beamformer, polished", BLUE, Marker::Ring),
    ("proposed-denoised", "proposed, denoised", ORANGE, Marker::Ring),
    ("proposed-eigenvector", "proposed, eigenvector", BROWN, Marker::Square),
];

/// Schemes have the suffix `-all-blocks` or `-one-block`.
const BASELINES: [CurveStyle; 6] = [
    ("music", "MUSIC", BLUE, Marker::Triangle),
    ("root-music", "root-MUSIC", SKY, Marker::OpenTriangle),
    ("esprit", "ESPRIT", GREEN, Marker::Diamond),
    ("capon", "Capon", PINK, Marker::Cross),
    ("beamformer", "beamformer", GREY, Marker::Plus),
    ("joint-beamformer", "joint beamformer", GREY, Marker::OpenSquare),
];

const LITERAL_ANGLES: CurveStyle = ("paper-literal", "paper, to the letter", BLACK, Marker::OpenDiamond);

const LOCATORS: [CurveStyle; 8] = [
    ("ls", "LS", GREY, Marker::Cross),
    ("wls", "WLS", SKY, Marker::Plus),
    ("paper-literal", "paper, to the letter", BLACK, Marker::OpenDiamond),
    ("paper-two-stage", "two-stage, paper's form", GREEN, Marker::OpenTriangle),
    ("paper-three-stage", "three-stage, paper's form", GREEN, Marker::Triangle),
    ("two-stage", "two-stage", ORANGE, Marker::OpenSquare),
    ("three-stage", "three-stage", BLUE, Marker::Square),
    ("maximum-likelihood", "maximum likelihood", RED, Marker::Disc),
];

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
        Figure::NearField => data.near_field(),
        Figure::Clocks => data.clocks(),
        Figure::Separation => data.separation(),
        Figure::TrackingPower => data.tracking_power(),
    };
    Plot { id: figure.name().into(), description: figure.caption().into(), panels }
}

fn panel(heading: &str, x: Axis, y: Axis, series: Vec<Series>) -> PlotPanel {
    PlotPanel { heading: heading.into(), x, y, series }
}

struct Data<'a> {
    rows: &'a [Row],
}

impl Data<'_> {
    fn points(&self, scheme: &str, metric: &str) -> Vec<(f64, Estimate)> {
        let chosen = self.rows.iter().filter(|row| row.scheme == scheme && row.metric == metric);
        chosen.map(|row| (row.x, row.estimate)).collect()
    }

    fn series(&self, scheme: &str, metric: &str, name: String, style: Style) -> Series {
        Series { name, style, points: self.points(scheme, metric) }
    }

    /// One series per curve; `suffix` is added to its name.
    fn curves(&self, curves: &[CurveStyle], metric: &str, dash: &'static str, suffix: &str) -> Vec<Series> {
        let series = |&(scheme, name, color, marker): &CurveStyle| {
            self.series(scheme, metric, format!("{name}{suffix}"), Style { color, dash, marker })
        };
        curves.iter().map(series).collect()
    }

    /// A bound, drawn as a black line.
    fn bound(&self, name: &str, dash: &'static str, scheme: &str, metric: &str) -> Series {
        self.series(scheme, metric, name.into(), Style { color: BLACK, dash, marker: Marker::None })
    }

    fn both_bounds(&self, metric: &str) -> Vec<Series> {
        vec![
            self.bound("exact bound", SOLID, "exact-bound", metric),
            self.bound("paper's bound", DASHED, "paper-bound", metric),
        ]
    }

    /// All curves for unknown gains (exact), solid with markers, and for known gains (the paper's), dashed.
    fn exact_and_paper(&self, curves: &[CurveStyle], metrics: [&str; 2], suffixes: [&str; 2]) -> Vec<Series> {
        let mut series = self.curves(curves, metrics[0], SOLID, suffixes[0]);
        let mut paper = self.curves(curves, metrics[1], DASHED, suffixes[1]);
        paper.iter_mut().for_each(|curve| curve.style.marker = Marker::None);
        series.append(&mut paper);
        series
    }

    fn position_bounds(&self, x: Axis) -> PlotPanel {
        let series = self.exact_and_paper(&BOUND_SCHEMES, ["crb_exact_m2", "crb_paper_m2"], BOUND_NAMES);
        panel("(a) position bound", x, Axis::new("Mean position bound (m\u{b2})", Scale::Log), series)
    }

    fn bounds_and_information(&self, label: &str, ticks: &[f64]) -> Vec<PlotPanel> {
        let x = || Axis::new(label, Scale::Log).with_ticks(ticks);
        let names = [" information, exact", " information, paper's"];
        let mut series = self.exact_and_paper(&INFORMATION, ["fisher_exact", "fisher_paper"], names);
        for curve in &mut series {
            curve.points = relative_to_first(&curve.points);
        }
        let y = Axis::new("Fisher information, relative to the first point", Scale::Log);
        vec![self.position_bounds(x()), panel("(b) information per path", x(), y, series)]
    }

    fn bounds_and_gains(&self, x: &Axis, statistic: &str, heading: &str) -> Vec<PlotPanel> {
        let [exact, paper] = ["exact", "paper"].map(|gain| format!("over_hybrid_{gain}_{statistic}db"));
        let series = self.exact_and_paper(&BOUND_SCHEMES[3..], [&exact, &paper], BOUND_NAMES);
        let y = Axis::new("Bound above that of hybrid (dB)", Scale::Linear);
        vec![self.position_bounds(x.clone()), panel(heading, x.clone(), y, series)]
    }

    fn angles(&self) -> Vec<PlotPanel> {
        let angles = |heading: &str, curves: &[CurveStyle], extent: &str| {
            let mut series = self.both_bounds("crb_rad2");
            series.extend(self.curves(curves, "mse_rad2", SOLID, ""));
            series.extend(BASELINES.map(|(baseline, name, color, marker)| {
                let style = Style { color, dash: DOTTED, marker };
                self.series(&format!("{baseline}-{extent}"), "mse_rad2", name.into(), style)
            }));
            let y = Axis::new("Mean squared error of the angles (rad\u{b2})", Scale::Log).within(1e-8, 0.3);
            panel(heading, Axis::new("Transmit power (dBm)", Scale::Linear), y, series)
        };
        vec![
            angles("(a) all blocks", &PROPOSED, "all-blocks"),
            angles("(b) one block, and the paper to the letter", &[LITERAL_ANGLES], "one-block"),
        ]
    }

    /// Error and convergence of the printed algorithm over lambda and over rho.
    fn literal_sweep(&self) -> Vec<PlotPanel> {
        let sweep = |schemes: [&'static str; 2], x: &str, heading: &str| {
            let curves = [
                (schemes[0], "well-conditioned S", BLUE, Marker::Disc),
                (schemes[1], "Table I", RED, Marker::Square),
            ];
            let mut series = self.curves(&curves, "gap_exact_db", SOLID, ", above the exact bound");
            series.extend(self.curves(&curves, "gap_paper_db", DASHED, ", above the paper's bound"));
            let y = Axis::new("Error above the bound (dB)", Scale::Linear);
            panel(heading, Axis::new(x, Scale::Log), y, series)
        };
        vec![
            sweep(["full-rank-lambda", "table-one-lambda"], "Weight lambda", "(a) weight of the fit"),
            sweep(["full-rank-rho", "table-one-rho"], "Penalty rho", "(b) penalty, fixed"),
        ]
    }

    fn locators(&self, x: &Axis) -> Vec<PlotPanel> {
        let mut series = self.both_bounds("crb_m2");
        series.extend(self.curves(&LOCATORS, "mse_m2", SOLID, ""));
        let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
        let errors = panel("(a) error", x.clone(), y, series);
        let y = Axis::new("Error above the exact bound (dB)", Scale::Linear);
        let series = self.curves(&LOCATORS, "gap_exact_db", SOLID, "");
        vec![errors, panel("(b) against the exact bound", x.clone(), y, series)]
    }

    fn end_to_end(&self) -> Vec<PlotPanel> {
        const FILLED: [Marker; 3] = [Marker::Disc, Marker::Square, Marker::Triangle];
        const OPEN: [Marker; 3] = [Marker::Ring, Marker::OpenSquare, Marker::OpenTriangle];
        let each = |markers: [Marker; 3], suffix: &str, metric, dash| {
            let curves = [
                ("chain", "chain", RED, markers[0]),
                ("chain-beamformer", "chain without ADMM", GREEN, markers[2]),
                ("direct", "direct", BLUE, markers[1]),
            ];
            self.curves(&curves, metric, dash, suffix)
        };
        let mut errors = self.both_bounds("crb_m2");
        errors.extend(each(FILLED, ", mean", "mse_m2", SOLID));
        errors.extend(each(OPEN, ", median", "median_squared_error_m2", DOTTED));
        let shares = each(FILLED, ", gross errors", "gross_error_share", SOLID);
        let x = || Axis::new("Transmit power (dBm)", Scale::Linear);
        let y = Axis::new("Squared position error (m\u{b2})", Scale::Log);
        let gross = Axis::new("Share of errors above 1 m", Scale::Linear).within(-0.02, 1.0);
        vec![panel("(a) error", x(), y, errors), panel("(b) gross errors", x(), gross, shares)]
    }

    /// One panel per power; along a curve the bits per real change.
    fn backhaul(&self) -> Vec<PlotPanel> {
        let payloads = |(letter, power): (char, u32)| {
            let scheme = |kind: &str| format!("{kind}-{power}dbm");
            let series = |kind: &str, name: &str, color, marker| {
                self.series(&scheme(kind), "gap_exact_db", name.into(), Style { color, dash: SOLID, marker })
            };
            let all = vec![
                self.bound("exact bound", SOLID, &scheme("exact-bound"), "gap_exact_db"),
                self.bound("paper's bound", DASHED, &scheme("paper-bound"), "gap_exact_db"),
                series("parameters", "delays and angles only", GREY, Marker::Cross),
                series("block", "blocks", ORANGE, Marker::Square),
                series("spectrum", "spectra", BLUE, Marker::Disc),
            ];
            let x = Axis::new("Kilobytes per fix", Scale::Log).with_ticks(&[1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
            let y = Axis::new("Error above the exact bound (dB)", Scale::Linear).within(-4.0, 12.0);
            panel(&format!("({letter}) {power} dBm"), x, y, all)
        };
        [('a', 40), ('b', 50), ('c', 60)].map(payloads).into()
    }

    fn near_field(&self) -> Vec<PlotPanel> {
        let x = || {
            let ticks = [6.0, 10.0, 14.0, 20.0, 28.0, 40.0];
            Axis::new("Elements and sensors N = M", Scale::Log).with_ticks(&ticks)
        };
        let mut errors = vec![
            self.bound("exact bound, spherical waves", SOLID, "bound-spherical", "crb_m2"),
            self.bound("exact bound if waves were plane", DASHED, "bound-plane", "crb_m2"),
        ];
        let located = [
            ("located-spherical", "located with spherical waves", BLUE, Marker::Disc),
            ("located-plane", "located with plane waves", RED, Marker::Square),
        ];
        errors.extend(self.curves(&located, "mse_m2", SOLID, ""));
        let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
        let single = [
            ("single-irs-spherical", "single IRS, spherical waves", BLUE, Marker::Disc),
            ("single-irs-plane", "single IRS, plane waves", RED, Marker::Square),
        ];
        let over = Axis::new("Bound above that of three IRSs (dB)", Scale::Linear);
        let shares = self.curves(&located[1..], "gross_error_share", SOLID, ", errors above 1 m");
        let matched = [("plane", "energy that plane waves match", GREEN, Marker::Triangle)];
        let matched = self.curves(&matched, "matched_energy_share", SOLID, "");
        let share = Axis::new("Share", Scale::Linear).within(-0.02, 1.02);
        vec![
            panel("(a) error", x(), y, errors),
            panel("(b) single IRS", x(), over, self.curves(&single, "over_hybrid_db", SOLID, "")),
            panel("(c) plane waves", x(), share, matched.into_iter().chain(shares).collect()),
        ]
    }

    fn clocks(&self) -> Vec<PlotPanel> {
        let x = || {
            let ticks = [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];
            Axis::new("Largest clock offset (ns)", Scale::Log).with_ticks(&ticks)
        };
        let located = [
            ("trusted", "clocks trusted", RED, Marker::Square),
            ("one-frame", "unknown, one frame", ORANGE, Marker::Triangle),
            ("filtered", "unknown, ten frames", BLUE, Marker::Disc),
        ];
        let mut errors = vec![
            self.bound("exact bound, known clocks", SOLID, "bound-known", "crb_m2"),
            self.bound("exact bound, one frame", DASHED, "bound-one-frame", "crb_m2"),
            self.bound("exact bound, ten frames", DOTTED, "bound-filtered", "crb_m2"),
        ];
        errors.extend(self.curves(&located, "mse_m2", SOLID, ""));
        let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
        let mut over = vec![
            self.bound("exact bound, one frame", DASHED, "bound-one-frame", "over_known_db"),
            self.bound("exact bound, ten frames", DOTTED, "bound-filtered", "over_known_db"),
        ];
        over.extend(self.curves(&located, "over_known_db", SOLID, ""));
        let above = Axis::new("Above the bound of known clocks (dB)", Scale::Linear).within(-1.0, 6.0);
        vec![panel("(a) error", x(), y, errors), panel("(b) cost of the clocks", x(), above, over)]
    }

    fn separation(&self) -> Vec<PlotPanel> {
        let x = || {
            Axis::new("Distance of the two targets (m)", Scale::Log)
                .with_ticks(&[0.5, 1.0, 2.0, 3.0, 4.0, 6.0])
        };
        let located = [("located", "located", BLUE, Marker::Disc)];
        let mut errors = vec![
            self.bound("exact bound, both targets", SOLID, "joint-bound", "crb_m2"),
            self.bound("exact bound, one target", DASHED, "single-bound", "crb_m2"),
        ];
        errors.extend(self.curves(&located, "mse_m2", SOLID, ""));
        let kept = [("located", "located, without errors above 1 m", SKY, Marker::Ring)];
        errors.extend(self.curves(&kept, "mse_without_gross_m2", DOTTED, ""));
        let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
        let right = [("located", "right number", GREEN, Marker::Triangle)];
        let mut shares = self.curves(&right, "right_number_share", SOLID, "");
        let unresolved = [("located", "one target, unresolved", ORANGE, Marker::Square)];
        shares.extend(self.curves(&unresolved, "unresolved_share", SOLID, ""));
        let share = Axis::new("Share of the scenes", Scale::Linear).within(-0.02, 1.02);
        vec![panel("(a) error", x(), y, errors), panel("(b) number of targets", x(), share, shares)]
    }

    fn tracking_power(&self) -> Vec<PlotPanel> {
        let x = || Axis::new("Transmit power (dBm)", Scale::Linear);
        let curves = [
            ("single-frames", "single frames", GREY, Marker::Cross),
            ("stone-soup", "Stone Soup, JPDA on single frames", ORANGE, Marker::Square),
            ("tracks", "tracks in the signals", BLUE, Marker::Disc),
        ];
        let mut distances =
            vec![self.bound("posterior bound, exact information", DASHED, "posterior-bound", "gospa_m")];
        distances.extend(self.curves(&curves, "gospa_m", SOLID, ""));
        let y = Axis::new("GOSPA (m)", Scale::Log);
        let share = Axis::new("Share of the targets", Scale::Linear).within(-0.02, 1.02);
        let shares = self.curves(&curves, "target_share", SOLID, "");
        vec![panel("(a) GOSPA", x(), y, distances), panel("(b) targets shown", x(), share, shares)]
    }

    fn imperfections(&self) -> Vec<PlotPanel> {
        let errors = |heading: &str, x: Axis, curves: &[CurveStyle]| {
            let scheme = curves[0].0;
            let mut series = vec![
                self.bound("exact bound, ideal system", SOLID, scheme, "crb_exact_m2"),
                self.bound("paper's bound, ideal system", DASHED, scheme, "crb_paper_m2"),
            ];
            series.extend(self.curves(curves, "mse_m2", SOLID, ""));
            let y = Axis::new("Mean squared position error (m\u{b2})", Scale::Log);
            panel(heading, x, y, series)
        };
        vec![
            errors(
                "(a) leaking beams, 60 dBm",
                Axis::new("Error of the channel estimate (dB)", Scale::Linear),
                &[("leakage", "leakage", BLUE, Marker::Square)],
            ),
            errors(
                "(b) clock offsets, 60 dBm",
                Axis::new("Deviation of a node's clock (ns)", Scale::Log)
                    .with_ticks(&[0.01, 0.03, 0.1, 0.3, 1.0, 3.0]),
                &[("clock-offset", "clock offset", GREEN, Marker::Triangle)],
            ),
            errors(
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
