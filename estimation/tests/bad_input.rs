//! No public function panics on bad input: each gives an error, nothing, or a documented neutral value.

use hyloc_estimation::angles::admm::{self, AdmmSettings};
use hyloc_estimation::angles::departure::trust_region_departure_rad;
use hyloc_estimation::angles::estimate::scaled_problem;
use hyloc_estimation::angles::extraction::{combined_rad, denoised_arrival_rad, principal_angle_rad};
use hyloc_estimation::angles::likelihood::AngleLikelihood;
use hyloc_estimation::angles::literal::{LiteralSettings, paper_literal};
use hyloc_estimation::angles::{AngleSettings, estimate_angles};
use hyloc_estimation::baselines::{Baseline, Extent};
use hyloc_estimation::delay::{
    BlockNorm, DelayEstimator, DelayWindow, MatchedFilter, NodeDelays, coherent_refinement, coverage_delays,
};
use hyloc_estimation::direct::{Combination, DirectLocator, DirectSettings, Missed};
use hyloc_estimation::fusion::{
    Estimator, FrameBlocks, Fuser, FusionSettings, Method, NodeReport, PathBlock, Payload, PayloadKind,
};
use hyloc_estimation::linalg::{ComplexLanes, Instructions, PsdProjector, triangle_index};
use hyloc_estimation::location::{
    Bearing, CascadeDelay, CoverageArea, LocateSettings, LocatorScheme, Measurements, estimate_by_scheme,
    locate,
};
use hyloc_estimation::{Blocks, model};
use model::PlanePoint;
use model::{CMatrix, CVector, EchoSource, Point, RankCase, Scenario, System};
use num_complex::Complex64;

const BAD: [f64; 7] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e300, 1e-300];

fn source(count: usize) -> EchoSource {
    EchoSource::new(&model::scenario::ring(&Scenario::default(), count).unwrap()).unwrap()
}

fn reports(source: &EchoSource) -> Vec<NodeDelays> {
    let (system, target_m) = (source.system(), source.target_m(0));
    let report = |l| DelayEstimator::new(system, l).unwrap().estimate(&source.frame(l, 0, target_m)).unwrap();
    (0..system.irs_count()).map(report).collect()
}

fn frame(source: &EchoSource, kind: PayloadKind) -> FrameBlocks {
    let mut frame = FrameBlocks::new(source.system().irs_count());
    for (l, report) in reports(source).into_iter().enumerate() {
        assert!(frame.insert_node(l, report, kind));
    }
    frame
}

fn blocks(source: &EchoSource) -> Blocks {
    let table =
        reports(source).into_iter().map(|node| node.paths.into_iter().map(|path| Some(path.block)).collect());
    Blocks::of_system(source.system(), source.system().noise_power_w, table.collect()).unwrap()
}

fn fusers(system: &System) -> Vec<Fuser> {
    let with = |method| FusionSettings { method, ..FusionSettings::default() };
    let methods = [Method::ThreeStage, Method::Direct, Method::Auto];
    methods.map(|method| Fuser::new(system.clone(), with(method)).unwrap()).into()
}

#[test]
fn frames_refuse_paths_that_do_not_exist() {
    let source = source(3);
    let report = reports(&source).remove(0);
    let mut frame = FrameBlocks::new(2);
    assert!(!frame.insert_node(0, report.clone(), PayloadKind::Block), "the third path has no place");
    assert!(!frame.insert_node(2, report, PayloadKind::Block));
    assert_eq!((frame.path(2, 0), frame.path(0, usize::MAX), frame.node(usize::MAX)), (None, None, None));
    assert_eq!(frame.present().count(), 2);
}

#[test]
fn fusers_survive_frames_of_other_systems() {
    let (three, four) = (source(3), source(4));
    for fuser in fusers(three.system()) {
        for kind in [PayloadKind::Parameters, PayloadKind::Block, PayloadKind::Spectrum] {
            let _ = fuser.estimate(&frame(&four, kind));
        }
        assert!(fuser.fuse(&FrameBlocks::new(0)).is_err() && fuser.fuse(&FrameBlocks::new(9)).is_err());
        assert!(fuser.fuse_frames(&[]).is_err());
    }
    let other = fusers(four.system());
    let survey = other[1].survey(&frame(&four, PayloadKind::Spectrum), None).unwrap();
    assert!(fusers(three.system())[1].fuse_frames(&[(0, &survey), (u64::MAX, &survey)]).is_err());
}

#[test]
fn fusers_survive_bad_values() {
    let source = source(3);
    let fusers = fusers(source.system());
    let matrix = |rows, columns, value: f64| CMatrix::repeat(rows, columns, Complex64::new(value, -value));
    for bad in BAD {
        let payloads = [
            Payload::Parameters,
            Payload::Spectrum(matrix(10, 33, bad)),
            Payload::Spectrum(matrix(0, 0, bad)),
            Payload::Block { block: matrix(10, 10, bad), block_derivative: matrix(10, 10, bad) },
            Payload::Block { block: matrix(10, 10, 1.0), block_derivative: matrix(9, 3, bad) },
        ];
        for payload in payloads {
            let arrival = Some(Bearing { bearing_rad: bad, variance_rad2: bad });
            let node = NodeReport { noise_power_w: bad, arrival, averaged_frames: 0 };
            let path = PathBlock {
                delay_s: bad,
                delay_variance_s2: bad,
                snr: bad,
                payload,
                quantisation_power_w: bad,
            };
            let mut frame = frame(&source, PayloadKind::Block);
            frame.insert(1, 2, node, path);
            for fuser in &fusers {
                let _ = fuser.fuse(&frame);
            }
        }
    }
}

#[test]
fn settings_out_of_range_do_not_panic() {
    let source = source(3);
    let frame = frame(&source, PayloadKind::Spectrum);
    for (bad, angles) in BAD.into_iter().flat_map(|bad| [(bad, false), (bad, true)]) {
        let mut settings = FusionSettings { safe_snr: bad, ..FusionSettings::default() };
        if angles {
            settings.angles.lambda = bad;
            settings.angles.admm = AdmmSettings { tolerance: bad, penalty: bad, ..AdmmSettings::default() };
        }
        settings.locate = LocateSettings {
            coverage: Some(CoverageArea { min_m: PlanePoint::repeat(bad), max_m: PlanePoint::repeat(-bad) }),
            false_alarm_probability: bad,
            integrity_risk: bad,
            most_excluded_share: bad,
        };
        settings.direct = DirectSettings {
            fault_probability: bad,
            most_excluded_share: bad,
            doubt_share: bad,
            selected_doubt_share: bad,
            doubt_probability: bad,
            integrity_risk: bad,
            ..DirectSettings::default()
        };
        for method in [Method::Auto, Method::ThreeStage, Method::Direct] {
            let settings = FusionSettings { method, ..settings.clone() };
            let fuser = Fuser::new(source.system().clone(), settings).unwrap();
            let _ = fuser.fuse(&frame);
        }
    }
}

#[test]
fn direct_locators_ignore_what_is_not_theirs() {
    let (three, four) = (source(3), source(4));
    let ours = DirectLocator::new(three.system(), DirectSettings::default()).unwrap();
    let theirs = DirectLocator::new(four.system(), DirectSettings::default()).unwrap();
    let survey = theirs.survey(theirs.evidence());
    assert_eq!(ours.locate(&survey), Err(Missed::NoEvidence));
    assert_eq!(ours.locate(&ours.survey(theirs.evidence())), Err(Missed::NoEvidence));
    assert!(ours.log_likelihood(&survey, Point::zeros()).is_nan());
    let own = fusers(three.system())[1].survey(&frame(&three, PayloadKind::Spectrum), None).unwrap();
    assert!(ours.log_likelihood(&own, Point::repeat(f64::NAN)).is_nan());
    for bad in BAD.into_iter().filter(|bad| !bad.is_finite()) {
        for (times, time, speed) in [([0.0, bad], 0.0, 0.5), ([0.0, 1.0], bad, 0.5), ([0.0, 1.0], 0.0, bad)] {
            let frames = [(times[0], &own), (times[1], &own)];
            assert!(ours.locate_frames(&frames, time, Combination::Coherent, speed).is_err());
        }
    }
    let mut evidence = ours.evidence();
    let bearing = Bearing { bearing_rad: 0.0, variance_rad2: 1e-6 };
    let delay = CascadeDelay { delay_s: 3e-7, variance_s2: 1e-18 };
    assert!(evidence.bearing(3, bearing, 1.0).is_err() && evidence.delay(0, 3, delay, 1e-7).is_err());
    assert!(evidence.spectrum(0, 0, &CMatrix::zeros(9, 33), 1.0).is_err());
}

#[test]
fn angle_functions_refuse_what_does_not_fit() {
    let source = source(3);
    let blocks = blocks(&source);
    assert!(blocks.block(3, 0).is_none() && blocks.reflected_signal(3).is_none());
    for baseline in Baseline::ALL {
        assert!(baseline.estimate(&blocks, 3, Extent::AllBlocks).is_err());
    }
    assert_eq!(combined_rad(&blocks, 9, Some(f64::NAN), None).map(f64::is_nan), Some(true));
    let problem = scaled_problem(&blocks, &[RankCase::One], &AngleSettings::default());
    let solution = admm::solve(&problem, &AdmmSettings::default()).unwrap();
    let mut other = problem.clone();
    other.departures.truncate(1);
    assert!(admm::solve(&other, &AdmmSettings::default()).is_err());
    assert_eq!(denoised_arrival_rad(&other, &solution, 0, 1.0), None);
    assert_eq!(denoised_arrival_rad(&problem, &solution, 9, 1.0), None);
    let mut empty = problem.clone();
    empty.departures[2].signal = CMatrix::zeros(0, 0);
    assert!(admm::solve(&empty, &AdmmSettings::default()).is_err());
    let likelihood = AngleLikelihood::new(&blocks);
    for angles in [vec![], vec![0.1], vec![0.1; 9], vec![f64::NAN; 3]] {
        assert!(likelihood.value(&angles).is_nan());
        likelihood.scan(&mut angles.clone());
        assert_eq!(likelihood.polish(&angles).angle_rad.len(), 3);
        assert_eq!(likelihood.polish_best([angles]).angle_rad.len(), 3);
    }
    let signal = blocks.reflected_signal(0).unwrap();
    for rows in [vec![], vec![CVector::zeros(3)], vec![CVector::repeat(10, f64::NAN.into())]] {
        assert_eq!(trust_region_departure_rad(signal, &rows, 1.0), None);
    }
    for bad in BAD {
        principal_angle_rad(&[Complex64::new(bad, bad); 3], bad);
        trust_region_departure_rad(signal, &[CVector::repeat(10, Complex64::ONE)], bad);
        denoised_arrival_rad(&problem, &solution, 0, bad);
        let _ = estimate_angles(&blocks, &AngleSettings { lambda: bad, ..AngleSettings::default() });
        let _ = paper_literal(&blocks, &LiteralSettings { lambda: bad, admm: AdmmSettings::default() });
    }
}

#[test]
fn delay_functions_refuse_what_does_not_fit() {
    let source = source(3);
    let system = source.system();
    assert!(DelayEstimator::new(system, 3).is_err() && MatchedFilter::of_system(system, 3).is_err());
    assert!(coverage_delays(system, 0, 3, 0.0).is_err() && coverage_delays(system, 0, 0, f64::NAN).is_err());
    assert!(MatchedFilter::new(CMatrix::zeros(0, 0), &[], 0, 1.0).is_err());
    let filter = MatchedFilter::of_system(system, 0).unwrap();
    let spectrum = CMatrix::repeat(10, 33, Complex64::ONE);
    for bad in BAD {
        let window = DelayWindow { min_s: bad, max_s: -bad };
        let _ = filter.search(&spectrum, &window, BlockNorm::Spectral);
        let expansion = filter.expansion(&spectrum, bad).unwrap();
        let (short, long) = (CVector::zeros(0), CVector::repeat(10, Complex64::new(bad, 0.0)));
        assert!(coherent_refinement(&expansion, &short, &long, 1.0, 1.0).is_err());
        let _ = coherent_refinement(&expansion, &long, &long, bad, bad);
        assert!(filter.effective_bandwidth_rad_s(&short).is_err());
    }
    assert!(
        filter.block(&CMatrix::zeros(0, 33), 0.0).is_err()
            && filter.block(&CMatrix::zeros(4, 4), 0.0).is_err()
    );
}

#[test]
fn locators_refuse_what_does_not_determine_a_position() {
    let nodes = vec![PlanePoint::zeros(), PlanePoint::new(10.0, 0.0), PlanePoint::zeros()];
    let delay = Some(CascadeDelay { delay_s: 1e300, variance_s2: 1e-300 });
    let bearing = Some(Bearing { bearing_rad: 1e300, variance_rad2: 1e300 });
    let tables = [(None, None), (delay, None), (None, bearing), (delay, bearing)];
    for (delay, bearing) in tables {
        let measurements = Measurements::new(nodes.clone(), vec![delay; 9], vec![bearing; 3]).unwrap();
        let _ = locate(&measurements, &LocateSettings::default());
        for scheme in LocatorScheme::ALL {
            estimate_by_scheme(scheme, &measurements);
        }
        assert_eq!((measurements.bearing(9), measurements.cascade_delay(usize::MAX, 0)), (None, None));
    }
}

#[test]
fn projections_refuse_other_orders() {
    assert!(PsdProjector::<f64>::new(0).is_none());
    let mut projector = PsdProjector::<f64>::new(5).unwrap();
    let mut smaller = vec![ComplexLanes::ZERO; triangle_index(4, 0)];
    assert!(projector.project_group(&mut smaller).is_none() && projector.project_group(&mut []).is_none());
    for instructions in [Instructions::Baseline, Instructions::Avx2, Instructions::Avx512] {
        let made = PsdProjector::<f32>::with_instructions(4, instructions);
        assert_eq!(made.is_some(), instructions.is_available());
    }
}
