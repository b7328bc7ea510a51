//! None, one or several targets: their tables, their echoes, and one target as ever.

use hyloc_model::scenario::{CrossSection, Motion, Target};
use hyloc_model::{CMatrix, EchoSource, MOST_TARGETS, Movement, Point, Scenario, TrueTarget, Wavefront};
use num_complex::Complex64;

fn read(text: &str) -> Result<Scenario, String> {
    let parsed: Result<Scenario, _> = serde_json::from_str(text);
    parsed.map_err(|error| error.to_string())
}

fn walk(speed_m_per_frame: f64) -> Motion {
    Motion::Walk { speed_m_per_frame }
}

#[test]
fn a_table_a_list_and_none_are_read_and_written() {
    let one = r#"{"target": {"rcs_dbsm": 3.0, "from_frame": 5, "until_frame": 9}}"#;
    let list = r#"{"target": [{"rcs_dbsm": 3.0, "from_frame": 5, "until_frame": 9}]}"#;
    let two = r#"{"target": [{"motion": {"walk": {"speed_m_per_frame": 0.03}}}, {"rcs_dbsm": 1.0}]}"#;
    for (text, count) in [("{}", 1), (one, 1), (list, 1), (two, 2), (r#"{"target": []}"#, 0)] {
        let scenario = read(text).unwrap();
        assert_eq!((scenario.targets.len(), scenario.validate()), (count, Ok(())), "{text}");
        let written = serde_json::to_value(&scenario).unwrap();
        assert_eq!(written["target"].is_object(), count == 1, "{written}");
        assert_eq!(read(&written.to_string()).unwrap(), scenario);
    }
    assert_eq!(read(one), read(list));
    let scenario = read(two).unwrap();
    let expected =
        [Target { motion: walk(0.03), ..Target::default() }, Target { rcs_dbsm: 1.0, ..Target::default() }];
    assert_eq!(scenario.targets, expected);
    assert_eq!(scenario.rcs_m2(), Scenario::default().rcs_m2());
    assert_eq!(read(r#"{"target": []}"#).unwrap().rcs_m2(), 1.0, "that of the prior");
}

#[test]
fn what_is_no_target_is_refused() {
    for (text, part) in [
        (r#"{"target": {"size": 1.0}}"#, "unknown field `size`"),
        (r#"{"target": [{}, {"size": 1.0}]}"#, "target[1]: unknown field `size`"),
        (r#"{"target": [{}, {"motion": "spiral"}]}"#, "target[1]: unknown variant `spiral`"),
        (r#"{"target": [{}, 7]}"#, "target[1]: "),
        (r#"{"target": 7}"#, "the table of a target, or a list of such tables"),
        (r#"{"targets": []}"#, "unknown field `targets`"),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    let outside = Motion::Line { from_m: [0.0; 3], to_m: [99.0, 0.0, 0.0], frames: 3 };
    let on_an_irs = Motion::Fixed { position_m: [10.0, 50.0, 0.0] };
    let bad = [
        (Target { rcs_dbsm: f64::NAN, ..Target::default() }, "rcs_dbsm"),
        (Target { motion: outside, ..Target::default() }, "motion.line.to_m"),
        (Target { motion: on_an_irs, ..Target::default() }, "motion.fixed.position_m"),
        (Target { motion: walk(0.0), ..Target::default() }, "motion.walk.speed_m_per_frame"),
        (Target { until_frame: Some(0), ..Target::default() }, "until_frame"),
        (Target { from_frame: Some(4), until_frame: Some(4), ..Target::default() }, "until_frame"),
    ];
    for (target, key) in bad {
        let refused = |targets| Scenario { targets, ..Scenario::default() }.validate().unwrap_err().key;
        assert_eq!(refused(vec![target.clone()]), format!("target.{key}"));
        assert_eq!(refused(vec![Target::default(), target]), format!("target[1].{key}"));
    }
}

#[test]
fn there_may_be_sixteen_targets_and_no_more() {
    let with = |count| Scenario::default().with_targets(count);
    assert_eq!(with(1), Scenario::default());
    assert_eq!(with(0).targets, []);
    assert_eq!(with(3).targets, vec![Target { motion: walk(0.03), ..Target::default() }; 3]);
    assert_eq!(with(3).with_targets(1).targets, with(3).targets[..1]);
    assert_eq!((with(MOST_TARGETS).validate(), with(0).validate()), (Ok(()), Ok(())));
    for count in [MOST_TARGETS + 1, usize::MAX] {
        assert_eq!(with(count).validate().unwrap_err().key, "target");
    }
    assert_eq!(with(1).only_target(), Ok(&Target::default()));
    assert!(with(2).only_target().unwrap_err().to_string().contains("exactly one target"));
}

#[test]
fn targets_come_and_go() {
    let mut scenario = Scenario::default().with_targets(3);
    scenario.targets[0].from_frame = Some(10);
    scenario.targets[1].until_frame = Some(12);
    (scenario.targets[2].from_frame, scenario.targets[2].until_frame) = (Some(10), Some(11));
    let source = EchoSource::new(&scenario).unwrap();
    let there = |frame| source.targets(frame).iter().map(|target| target.identity).collect::<Vec<_>>();
    assert_eq!([9, 10, 11, 12].map(there), [vec![1], vec![0, 1, 2], vec![0, 1], vec![0]]);
    let movement = |t: u64| Movement {
        motion: Motion::Line { from_m: [0.0; 3], to_m: [10.0, 0.0, 0.0], frames: 100 },
        ahead_frames: 10 * t,
    };
    let moved = source.targets_on(&[movement(0), movement(1), movement(2)], 11);
    let places: Vec<_> = moved.iter().map(|target| (target.identity, target.position_m.x)).collect();
    assert_eq!(places, [(0, 1.1), (1, 2.1)]);
    assert_eq!(source.targets_on(&[], 11), []);
    // A fourth one is like the first, and always there.
    let four = source.targets_on(&[movement(0), movement(1), movement(2), movement(3)], 9);
    let known = |target: &TrueTarget| (target.identity, target.rcs_m2);
    let first_m2 = scenario.targets[0].rcs_m2();
    assert_eq!(
        four.iter().map(known).collect::<Vec<_>>(),
        [(1, scenario.targets[1].rcs_m2()), (3, first_m2)]
    );
    let none = EchoSource::new(&scenario.with_targets(0)).unwrap();
    assert_eq!((none.targets(3), none.frame_of(1, 3, &[])), (Vec::new(), none.noise(1, 3)));
}

/// Echoes add up; phases and cross-sections of targets are independent, also at the same place.
#[test]
fn targets_are_independent() {
    let mut scenario = Scenario::default().with_targets(2);
    scenario.targets[1].rcs_dbsm = 1.0;
    scenario.imperfections.cross_section = CrossSection::Swerling1;
    let source = EchoSource::new(&scenario).unwrap();
    let targets = source.targets(4);
    let noise = source.noise(0, 4);
    let echo = |targets: &[TrueTarget]| source.frame_of(0, 4, targets) - &noise;
    let sum = echo(&targets[..1]) + echo(&targets[1..]);
    assert!((echo(&targets) - &sum).norm() < 1e-12 * sum.norm());
    // At the same place with the same cross-section: uncorrelated over 200 frames of nine paths each.
    let twin = TrueTarget { identity: 1, ..targets[0] };
    let mut products = [Complex64::ZERO; 3];
    for frame in 0..200 {
        let (a, b) = (source.gains(frame, &targets[0]), source.gains(frame, &twin));
        products[0] += a.dotc(&b);
        products[1] += a.dotc(&a);
        products[2] += a.zip_map(&b, |a, b| Complex64::from(a.norm() * b.norm())).sum();
    }
    assert!(products[0].norm() < 0.1 * products[1].re, "phases: {products:?}");
    // The mean amplitude of Swerling I squared is pi / 4 of the mean power.
    assert!((products[2] / products[1]).re < 0.85, "cross-sections: {products:?}");
}

/// The random motion of the first target and its echoes are what they were when there was only one: values of release 0.2.
#[test]
fn regress_one_target_as_ever() {
    type Values = (Point, [[f64; 2]; 2]);
    let check = |scenario: &Scenario, frame: u64, (at, values): Values| {
        let source = EchoSource::new(scenario).unwrap();
        let targets = source.targets(frame);
        assert_eq!((targets.len(), targets[0].position_m, source.target_m(frame)), (1, at, at));
        let received: CMatrix = source.frame_of(2, frame, &targets);
        assert_eq!(received, source.frame(2, frame, at));
        for (found, [re, im]) in [received[(0, 0)], received[(9, 99)]].into_iter().zip(values) {
            // The mathematical library of the platform may round differently.
            assert!((found - Complex64::new(re, im)).norm() < 1e-13 * found.norm(), "{found:?}");
        }
    };
    let plain = Scenario::default();
    let at = Point::new(7.540325192932608, 5.317981389269607, 0.0);
    let corner = [-6.286457453185587e-8, -2.01700091402515e-9];
    check(&plain, 7, (at, [corner, [-3.7589565778968394e-7, 1.4342450039908668e-7]]));
    let mut unsteady = plain;
    unsteady.signal.coherent_frames = 3;
    unsteady.imperfections.cross_section = CrossSection::Swerling1;
    let mut leaky = unsteady.clone();
    leaky.imperfections.second_order_reflections = true;
    leaky.imperfections.channel_error = 0.1;
    let at = Point::new(3.882542585340316, 3.7774542507710174, 0.0);
    let corner = [-1.613260491527813e-7, 7.727708632953488e-7];
    check(&leaky, 7, (at, [corner, [-4.947437704452113e-7, 1.2300770114253933e-7]]));
    let mut high = unsteady;
    high.coverage.max_m[2] = 3.0;
    high.signal.wavefront = Wavefront::Spherical;
    let at = Point::new(3.882542585340316, 3.7774542507710174, 0.33783063641057454);
    let corner = [4.400347379481634e-7, -5.7700125214414e-7];
    check(&high, 7, (at, [corner, [-4.769901815241801e-7, 1.8541677501259284e-7]]));
}
