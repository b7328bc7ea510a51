//! The search: hypotheses that gain one target at a time.

use model::Point;
use model::units::SPEED_OF_LIGHT_M_S;
use nalgebra::{DMatrix, DVector};

use super::super::evidence::Evidence;
use super::super::grid::RegularGrid;
use super::super::layout::Layout;
use super::super::target_list::MOST_TARGETS;
use super::map::{Lags, inside};
use super::state::JointLikelihood;
use super::{Clocks, JointError, JointFix, JointSettings};
use crate::ascent::{Summit, climb};

/// Spacing of the grid in units of the width of the peak: half a cell along every axis loses at most a tenth of it.
const GRID_SPACING: f64 = 0.35;
/// Spacing of clock offsets in units of the width of the peak.
const LAG_SPACING: f64 = 0.35;
/// Largest number of grid points.
const MOST_POINTS: usize = 300_000;
/// Ascents from the map of the first target, and from that of every further one.
const FIRST_STARTS: usize = 24;
const LATER_STARTS: usize = 8;
/// Hypotheses that are kept until all targets are found.
const HYPOTHESES: usize = 6;
/// Rounds in which every target is searched anew.
const MOST_ROUNDS: usize = 4;
/// States closer than this are the same.
const SAME_M: f64 = 1e-3;
/// A larger log-likelihood ratio, relative to the present one, is an improvement.
const BETTER: f64 = 1e-9;

pub(super) struct Search<'a> {
    likelihood: JointLikelihood<'a>,
    settings: JointSettings,
    grid: RegularGrid,
    lags: Option<Lags>,
    /// Longest step along the free coordinates.
    longest_m: Vec<f64>,
    /// How far a target may lie outside of the volume.
    margin_m: Point,
}

impl<'a> Search<'a> {
    pub fn new(
        layout: &'a Layout,
        evidence: &'a Evidence,
        settings: &JointSettings,
    ) -> Result<Self, JointError> {
        let offsets = settings.clocks != Clocks::Known;
        let likelihood = JointLikelihood { layout, evidence, offsets };
        check(&likelihood, settings)?;
        let widths_m = widths_m(&likelihood, settings).ok_or(JointError::Unobservable)?;
        let axes = layout.axes();
        let corner = |of: &Point| -> Vec<f64> { axes.iter().map(|&axis| of[axis]).collect() };
        let (min, max) = (corner(&settings.min_m), corner(&settings.max_m));
        let mut longest: Vec<f64> = widths_m.iter().map(|width| GRID_SPACING * width).collect();
        let grid = loop {
            let grid = RegularGrid::new(min.clone(), &max, &longest);
            if grid.points() <= MOST_POINTS {
                break grid;
            }
            longest.iter_mut().for_each(|step| *step *= 1.1);
        };
        let lags = match settings.clocks {
            Clocks::Known => None,
            Clocks::Unknown { window_s } => {
                let spread = layout.spread_rad_s();
                if spread == 0.0 {
                    return Err(JointError::Unobservable);
                }
                Some(Lags::new(layout.frequencies_rad_s(), window_s, LAG_SPACING / spread))
            }
        };
        let mut margin_m = Point::zeros();
        axes.iter().zip(&widths_m).for_each(|(&axis, width)| margin_m[axis] = 0.5 * width);
        let longest_m = widths_m.iter().map(|width| 0.5 * width).collect();
        Ok(Self { likelihood, settings: *settings, grid, lags, longest_m, margin_m })
    }

    pub fn run(&self) -> Result<JointFix, JointError> {
        let mut hypotheses = self.born(&self.empty(), FIRST_STARTS);
        for _ in 1..self.settings.targets {
            let next = hypotheses.iter().flat_map(|summit| self.born(&summit.at, LATER_STARTS)).collect();
            hypotheses = self.best(next);
        }
        let mut best = hypotheses.into_iter().next().ok_or(JointError::Unobservable)?;
        for _ in 0..MOST_ROUNDS {
            let Some(better) = self.searched_anew(&best) else { break };
            best = better;
        }
        self.fix(&best)
    }

    /// The state without targets.
    fn empty(&self) -> DVector<f64> {
        DVector::zeros(self.likelihood.offset_count())
    }

    /// The best states with one target more.
    fn born(&self, state: &DVector<f64>, starts: usize) -> Vec<Summit> {
        let map = self.likelihood.map(&self.grid, state, self.lags.as_ref());
        let offsets = self.likelihood.offset_count();
        let peaks = self.grid.peaks(&map.values);
        let summits = peaks.into_iter().take(starts).map(|(point, _)| {
            let mut start = self.likelihood.with(state, &self.grid.coordinates(point));
            if let Some(offsets_m) = map.offsets_m.get(point) {
                let first = start.len() - offsets;
                start.rows_mut(first, offsets).copy_from_slice(offsets_m);
            }
            self.climb(start)
        });
        self.best(summits.collect())
    }

    /// Climbs, and again where a search over the clock offsets finds better ones.
    fn climb(&self, start: DVector<f64>) -> Summit {
        let summit = self.ascend(start);
        let Some(lags) = &self.lags else { return summit };
        let again = self.ascend(self.likelihood.retimed(&summit.at, lags));
        if again.value > summit.value { again } else { summit }
    }

    fn ascend(&self, start: DVector<f64>) -> Summit {
        let coordinates = start.len() - self.likelihood.offset_count();
        let farthest = self.longest_m.iter().copied().fold(0.0, f64::max);
        let longest = DVector::from_fn(start.len(), |i, _| {
            if i < coordinates { self.longest_m[i % self.longest_m.len()] } else { farthest }
        });
        climb(start, &longest, |state| self.likelihood.expand(state))
    }

    /// The highest distinct states, those with all targets inside first.
    fn best(&self, mut summits: Vec<Summit>) -> Vec<Summit> {
        let (min_m, max_m) = (self.settings.min_m - self.margin_m, self.settings.max_m + self.margin_m);
        let outside = |summit: &Summit| {
            let positions_m = self.likelihood.positions_m(&summit.at);
            !positions_m.iter().all(|position_m| inside(position_m, &min_m, &max_m))
        };
        summits.retain(|summit| summit.value.is_finite() && summit.at.iter().all(|v| v.is_finite()));
        summits.sort_by(|a, b| outside(a).cmp(&outside(b)).then(b.value.total_cmp(&a.value)));
        let mut kept: Vec<Summit> = Vec::new();
        for summit in summits {
            let same = |other: &Summit| (self.sorted(&other.at) - self.sorted(&summit.at)).norm() < SAME_M;
            if kept.len() < HYPOTHESES && !kept.iter().any(same) {
                kept.push(summit);
            }
        }
        kept
    }

    /// Every target searched anew against the others; none where nothing improves.
    fn searched_anew(&self, best: &Summit) -> Option<Summit> {
        let targets = self.likelihood.targets(&best.at);
        if targets < 2 {
            return None;
        }
        let tried = (0..targets)
            .flat_map(|t| self.born(&self.likelihood.without(&best.at, t), LATER_STARTS))
            .collect();
        let found = self.best(tried).into_iter().next()?;
        (found.value > best.value + BETTER * (1.0 + best.value.abs())).then_some(found)
    }

    /// The state with its targets sorted by coordinates.
    fn sorted(&self, state: &DVector<f64>) -> DVector<f64> {
        let (targets, dimensions) = (self.likelihood.targets(state), self.likelihood.dimensions());
        let mut order: Vec<&[f64]> = state.as_slice()[..targets * dimensions].chunks(dimensions).collect();
        order.sort_by(|a, b| {
            a.iter()
                .zip(*b)
                .map(|(a, b)| a.total_cmp(b))
                .find(|o| o.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let offsets = state.iter().skip(targets * dimensions);
        DVector::from_iterator(state.len(), order.into_iter().flatten().chain(offsets).copied())
    }

    fn fix(&self, summit: &Summit) -> Result<JointFix, JointError> {
        let state = self.sorted(&summit.at);
        let here = self.likelihood.expand(&state);
        let covariance = here.information.cholesky().ok_or(JointError::Unobservable)?.inverse();
        let coordinates = state.len() - self.likelihood.offset_count();
        let covariance_m2: DMatrix<f64> = covariance.view((0, 0), (coordinates, coordinates)).into_owned();
        if covariance_m2.iter().any(|v| !v.is_finite()) {
            return Err(JointError::Unobservable);
        }
        let offset = |l: usize| {
            let place = coordinates + l;
            self.likelihood.paths(l).next()?;
            let deviation_s = covariance[(place, place)].sqrt() / SPEED_OF_LIGHT_M_S;
            Some((state[place] / SPEED_OF_LIGHT_M_S, deviation_s))
        };
        Ok(JointFix {
            positions_m: self.likelihood.positions_m(&state),
            covariance_m2,
            offsets_s: (0..self.likelihood.offset_count()).map(offset).collect(),
            log_likelihood: here.value,
        })
    }
}

fn check(likelihood: &JointLikelihood, settings: &JointSettings) -> Result<(), JointError> {
    let layout = likelihood.layout;
    let JointSettings { targets, clocks, min_m, max_m } = settings;
    let axes = layout.axes();
    let extended = axes.iter().all(|&axis| max_m[axis] > min_m[axis]);
    if axes.is_empty() || !extended || min_m.iter().chain(max_m.iter()).any(|v| !v.is_finite()) {
        return Err(JointError::Volume);
    }
    if let Clocks::Unknown { window_s } = *clocks
        && !(window_s.is_finite() && window_s > 0.0)
    {
        return Err(JointError::Window { window_s });
    }
    if let Some(k) = layout.irs().iter().position(|irs| strictly_inside(&irs.centre_m, axes, settings)) {
        return Err(JointError::Inside { k });
    }
    let entries = likelihood
        .sensing()
        .flat_map(|(l, rows)| likelihood.paths(l).map(move |k| rows.len() * layout.range(k).len()))
        .min()
        .ok_or(JointError::NoEvidence)?;
    let most = MOST_TARGETS.min(entries.saturating_sub(1)).max(1);
    if !(1..=most).contains(targets) {
        return Err(JointError::Targets { targets: *targets, most, entries });
    }
    Ok(())
}

/// Whether a point lies inside the searched volume, not on its surface.
fn strictly_inside(point: &Point, axes: &[usize], settings: &JointSettings) -> bool {
    inside(point, &settings.min_m, &settings.max_m)
        && axes.iter().all(|&i| settings.min_m[i] < point[i] && point[i] < settings.max_m[i])
}

/// Width of the peak of the likelihood along every free coordinate: the distance over which an atom changes by its own
/// size, from the mean information of the paths, at the narrowest of a few points.
fn widths_m(likelihood: &JointLikelihood, settings: &JointSettings) -> Option<Vec<f64>> {
    let axes = likelihood.layout.axes();
    let dimensions = axes.len();
    let mut most = vec![0.0f64; dimensions];
    for code in 0..3usize.pow(dimensions as u32) {
        let mut code = code;
        let coordinates = axes.iter().map(|&axis| {
            let fraction = (code % 3) as f64 / 2.0;
            code /= 3;
            settings.min_m[axis] + fraction * (settings.max_m[axis] - settings.min_m[axis])
        });
        let state: Vec<f64> = coordinates.chain((0..likelihood.offset_count()).map(|_| 0.0)).collect();
        let sight = likelihood.sight(&DVector::from_vec(state), true);
        let (mut sums, mut paths) = (vec![0.0; dimensions], 0.0);
        for (l, rows) in likelihood.sensing() {
            likelihood.each_moment(&sight, l, rows, |_, moments, _| {
                let roughness = moments.roughness();
                sums.iter_mut().enumerate().for_each(|(i, sum)| *sum += roughness[(i, i)]);
                paths += 1.0;
            });
        }
        // On an IRS itself there is no information.
        most.iter_mut().zip(&sums).for_each(|(most, sum)| *most = most.max(sum / paths));
    }
    most.iter().all(|m| m.is_finite() && *m > 0.0).then(|| most.iter().map(|m| m.sqrt().recip()).collect())
}

#[cfg(test)]
mod tests {
    use model::{CMatrix, Scenario, System};

    use super::*;

    /// Up to half a width past the edge counts as inside; then the highest; each once. Too many targets are refused.
    #[test]
    fn states_inside_come_first() {
        let layout = Layout::of_system(&System::new(&Scenario::default()).unwrap());
        let mut evidence = Evidence::of_layout(&layout);
        let spectrum = CMatrix::zeros(layout.irs()[0].sensors.len(), layout.range(0).len());
        evidence.spectrum(0, 0, &spectrum, 1.0).unwrap();
        let (min_m, max_m) = (Point::new(1.0, 2.0, 0.0), Point::new(8.0, 9.0, 0.0));
        let settings = JointSettings { targets: 1, clocks: Clocks::Known, min_m, max_m };
        let search = Search::new(&layout, &evidence, &settings).unwrap();
        let margin_m = search.margin_m;
        assert!(margin_m.x > 0.01 && margin_m.y > 0.01 && margin_m.z == 0.0);
        // 16 targets at most, though a path of so many entries could separate more.
        let entries = spectrum.len();
        let checked = |targets: usize| check(&search.likelihood, &JointSettings { targets, ..settings });
        assert_eq!(checked(16), Ok(()));
        assert_eq!(checked(17), Err(JointError::Targets { targets: 17, most: 16, entries }));
        let summit =
            |at_m: Point, value: f64| Summit { at: DVector::from_row_slice(&[at_m.x, at_m.y]), value };
        let middle_m = Point::new(4.0, 5.0, 0.0);
        let found = search.best(vec![
            summit(middle_m, 1.0),
            summit(middle_m, f64::NAN),
            summit(max_m + margin_m * 1.1, 9.0),
            summit(min_m - margin_m * 1.1, 8.0),
            summit(max_m + margin_m * 0.9, 3.0),
            summit(min_m - margin_m * 0.9, 2.0),
            summit(middle_m, 1.0),
        ]);
        assert_eq!(found.iter().map(|summit| summit.value).collect::<Vec<_>>(), [3.0, 2.0, 1.0, 9.0, 8.0]);
    }
}
