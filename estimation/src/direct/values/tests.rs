use model::Point;

use crate::direct::likelihood::terms;
use crate::direct::test_scene::{KINDS, Kind, TARGET_M, TestScene};
use crate::direct::{DirectLocator, Evidence};

/// At every point of the grid, path by path: delays and bearings exactly, spectra and blocks up to what beams of an eighth
/// of a beamwidth lose on the flank of a peak.
#[test]
fn values_on_the_grid_are_those_of_the_likelihood() {
    let TestScene { locator, source } = &TestScene::new(50.0);
    let (grid, irs) = (&locator.grid, source.system().irs_count());
    for kind in KINDS {
        let evidence = TestScene::new(50.0).evidence(0, TARGET_M, |_, _| kind);
        let values = grid.values(&locator.scene, &evidence);
        let mut highest = vec![f64::NEG_INFINITY; irs * (irs + 1)];
        let mut highest_sensor = vec![f64::NEG_INFINITY; irs];
        let mut total = Vec::new();
        for point in 0..grid.points() {
            let at = locator.position_m(&grid.places.coordinates(point));
            let mut own = vec![0.0; irs];
            for term in terms(&locator.scene, &evidence, at.into(), false, &mut Default::default()) {
                let path = &mut highest[term.sensor * (irs + 1) + term.reflector];
                *path = path.max(term.value());
                own[term.sensor] += term.value();
            }
            total.push(own.iter().sum::<f64>());
            highest_sensor.iter_mut().zip(own).for_each(|(highest, own)| *highest = highest.max(own));
        }
        let tolerance = if kind == Kind::Delay { 1e-12 } else { 0.1 };
        let top = total.iter().copied().fold(0.0, f64::max);
        for (found, exact) in values.total.iter().zip(&total) {
            assert!((found - exact).abs() < tolerance * top, "{kind:?}: {found} {exact} of {top}");
        }
        for (l, exact) in highest_sensor.iter().enumerate() {
            assert!((values.highest_sensor[l] / exact - 1.0).abs() < tolerance, "{kind:?}: node {l}");
            for k in 0..irs {
                let ratio = values.highest[l * irs + k] / highest[l * (irs + 1) + k];
                assert!((ratio - 1.0).abs() < tolerance, "{kind:?}: path ({l}, {k}) {ratio}");
            }
        }
    }
}

/// A target somewhere in the area.
fn place_m(scene: &TestScene, i: u64) -> Point {
    let part = |step: f64| ((i as f64 + 1.0) * step).fract();
    scene.source.system().coverage.at_height(part(0.618_034), part(0.754_878), part(0.569_840))
}

/// Evidence of all kinds, of which the clock of one node is wrong every other time.
fn frames(scene: &TestScene, count: u64) -> impl Iterator<Item = Evidence> {
    type Delivered = fn(usize, usize) -> Kind;
    let delivered: [Delivered; 3] = [
        |_, _| Kind::Spectrum,
        |l, k| KINDS[(l + k) % 3],
        |l, k| [Kind::Spectrum, Kind::Missing, Kind::Spectrum, Kind::Spectrum][(2 * l + k) % 4],
    ];
    (0..count).map(move |frame| {
        let kind = delivered[frame as usize % 3];
        let mut evidence = scene.evidence(frame, place_m(scene, frame), kind);
        if frame % 2 == 1 {
            evidence.nodes[1].retime(-20e-9, &scene.locator.scene.layout().phasors(-20e-9));
        }
        evidence
    })
}

/// What the search leaves out is below its limit, and its highest values are those of the whole grid: from noise alone to echoes almost
/// without noise, for all kinds of evidence, with faults, in the plane and in space.
#[test]
fn what_is_left_out_does_not_matter() {
    let plane = [0.0, 30.0, 40.0, 50.0, 60.0, 90.0].map(|power| (TestScene::new(power), 6));
    for (scene, count) in plane.into_iter().chain([(TestScene::hall(), 3)]) {
        let (locator, grid) = (&scene.locator, &scene.locator.grid);
        for evidence in frames(&scene, count) {
            let least = locator.least_loss(&evidence);
            let all = grid.values(&locator.scene, &evidence);
            let found = grid.searched_values(&locator.scene, &evidence, least);
            for (found, exact) in found.highest.iter().zip(&all.highest) {
                assert!(found == exact || found < exact && *exact <= least, "{found} {exact} {least}");
            }
            let spectra_alone = evidence.spectra() == evidence.present_paths();
            for (found, exact) in found.highest_sensor.iter().zip(&all.highest_sensor) {
                let low = found < exact && *exact <= least && spectra_alone;
                assert!(found == exact || low, "{found} {exact} {least}");
            }
            let top = all.total.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!(found.limit <= grid.least_peak(top) && found.limit <= top - 19.7);
            for (found_here, exact) in found.total.iter().zip(&all.total) {
                let bounded = exact <= found_here && *found_here <= found.limit;
                assert!(found_here == exact || bounded, "{found_here} {exact} {}", found.limit);
            }
        }
    }
}

/// The share of the products that are computed, over eight frames of spectra; a quarter of the points in the plane is the first level.
#[test]
fn most_is_left_out() {
    let plane = [(40.0, 0.45), (50.0, 0.32), (60.0, 0.31)].map(|(power, most)| (TestScene::new(power), most));
    for (scene, most) in plane.into_iter().chain([(TestScene::hall(), 0.46)]) {
        let DirectLocator { scene: known, grid, .. } = &scene.locator;
        let (mut computed, mut all) = (0, 0);
        for frame in 0..8 {
            let evidence = scene.evidence(frame, place_m(&scene, frame), |_, _| Kind::Spectrum);
            let least = scene.locator.least_loss(&evidence);
            computed += grid.searched_values(known, &evidence, least).computed;
            all += grid.values(known, &evidence).computed;
        }
        let share = computed as f64 / all as f64;
        assert!((most - 0.05..most).contains(&share), "{share}, at most {most}");
    }
}

/// A fix is the same whether the likelihood was computed where it matters or everywhere.
#[test]
fn fixes_are_those_of_the_whole_grid() {
    for power in [37.0, 40.0, 50.0, 60.0] {
        let scene = TestScene::new(power);
        for evidence in frames(&scene, 12) {
            let [some, all] = [0, 1].map(|_| scene.locator.survey(evidence.clone()));
            scene.locator.all_values(&all);
            assert_eq!(scene.locator.locate(&some), scene.locator.locate(&all), "{power} dBm");
        }
    }
}
