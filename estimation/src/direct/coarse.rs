//! Coarse search: the likelihood on a grid over the coverage area, from tables made once per system.
//!
//! Per frame each node's spectrum is beamformed at the angles of a scan (an eighth of a beam apart: 1 % of
//! the energy lost at most); after that a point costs one multiplication per node and subcarrier, in single
//! precision, whatever K: the subcarriers are shared out among the IRSs. The grid is a fifth of the
//! resolution wide, which loses 6 % of a peak at most, and reaches half a resolution past the area so that a
//! target on its edge has its peak inside. Table I: 529 points, 1.3 MB of tables.

use model::{Point, Wavefront};
use num_complex::Complex64;

use super::detection::resolution_m;
use super::evidence::{Evidence, NodeEvidence, PathEvidence};
use super::layout::View;
use super::likelihood::{bearing_term, block_row, block_term, cascade_delay_s, delay_term};
use super::moments::{beamformed, inner};
use super::posterior::Hypotheses;
use super::scene::{IrsView, Scene};

/// Grid points per resolution.
const POINTS_PER_RESOLUTION: f64 = 5.0;
/// How far past the coverage area the grid reaches, in resolutions.
const MARGIN_RESOLUTIONS: f64 = 0.5;
/// Angles of the scan per beamwidth 1 / (M s).
const ANGLES_PER_BEAM: f64 = 8.0;
/// Largest table, bytes.
const MOST_BYTES: usize = 512 << 20;
/// Number of partial sums that are computed in parallel.
const LANES: usize = 8;

/// Responses with which a node's data are beamformed: at the angles of a scan for plane waves, at every grid point for
/// spherical ones.
#[derive(Debug, Clone)]
struct Scan {
    beams: Vec<Vec<Complex64>>,
}

/// The grid with its tables.
#[derive(Debug, Clone)]
pub(super) struct CoarseGrid {
    pub min_m: Point,
    pub max_m: Point,
    pub step_m: Point,
    columns: usize,
    rows: usize,
    scans: Vec<Scan>,
    /// Per point and node: index of the beam.
    beams: Vec<u32>,
    /// Per point, node and subcarrier: what the beamformed spectrum is multiplied with.
    re: Vec<f32>,
    im: Vec<f32>,
    /// Per point and IRS.
    views: Vec<Vec<IrsView>>,
}

/// Values on the grid.
#[derive(Debug, Clone)]
pub(super) struct Values {
    /// Per point.
    pub total: Vec<f64>,
    /// Per path, row by row: its highest value on the grid.
    pub highest: Vec<f64>,
    /// Per sensing node: the highest value of its paths together.
    pub highest_sensor: Vec<f64>,
}

/// The coverage area is too large for the tables of the direct search.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "the direct search over this coverage area needs {points} points and {bytes} bytes of tables, more than {most}: \
     make the area smaller or use the three-stage method"
)]
pub struct TooLarge {
    points: usize,
    bytes: usize,
    most: usize,
}

impl CoarseGrid {
    pub fn new(scene: &Scene) -> Result<Self, TooLarge> {
        let system = scene.system();
        let resolution = resolution_m(system);
        let margin = Point::repeat(MARGIN_RESOLUTIONS * resolution);
        let min_m = Point::from(system.coverage.min_m) - margin;
        let max_m = Point::from(system.coverage.max_m) + margin;
        let size = max_m - min_m;
        let count = |length: f64| (length * POINTS_PER_RESOLUTION / resolution).ceil() as usize + 1;
        let (columns, rows) = (count(size.x), count(size.y));
        let (points, irs) = (columns.saturating_mul(rows), scene.irs_count());
        let bytes = points.saturating_mul(irs * scene.channels() * 2 * size_of::<f32>());
        if bytes > MOST_BYTES {
            return Err(TooLarge { points, bytes, most: MOST_BYTES });
        }
        let step_m = Point::new(size.x / (columns - 1) as f64, size.y / (rows - 1) as f64);
        let mut grid = Self {
            min_m,
            max_m,
            step_m,
            columns,
            rows,
            scans: Vec::new(),
            beams: Vec::with_capacity(points * irs),
            re: Vec::with_capacity(points * irs * scene.channels()),
            im: Vec::with_capacity(points * irs * scene.channels()),
            views: Vec::new(),
        };
        let mut views = Vec::new();
        let curved = system.wavefront == Wavefront::Spherical;
        if curved {
            grid.scans = vec![Scan { beams: Vec::with_capacity(points) }; irs];
        }
        for point in 0..points {
            let position_m = grid.position_m(point);
            scene.look(position_m, false, &mut views);
            grid.views.push(scene.summaries(position_m, &views));
            grid.tabulate(scene, &views);
            for (scan, view) in grid.scans.iter_mut().zip(&views) {
                scan.beams.push(view.arrival[0].clone());
                grid.beams.push(point as u32);
            }
        }
        if !curved {
            grid.scan_angles(scene);
        }
        Ok(grid)
    }

    /// Position of a grid point.
    pub fn position_m(&self, point: usize) -> Point {
        let (i, j) = (point % self.columns, point / self.columns);
        self.min_m + Point::new(i as f64 * self.step_m.x, j as f64 * self.step_m.y)
    }

    /// The grid point nearest to a position; none outside of the grid.
    pub fn nearest(&self, position_m: Point) -> Option<usize> {
        let steps = (position_m - self.min_m).component_div(&self.step_m);
        let index = |steps: f64, count: usize| {
            let rounded = steps.round();
            (rounded >= 0.0 && rounded < count as f64).then_some(rounded as usize)
        };
        Some(index(steps.y, self.rows)? * self.columns + index(steps.x, self.columns)?)
    }

    pub fn points(&self) -> usize {
        self.columns * self.rows
    }

    /// The angles of every node's scan, and the nearest of them at every point.
    fn scan_angles(&mut self, scene: &Scene) {
        let system = scene.system();
        let spacing = 1.0 / (system.sensors as f64 * system.spacing_wavelengths * ANGLES_PER_BEAM);
        let irs = scene.irs_count();
        self.beams = vec![0; self.points() * irs];
        for l in 0..irs {
            let sines = self.views.iter().map(|views| views[l].sine);
            let (lowest, highest) = sines.fold((1.0, -1.0), |(a, b): (f64, f64), s| (a.min(s), b.max(s)));
            let count = ((highest - lowest) / spacing).ceil() as usize + 1;
            let beams = (0..count).map(|i| scene.arrival(lowest + i as f64 * spacing)).collect();
            self.scans.push(Scan { beams });
            for (point, views) in self.views.iter().enumerate() {
                self.beams[point * irs + l] = ((views[l].sine - lowest) / spacing).round() as u32;
            }
        }
    }

    /// Appends the tables of a point: conjugate atoms over the subcarriers, of unit energy with the response of the sensors.
    fn tabulate(&mut self, scene: &Scene, views: &[View]) {
        for sensor in views {
            let root = (sensor.arrival[0].len() as f64).sqrt();
            for (k, reflector) in views.iter().enumerate() {
                let (own, scale) = (scene.range(k), root * reflector.strength());
                let phasors = sensor.phasors[own.clone()].iter().zip(&reflector.phasors[own]);
                for ((a, b), stream) in phasors.zip(&reflector.streams[0]) {
                    let weight = (a * b * stream).conj() / scale;
                    self.re.push(weight.re as f32);
                    self.im.push(weight.im as f32);
                }
            }
        }
    }

    /// The likelihood on the whole grid.
    pub fn values(&self, scene: &Scene, evidence: &Evidence) -> Values {
        let irs = scene.irs_count();
        let mut values = Values {
            total: vec![0.0; self.points()],
            highest: vec![f64::NEG_INFINITY; irs * irs],
            highest_sensor: vec![f64::NEG_INFINITY; irs],
        };
        let mut own = vec![0.0; self.points()];
        for (l, node) in evidence.nodes.iter().enumerate() {
            own.fill(0.0);
            self.each_value(scene, l, node, |point, k, value| {
                own[point] += value;
                if k < irs {
                    let highest = &mut values.highest[l * irs + k];
                    *highest = highest.max(value);
                }
            });
            values.highest_sensor[l] = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            values.total.iter_mut().zip(&own).for_each(|(total, own)| *total += own);
        }
        values
    }

    /// Log-likelihood ratio at every point, one value for each hypothesis per point. The prior of the hypotheses is not
    /// included, so that frames can be added.
    pub fn log_likelihoods(&self, scene: &Scene, evidence: &Evidence, hypotheses: &Hypotheses) -> Vec<f64> {
        let count = hypotheses.count();
        let mut sums = vec![0.0; count * self.points()];
        for (l, node) in evidence.nodes.iter().enumerate() {
            self.each_value(scene, l, node, |point, k, value| {
                let views = &self.views[point];
                let fitted = node.paths.get(k).is_some_and(PathEvidence::has_gain);
                let unit_snr = fitted
                    .then(|| scene.unit_snr(views[k].strength, views[l].distance_m, views[k].distance_m));
                hypotheses.add(&mut sums[point * count..(point + 1) * count], value, unit_snr);
            });
        }
        sums
    }

    /// Calls `take` with (point, k, value) for every point and term of node `l`; a bearing comes as k = K.
    fn each_value(
        &self,
        scene: &Scene,
        l: usize,
        node: &NodeEvidence,
        mut take: impl FnMut(usize, usize, f64),
    ) {
        self.each_spectrum(scene, l, node, &mut take);
        self.each_block(scene, l, node, &mut take);
        for (point, views) in self.views.iter().enumerate() {
            for (k, path) in node.paths.iter().enumerate() {
                if let Some(value) = delay_term(path, &views[l], &views[k]) {
                    take(point, k, value);
                }
            }
            if let Some(value) = bearing_term(node, &views[l]) {
                take(point, views.len(), value);
            }
        }
    }

    fn each_spectrum(
        &self,
        scene: &Scene,
        l: usize,
        node: &NodeEvidence,
        take: &mut impl FnMut(usize, usize, f64),
    ) {
        let Some(spectrum) = &node.spectrum else { return };
        let (irs, channels) = (scene.irs_count(), scene.channels());
        let beams: Vec<(Vec<f32>, Vec<f32>)> = self.scans[l]
            .beams
            .iter()
            .map(|arrival| beamformed(spectrum, arrival).iter().map(|y| (y.re as f32, y.im as f32)).unzip())
            .collect();
        let used: Vec<usize> = (0..irs).filter(|&k| node.paths[k] == PathEvidence::Spectrum).collect();
        for point in 0..self.points() {
            let at = (point * irs + l) * channels;
            let (y_re, y_im) = &beams[self.beams[point * irs + l] as usize];
            for &k in &used {
                let own = scene.range(k);
                let table = at + own.start..at + own.end;
                let energy =
                    energy((&y_re[own.clone()], &y_im[own]), (&self.re[table.clone()], &self.im[table]));
                take(point, k, f64::from(energy));
            }
        }
    }

    fn each_block(
        &self,
        scene: &Scene,
        l: usize,
        node: &NodeEvidence,
        take: &mut impl FnMut(usize, usize, f64),
    ) {
        let (irs, root) = (scene.irs_count(), (scene.system().sensors as f64).sqrt());
        for (k, path) in node.paths.iter().enumerate() {
            let PathEvidence::Block(expansion) = path else { continue };
            let beams: Vec<_> = self.scans[l]
                .beams
                .iter()
                .map(|beam| (block_row(&expansion.block, beam), block_row(&expansion.block_derivative, beam)))
                .collect();
            for (point, views) in self.views.iter().enumerate() {
                let (row, derivative) = &beams[self.beams[point * irs + l] as usize];
                let (light, width) = (&views[k].light, views[k].width_rad_s);
                let [z, turned] = [row, derivative].map(|row| inner(light, row) / root);
                let offset_s = cascade_delay_s(views[l].distance_m, views[k].distance_m) - expansion.delay_s;
                take(point, k, block_term(z, turned, width, offset_s));
            }
        }
    }

    /// Adds `values`, shifted by `shift_m` rounded to the grid; beyond the grid they are zero.
    pub fn add_shifted(&self, total: &mut [f64], values: &[f64], shift_m: Point) {
        let (di, dj) =
            ((shift_m.x / self.step_m.x).round() as isize, (shift_m.y / self.step_m.y).round() as isize);
        let (columns, rows) = (self.columns as isize, self.rows as isize);
        for j in (-dj).max(0)..(rows - dj).min(rows) {
            for i in (-di).max(0)..(columns - di).min(columns) {
                total[(j * columns + i) as usize] += values[((j + dj) * columns + i + di) as usize];
            }
        }
    }

    /// Local maxima among the eight neighbours, highest first.
    pub fn peaks(&self, total: &[f64]) -> Vec<(usize, f64)> {
        let (columns, rows) = (self.columns as isize, self.rows as isize);
        let is_peak = |point: usize| {
            let (i, j) = ((point % self.columns) as isize, (point / self.columns) as isize);
            let neighbours = (-1..=1).flat_map(|dj| (-1..=1).map(move |di| (i + di, j + dj)));
            neighbours
                .filter(|&(a, b)| (0..columns).contains(&a) && (0..rows).contains(&b) && (a, b) != (i, j))
                .all(|(a, b)| total[(b * columns + a) as usize] <= total[point])
        };
        let mut peaks: Vec<(usize, f64)> =
            (0..total.len()).filter(|&p| is_peak(p)).map(|p| (p, total[p])).collect();
        peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
        peaks
    }
}

/// `|sum y w|^2`.
fn energy((y_re, y_im): (&[f32], &[f32]), (w_re, w_im): (&[f32], &[f32])) -> f32 {
    let (mut re, mut im) = ([0f32; LANES], [0f32; LANES]);
    let chunks = y_re.chunks(LANES).zip(y_im.chunks(LANES)).zip(w_re.chunks(LANES).zip(w_im.chunks(LANES)));
    for ((a, b), (c, d)) in chunks {
        if let (Ok(a), Ok(b), Ok(c), Ok(d)) =
            (<&[f32; LANES]>::try_from(a), <&[f32; LANES]>::try_from(b), c.try_into(), d.try_into())
        {
            let (c, d): (&[f32; LANES], &[f32; LANES]) = (c, d);
            for i in 0..LANES {
                re[i] += a[i] * c[i] - b[i] * d[i];
                im[i] += a[i] * d[i] + b[i] * c[i];
            }
        } else {
            for i in 0..a.len() {
                re[i] += a[i] * c[i] - b[i] * d[i];
                im[i] += a[i] * d[i] + b[i] * c[i];
            }
        }
    }
    re.iter().sum::<f32>().powi(2) + im.iter().sum::<f32>().powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> CoarseGrid {
        CoarseGrid {
            min_m: Point::zeros(),
            max_m: Point::new(4.0, 3.0),
            step_m: Point::repeat(1.0),
            columns: 5,
            rows: 4,
            scans: Vec::new(),
            beams: Vec::new(),
            re: Vec::new(),
            im: Vec::new(),
            views: Vec::new(),
        }
    }

    #[test]
    fn peaks_are_higher_than_their_neighbours() {
        let mut total = vec![0.0; 20];
        // Two peaks, one of them in a corner, and a shoulder beside the higher one.
        (total[7], total[8], total[15]) = (5.0, 4.0, 3.0);
        let found = grid().peaks(&total);
        let above: Vec<(usize, f64)> = found.iter().copied().filter(|(_, value)| *value > 0.0).collect();
        assert_eq!(above, [(7, 5.0), (15, 3.0)]);
        // On a plateau every point counts, and beside a peak none does.
        assert!(!found.iter().any(|(point, _)| [1, 2, 3, 6, 8, 11, 12, 13, 10, 16].contains(point)));
        assert!(found.iter().any(|(point, _)| *point == 19));
    }

    #[test]
    fn points_are_found_where_they_are() {
        let grid = grid();
        for point in 0..grid.points() {
            assert_eq!(grid.nearest(grid.position_m(point) + Point::new(0.4, -0.4)), Some(point));
        }
        assert_eq!(grid.nearest(Point::new(-0.6, 1.0)), None);
        assert_eq!(grid.nearest(Point::new(1.0, 3.6)), None);
    }
}
