mod hostile;

use super::*;
use estimation::fusion::{NodeReport, PathBlock, Payload};
use proto::convert::WireError;

/// A report of run 1 with these paths.
pub(crate) fn report(frame: u64, paths: &[usize]) -> Report {
    let path = PathBlock {
        delay_s: 1e-7,
        delay_variance_s2: 1.0,
        snr: 1.0,
        payload: Payload::Parameters,
        quantisation_power_w: 0.0,
    };
    Report {
        frame: FrameId { run: 1, frame },
        node: NodeReport { noise_power_w: 1.0, arrival: None, averaged_frames: 1 },
        bytes: 100,
        paths: paths.iter().map(|k| (*k, path.clone())).collect(),
        refused: Vec::new(),
        times: Times::default(),
        blocks_sent: 0,
        blocks_dropped: 0,
        resent: false,
    }
}

fn connected(count: usize) -> Assembler<()> {
    let mut assembler = Assembler::new(count, 100);
    (0..count).for_each(|l| assert!(assembler.set_connected(l, true, 0).is_empty()));
    assembler
}

fn three() -> Assembler<()> {
    connected(3)
}

const ALL: &[usize] = &[0, 1, 2];

fn frames(assembled: &[Assembled<()>]) -> Vec<(u64, Closing)> {
    assembled.iter().map(|a| (a.frame.frame, a.closing)).collect()
}

#[test]
fn a_frame_closes_with_its_last_node_whatever_the_order() {
    let mut assembler = three();
    for l in [2, 0] {
        assert!(assembler.offer(l, report(4, ALL), 10, ()).unwrap().is_empty());
    }
    let closed = assembler.offer(1, report(4, ALL), 30, ()).unwrap();
    assert_eq!(frames(&closed), [(4, Closing::Complete)]);
    assert_eq!((closed[0].first_ns, closed[0].last_ns), (10, 30));
    assert_eq!(closed[0].blocks.present().count(), 9);
}

#[test]
fn the_deadline_closes_with_what_is_there() {
    let mut assembler = three();
    assembler.offer(0, report(0, ALL), 10, ()).unwrap();
    assembler.offer(1, report(0, ALL), 20, ()).unwrap();
    assert_eq!(assembler.next_deadline_ns(), Some(120));
    assert!(assembler.close_due(119).is_empty());
    assert_eq!(frames(&assembler.close_due(120)), [(0, Closing::Overdue)]);
    let late = assembler.offer(2, report(0, ALL), 120, ()).unwrap_err();
    assert_eq!(late.fates, Fates { late: 3, ..Fates::default() });
    let twice = assembler.offer(1, report(0, &[0, 1]), 120, ()).unwrap_err();
    assert_eq!(twice.fates, Fates { duplicate: 2, ..Fates::default() });
    let again = assembler.offer(1, Report { resent: true, ..report(0, ALL) }, 120, ()).unwrap_err();
    assert_eq!((again.fates.total(), again.repeated), (0, 3));
}

#[test]
fn a_node_that_goes_is_not_waited_for() {
    let mut assembler = three();
    assembler.offer(0, report(0, ALL), 10, ()).unwrap();
    assembler.offer(1, report(0, ALL), 20, ()).unwrap();
    assert_eq!(frames(&assembler.set_connected(2, false, 25)), [(0, Closing::Complete)]);
    assembler.offer(0, report(1, ALL), 30, ()).unwrap();
    assert_eq!(frames(&assembler.offer(1, report(1, ALL), 31, ()).unwrap()), [(1, Closing::Complete)]);
}

#[test]
fn a_silent_node_is_not_waited_for_until_it_speaks() {
    let mut assembler = three();
    for frame in 0..3 {
        assembler.offer(0, report(frame, ALL), 1000 * frame, ()).unwrap();
        assembler.offer(1, report(frame, ALL), 1000 * frame, ()).unwrap();
        assert_eq!(frames(&assembler.close_due(1000 * frame + 100)), [(frame, Closing::Overdue)]);
    }
    assembler.offer(0, report(3, ALL), 5000, ()).unwrap();
    assert_eq!(frames(&assembler.offer(1, report(3, ALL), 5001, ()).unwrap()), [(3, Closing::Complete)]);
    assembler.offer(2, report(4, ALL), 6000, ()).unwrap();
    assembler.offer(0, report(4, ALL), 6000, ()).unwrap();
    assert_eq!(assembler.open_frames(), 1, "all three are waited for again");
}

#[test]
fn a_complete_frame_closes_those_before_it_in_order() {
    let mut assembler = three();
    assembler.offer(0, report(0, ALL), 0, ()).unwrap();
    assembler.offer(1, report(0, ALL), 0, ()).unwrap();
    for l in 0..2 {
        assembler.offer(l, report(1, ALL), 1, ()).unwrap();
    }
    let closed = assembler.offer(2, report(1, ALL), 2, ()).unwrap();
    assert_eq!(frames(&closed), [(0, Closing::Overdue), (1, Closing::Complete)]);
}

#[test]
fn made_up_frame_numbers_spoil_no_other() {
    let mut assembler = three();
    assembler.offer(2, report(u64::MAX, ALL), 0, ()).unwrap();
    assembler.offer(0, report(7, ALL), 90, ()).unwrap();
    assert_eq!(frames(&assembler.close_due(100)), [(u64::MAX, Closing::Ahead)]);
    assembler.offer(1, report(7, ALL), 100, ()).unwrap();
    assert_eq!(frames(&assembler.offer(2, report(7, ALL), 101, ()).unwrap()), [(7, Closing::Complete)]);
}

#[test]
fn a_new_run_begins_at_zero() {
    let mut assembler = three();
    for l in 0..3 {
        let _ = assembler.offer(l, report(9, ALL), 0, ()).unwrap();
    }
    let next = Report { frame: FrameId { run: 2, frame: 0 }, ..report(0, ALL) };
    assert!(assembler.offer(0, next, 1, ()).is_ok());
    assert!(assembler.offer(0, report(3, ALL), 1, ()).is_err(), "the old run is over");
}

#[test]
fn a_block_that_comes_twice_counts_once() {
    let mut assembler = three();
    assembler.offer(0, report(0, ALL), 0, ()).unwrap();
    assembler.offer(0, report(0, &[1]), 1, ()).unwrap();
    let closed = assembler.close_all();
    let fates: Vec<Fates> = closed[0].members.iter().map(|member| member.fates).collect();
    assert_eq!((fates[0].fused, fates[1].duplicate), (3, 1));
}

/// What each report adds to a frame, in every figure that its acknowledgement and the timings are made of.
#[test]
fn members_tell_what_each_report_added() {
    let mut assembler = three();
    let refused = vec![WireError::Foreign { node: 0, l: 1, k: 1 }; 2];
    let times = Times { intended_ns: 1, received_ns: 2, filtered_ns: 3, sent_ns: 4 };
    assembler.offer(0, Report { refused, times, ..report(0, &[2]) }, 5, ()).unwrap();
    assembler.offer(0, Report { resent: true, ..report(0, ALL) }, 6, ()).unwrap();
    assembler.offer(0, Report { resent: true, ..report(0, &[0, 1]) }, 7, ()).unwrap();
    assembler.offer(0, report(0, &[1, 2]), 8, ()).unwrap();
    let closed = assembler.close_all();
    let member = |fates, repeated, times, received_ns| (0, fates, repeated, times, 100, received_ns);
    let told: Vec<_> = closed[0]
        .members
        .iter()
        .map(|m| (m.node, m.fates, m.repeated, m.times, m.bytes, m.received_ns))
        .collect();
    let none = Fates::default();
    assert_eq!(
        told,
        [
            member(Fates { fused: 1, dropped: 2, ..none }, 0, Some(times), 5),
            member(Fates { fused: 2, ..none }, 1, Some(Times::default()), 6),
            member(none, 2, None, 7),
            member(Fates { duplicate: 2, ..none }, 0, None, 8),
        ]
    );
    assert_eq!(
        (closed[0].first_ns, closed[0].last_ns, closed[0].frame),
        (5, 8, FrameId { run: 1, frame: 0 })
    );
}

/// A report without a sound block is no report: its node is waited for, and its frame has no quorum by it.
#[test]
fn a_report_without_sound_blocks_does_not_count() {
    let mut assembler = three();
    assembler.offer(2, report(0, &[]), 0, ()).unwrap();
    for l in 0..2 {
        assert!(assembler.offer(l, report(0, ALL), 0, ()).unwrap().is_empty(), "node 2 is waited for");
    }
    assert_eq!(frames(&assembler.offer(2, report(0, &[1]), 1, ()).unwrap()), [(0, Closing::Complete)]);
    (0..3).for_each(|l| drop(assembler.offer(l, report(1, &[]), 2, ()).unwrap()));
    assert_eq!(frames(&assembler.close_due(102)), [(1, Closing::Minority)]);
}

/// Refused blocks of a late report are dropped, the others late or known.
#[test]
fn a_late_report_is_told_block_by_block() {
    let mut assembler = three();
    assembler.offer(0, report(3, &[0, 2]), 0, ()).unwrap();
    for l in 1..3 {
        let _ = assembler.offer(l, report(3, ALL), 0, ()).unwrap();
    }
    let refused = vec![WireError::Foreign { node: 0, l: 1, k: 1 }; 2];
    let late = assembler.offer(0, Report { refused: refused.clone(), ..report(3, ALL) }, 9, ()).unwrap_err();
    assert_eq!(late.fates, Fates { late: 1, duplicate: 2, dropped: 2, fused: 0 });
    assert_eq!(late.repeated, 0);
    let again = assembler.offer(0, Report { refused, resent: true, ..report(3, ALL) }, 9, ()).unwrap_err();
    assert_eq!((again.fates, again.repeated), (Fates { late: 1, dropped: 2, ..Fates::default() }, 2));
}

/// Exactly [`MISSES_UNTIL_SILENT`] deadlines in a row, of frames that were fused.
#[test]
fn misses_are_counted_one_by_one_and_forgotten_with_a_report() {
    let mut assembler = three();
    let close_without_2 = |assembler: &mut Assembler<()>, frame: u64| {
        let now_ns = 1000 * frame;
        assembler.offer(0, report(frame, ALL), now_ns, ()).unwrap();
        let at_once = assembler.offer(1, report(frame, ALL), now_ns, ()).unwrap();
        let due = assembler.close_due(now_ns + 100);
        assert_eq!(at_once.len() + due.len(), 1);
        at_once.len() == 1
    };
    assert_eq!([1, 2].map(|frame| close_without_2(&mut assembler, frame)), [false, false]);
    assembler.offer(2, report(3, ALL), 3000, ()).unwrap();
    assert_eq!([3, 4, 5, 6].map(|frame| close_without_2(&mut assembler, frame)), [true, false, false, false]);
    assert!(close_without_2(&mut assembler, 7), "three in a row");
    assembler.set_connected(2, true, 7500);
    assert!(!close_without_2(&mut assembler, 8), "it came anew");
}

/// A closed frame is known for as long as it is remembered; then its duplicates count as late.
#[test]
fn closed_frames_are_remembered_up_to_a_bound() {
    let mut assembler = three();
    for frame in 0..=REMEMBERED_FRAMES as u64 {
        for l in 0..3 {
            let _ = assembler.offer(l, report(frame, ALL), frame, ()).unwrap();
        }
    }
    let mut fates = |frame| assembler.offer(1, report(frame, ALL), 2000, ()).unwrap_err().fates;
    assert_eq!(fates(0), Fates { late: 3, ..Fates::default() }, "one too many");
    assert_eq!(fates(1), Fates { duplicate: 3, ..Fates::default() });
    assert_eq!(assembler.closed.len(), REMEMBERED_FRAMES);
}

/// Half of the nodes waited for is enough, less is not.
#[test]
fn half_of_the_nodes_waited_for_is_a_quorum() {
    let cases = [
        (1, 3, Closing::Minority),
        (1, 4, Closing::Minority),
        (2, 4, Closing::Overdue),
        (2, 5, Closing::Minority),
        (3, 5, Closing::Overdue),
    ];
    for (reporters, count, closing) in cases {
        let mut assembler = connected(count);
        // All have come past frame 0, so that it is due.
        (0..reporters).for_each(|l| drop(assembler.offer(l, report(0, ALL), 0, ()).unwrap()));
        (0..count).for_each(|l| drop(assembler.offer(l, report(1, &[]), 0, ()).unwrap()));
        assert_eq!(assembler.open_frames(), 2);
        assert_eq!(frames(&assembler.close_due(100))[0], (0, closing), "{reporters} of {count}");
        assert_eq!(assembler.open_frames(), 0);
    }
}

/// A frame whose quorum follows only from an earlier frame of the same deadline is not fused before those between them.
#[test]
fn a_quorum_that_follows_from_silence_keeps_the_order() {
    let mut assembler = connected(5);
    let offer = |assembler: &mut Assembler<()>, nodes: std::ops::Range<usize>, frame, now_ns| {
        nodes.for_each(|l| drop(assembler.offer(l, report(frame, ALL), now_ns, ()).unwrap()));
    };
    for frame in 1..3 {
        offer(&mut assembler, 0..3, frame, 1000 * frame);
        assert_eq!(frames(&assembler.close_due(1000 * frame + 100)), [(frame, Closing::Overdue)]);
    }
    // Nodes 3 and 4 are silent after the next frame: then two of three are enough for frame 44.
    offer(&mut assembler, 0..3, 10, 3000);
    offer(&mut assembler, 0..2, 44, 3000);
    assembler.offer(2, report(45, &[]), 3000, ()).unwrap();
    offer(&mut assembler, 0..2, 31, 3050);
    let closed = frames(&assembler.close_due(3100));
    assert_eq!(closed, [(10, Closing::Overdue), (31, Closing::Overdue), (44, Closing::Overdue)]);
}

/// At the end, what still waits for others is closed as far as it goes.
#[test]
fn the_end_closes_what_waits() {
    let mut assembler = connected(2);
    assembler.offer(0, report(3, &[0]), 0, ()).unwrap();
    assert_eq!(frames(&assembler.close_all()), [(3, Closing::Overdue)], "half, and not too far ahead");
    let mut alone = connected(1);
    alone.offer(0, report(0, &[]), 0, ()).unwrap();
    assert!(alone.set_connected(0, false, 1).is_empty());
    assert_eq!(frames(&alone.close_all()), [(0, Closing::Minority)], "nobody reported a block");
}

/// What was closed stays closed as long as a majority stands by it; once those that closed it have gone and a majority
/// has been behind it for three deadlines, it is open again.
#[test]
fn what_nobody_stands_by_any_more_is_withdrawn() {
    for (reporters, count) in [(1, 2), (2, 4), (3, 4), (3, 5), (2, 3)] {
        let mut assembler = connected(count);
        (0..reporters).for_each(|l| drop(assembler.offer(l, report(50, &[0]), 0, ()).unwrap()));
        // The others have come past it.
        (reporters..count).for_each(|l| drop(assembler.offer(l, report(51, &[]), 0, ()).unwrap()));
        assert_eq!(frames(&assembler.close_due(100))[0], (50, Closing::Overdue), "{reporters} of {count}");
        let late = |assembler: &mut Assembler<()>, frame, now_ns| {
            let offers = (0..count).map(|l| assembler.offer(l, report(frame, &[0]), now_ns, ()).is_err());
            offers.collect::<Vec<_>>().contains(&true)
        };
        assert!(late(&mut assembler, 9, 110) && late(&mut assembler, 9, 900), "the heads are past it");
        for l in 0..count {
            assembler.set_connected(l, false, 1000);
            assembler.set_connected(l, true, 1000);
        }
        assert!(late(&mut assembler, 10, 1100) && late(&mut assembler, 11, 1399), "three deadlines");
        assert!(!late(&mut assembler, 12, 1500), "{reporters} of {count}");
        assert!(late(&mut assembler, 50, 1501), "what was fused is known");
    }
}
