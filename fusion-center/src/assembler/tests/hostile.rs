//! Nodes that invent frame numbers, are away, or come back: what honest nodes report is fused and never late.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::progress::MOST_AHEAD;

const DEADLINE_NS: u64 = 100;
const PAIR: &[usize] = &[0, 1];

fn of_run(run: u64, frame: u64) -> Report {
    Report { frame: FrameId { run, frame }, ..report(frame, PAIR) }
}

/// Both of two nodes report a frame at about the same time.
fn both(assembler: &mut Assembler<()>, run: u64, frame: u64, now_ns: u64) -> Vec<(u64, Closing)> {
    let mut closed = frames(&assembler.offer(0, of_run(run, frame), now_ns, ()).expect("not late"));
    closed.extend(frames(&assembler.offer(1, of_run(run, frame), now_ns + 1, ()).expect("not late")));
    closed
}

/// With two nodes, half is one: no invented number, near or far, of this run or another, makes the other late.
#[test]
fn one_of_two_cannot_close_the_future() {
    let invented =
        [(1, u64::MAX), (1, 8), (1, 7 + MOST_AHEAD), (1, 8 + MOST_AHEAD), (2, 0), (u64::MAX, u64::MAX)];
    for (run, frame) in invented {
        let mut assembler = connected(2);
        assert_eq!(both(&mut assembler, 1, 5, 0), [(5, Closing::Complete)]);
        assembler.offer(1, of_run(run, frame), 10, ()).unwrap();
        let mut fused = Vec::new();
        for honest in 6..12 {
            let now_ns = 60 * (honest - 5);
            fused.extend(assembler.close_due(now_ns));
            let report = report(honest, PAIR);
            fused.extend(assembler.offer(0, report, now_ns, ()).expect("no honest frame is late"));
        }
        // The liar makes no progress and is not waited for in the end.
        fused.extend(assembler.close_due(60 * 6 + 9 * DEADLINE_NS));
        fused.extend(assembler.close_due(60 * 6 + 10 * DEADLINE_NS));
        let honest: Vec<u64> = fused
            .iter()
            .filter(|frame| matches!(frame.closing, Closing::Complete | Closing::Overdue))
            .filter(|frame| frame.members.iter().any(|member| member.node == 0))
            .map(|frame| frame.frame.frame)
            .collect();
        assert_eq!(honest, [6, 7, 8, 9, 10, 11], "run {run} frame {frame} invented");
    }
}

#[test]
fn a_number_too_far_ahead_is_refused_at_its_deadline_and_one_within_the_window_waits() {
    let mut assembler = connected(2);
    both(&mut assembler, 1, 5, 0);
    assembler.offer(1, report(5 + MOST_AHEAD, PAIR), 10, ()).unwrap();
    assembler.offer(1, report(6 + MOST_AHEAD, PAIR), 20, ()).unwrap();
    assert_eq!(assembler.next_deadline_ns(), Some(120));
    assert!(assembler.close_due(119).is_empty());
    assert_eq!(frames(&assembler.close_due(120)), [(6 + MOST_AHEAD, Closing::Ahead)]);
    assert_eq!(assembler.open_frames(), 1);
    // The other node falls silent 900 after the first frame that it did not report: its pace is not known.
    assert_eq!(assembler.next_deadline_ns(), Some(910));
    assert!(assembler.close_due(910).is_empty());
    assert_eq!(frames(&assembler.close_due(1010)), [(5 + MOST_AHEAD, Closing::Overdue)]);
}

#[test]
fn a_restarted_simulator_is_followed_at_once() {
    let mut assembler = connected(2);
    both(&mut assembler, 1, 900, 0);
    for frame in 0..5 {
        assert_eq!(both(&mut assembler, 2, frame, 1000 * (frame + 1)), [(frame, Closing::Complete)]);
    }
    assert!(assembler.offer(0, of_run(1, 901), 6000, ()).is_err(), "the old run is over");
}

/// One of two was away while the other went on by itself, into a new run at that.
#[test]
fn a_node_that_comes_back_far_behind_or_ahead_is_with_the_others_again() {
    let mut assembler = connected(2);
    both(&mut assembler, 1, 0, 0);
    assembler.set_connected(1, false, 10);
    for frame in 0..2000 {
        let closed = assembler.offer(0, of_run(2, frame), 20 + frame, ()).unwrap();
        assert_eq!(frames(&closed), [(frame, Closing::Complete)]);
    }
    assembler.set_connected(1, true, 2100);
    // What it had kept is late and is not made into fixes that nobody expects any more.
    for frame in 1..60 {
        assert!(assembler.offer(1, of_run(1, frame), 2101 + frame, ()).is_err());
    }
    for frame in 2000..2010 {
        assert_eq!(both(&mut assembler, 2, frame, 200 + frame), [(frame, Closing::Complete)]);
    }
}

/// What one node closed while it was alone is withdrawn once those who come back stay behind it.
#[test]
fn a_future_closed_by_a_lone_node_is_open_again_after_three_deadlines() {
    let mut assembler = connected(2);
    both(&mut assembler, 1, 5, 0);
    assembler.set_connected(0, false, 10);
    let closed = assembler.offer(1, of_run(u64::MAX, 7), 20, ()).unwrap();
    assert_eq!(frames(&closed), [(7, Closing::Complete)]);
    assembler.set_connected(0, true, 1000);
    for (frame, now_ns) in [(6, 1000), (7, 1150), (8, 1299)] {
        assert!(assembler.offer(0, report(frame, PAIR), now_ns, ()).is_err(), "frame {frame}");
    }
    assert!(assembler.offer(0, report(9, PAIR), 1300, ()).is_ok());
    assert_eq!(frames(&assembler.close_due(1400)), [(9, Closing::Overdue)]);
    assert!(assembler.offer(1, report(5, PAIR), 1400, ()).is_err(), "what both had agreed on stays closed");
}

/// Three nodes, two of which are strangers with a quorum: they close a frame of the farthest run or number. While they stay
/// connected they are the majority; when they leave, or are outvoted, the honest frames are fused again.
#[test]
fn a_poisoned_state_does_not_outlive_the_peers_that_caused_it() {
    for (run, frame) in [(u64::MAX, 0), (1, u64::MAX), (1, u64::MAX - 1), (u64::MAX, u64::MAX), (0, 7)] {
        let mut assembler = three();
        for l in 0..3 {
            let _ = assembler.offer(l, of_run(1, 5), 0, ()).unwrap();
        }
        for l in 0..2 {
            let _ = assembler.offer(l, of_run(run, frame), 10, ());
        }
        let poisoned = assembler.close_due(120);
        assert_eq!(frames(&poisoned), [(frame, Closing::Overdue)], "run {run} frame {frame}");
        let honest = |assembler: &mut Assembler<()>, node, frame, now_ns| {
            assembler.offer(node, of_run(1, frame), now_ns, ()).is_ok()
        };
        assert!(!honest(&mut assembler, 2, 6, 150), "two of three are a majority");
        for l in 0..2 {
            assembler.set_connected(l, false, 200);
        }
        let fused: Vec<u64> = (7..20).filter(|n| honest(&mut assembler, 2, *n, 60 * n)).collect();
        assert_eq!(fused.first(), Some(&12), "three deadlines of 100 after 420");
        assert_eq!(fused.last(), Some(&19));
        // Honest nodes that take the places of the strangers are with the third at once.
        (0..2).for_each(|l| drop(assembler.set_connected(l, true, 1200)));
        for n in 20..25 {
            (0..3).for_each(|l| assert!(honest(&mut assembler, l, n, 60 * n), "frame {n} of node {l}"));
        }
    }
}

/// One of two closes the future while the other is away. Who takes its place says nothing: the other is not held up by that for
/// longer than a node takes to become silent, and three deadlines.
#[test]
fn a_poisoned_state_is_not_kept_by_a_node_that_says_nothing() {
    let mut assembler = connected(2);
    assembler.set_connected(1, false, 0);
    let poisoned = assembler.offer(0, of_run(1, u64::MAX), 1, ()).unwrap();
    assert_eq!(frames(&poisoned), [(u64::MAX, Closing::Complete)]);
    assembler.set_connected(0, false, 50);
    (0..2).for_each(|l| drop(assembler.set_connected(l, true, 100)));
    let times_ns = (0..60).map(|n| (n, 200 + 60 * n));
    let mut accepted = times_ns.filter(|(n, now_ns)| assembler.offer(1, of_run(1, *n), *now_ns, ()).is_ok());
    let (_, first_ns) = accepted.next().expect("accepted in the end");
    assert!(first_ns <= 200 + (9 + 3) * DEADLINE_NS + 2 * 60, "{first_ns}");
}

/// Two of five close the future while the others are away, and stay when those come back: they are outvoted.
#[test]
fn a_poisoned_state_ends_when_its_peers_are_outvoted() {
    let mut assembler = connected(5);
    (2..5).for_each(|l| drop(assembler.set_connected(l, false, 0)));
    for l in 0..2 {
        let _ = assembler.offer(l, of_run(9, u64::MAX), 1, ()).unwrap();
    }
    (2..5).for_each(|l| drop(assembler.set_connected(l, true, 100)));
    let mut fused = 0;
    for n in 0..20 {
        let closed: Vec<_> =
            (2..5).filter_map(|l| assembler.offer(l, of_run(4, n), 200 + 60 * n, ()).ok()).collect();
        fused += closed.len();
        assembler.close_due(200 + 60 * n + 30);
    }
    assert!(fused >= 3 * 14, "{fused} of 60 reports");
    assert_eq!(assembler.run(), Some(4));
}

/// A restarted simulator has a random identity: a smaller one is followed as fast as a greater one.
#[test]
fn a_new_run_is_followed_whatever_its_identity() {
    for next in [3, 9_000] {
        let mut assembler = three();
        for frame in 0..5 {
            (0..3).for_each(|l| drop(assembler.offer(l, of_run(500, frame), 100 * frame, ()).unwrap()));
        }
        assert_eq!(assembler.run(), Some(500));
        let mut closed = Vec::new();
        for frame in 0..5 {
            for l in 0..3 {
                closed
                    .extend(frames(&assembler.offer(l, of_run(next, frame), 600 + 100 * frame, ()).unwrap()));
            }
        }
        assert_eq!(closed, (0..5).map(|frame| (frame, Closing::Complete)).collect::<Vec<_>>());
        assert_eq!(assembler.run(), Some(next));
    }
}

/// After a restart of the fusion center, the run before the present one may appear after it, from nodes with a backlog: all
/// nodes move on to the present run, and it is followed.
#[test]
fn a_run_that_appeared_too_late_is_left_again() {
    let mut assembler = connected(4);
    let _ = assembler.offer(0, of_run(2, 77), 0, ()).unwrap();
    for l in 1..4 {
        let _ = assembler.offer(l, of_run(1, 500), 10, ()).unwrap();
    }
    assert_eq!(frames(&assembler.close_due(120)), [(77, Closing::Minority), (500, Closing::Overdue)]);
    let mut fused = Vec::new();
    for n in 78..100 {
        for l in 0..4 {
            let closed = assembler.offer(l, of_run(2, n), 60 * n, ());
            fused.extend(closed.into_iter().flatten().map(|frame| frame.frame.frame));
        }
    }
    assert!(fused.len() >= 15 && fused.last() == Some(&99), "{fused:?}");
    assert_eq!(assembler.run(), Some(2));
}

/// After a restart of the fusion center, one of two nodes has a backlog of the run before, which appears here after the present
/// one, and fills its credit of four with it. The backlog is refused as soon as its fixes would be too old, so that
/// the node reaches the present run; it was held until the node counted as quiet, for 20 deadlines.
#[test]
fn a_backlog_of_an_earlier_run_does_not_use_up_the_credit() {
    let mut assembler = connected(2);
    let _ = assembler.offer(1, of_run(2, 0), 0, ()).unwrap();
    for frame in 500..504 {
        let _ = assembler.offer(0, of_run(1, frame), 5, ()).unwrap();
    }
    let mut refused = Vec::new();
    for frame in 1..=8 {
        let now_ns = 30 * frame;
        let closed = assembler.close_due(now_ns);
        refused
            .extend(closed.iter().filter(|a| a.frame.run == 1).map(|a| (now_ns, a.frame.frame, a.closing)));
        let _ = assembler.offer(1, of_run(2, frame), now_ns, ()).unwrap();
    }
    assert_eq!(refused, (500..504).map(|frame| (240, frame, Closing::Ahead)).collect::<Vec<_>>());
    assert_eq!(both(&mut assembler, 2, 9, 270).last(), Some(&(9, Closing::Complete)));
}

/// A node that invents a new run with every report neither displaces the runs in use nor grows the memory.
#[test]
fn a_flood_of_runs_disturbs_nobody() {
    let mut assembler = three();
    for frame in 0..2000 {
        let now_ns = 1000 * frame;
        for invented in 0..3 {
            let _ = assembler.offer(2, of_run(10_000 + 3 * frame + invented, frame), now_ns, ());
        }
        let mut closed = Vec::new();
        for l in 0..2 {
            closed.extend(assembler.offer(l, of_run(1, frame), now_ns, ()).expect("not late"));
        }
        closed.extend(assembler.close_due(now_ns + 100));
        let fused: Vec<u64> = closed.iter().filter(|f| is_fused(f)).map(|f| f.frame.frame).collect();
        assert_eq!(fused, [frame]);
        assert_eq!(assembler.open_frames(), 0);
    }
}

/// How an invented frame number lies to the honest ones.
#[derive(Debug, Clone, Copy)]
enum Lie {
    LaterRun(u64),
    FarAhead(u64),
    Ahead(u64),
    Behind(u64),
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        (1..u64::MAX).prop_map(Lie::LaterRun),
        (MOST_AHEAD..u64::MAX / 2).prop_map(Lie::FarAhead),
        (1..MOST_AHEAD / 2).prop_map(Lie::Ahead),
        (0..40_u64).prop_map(Lie::Behind),
    ]
}

/// One of `count` nodes lies; the others report frames `FIRST..` at a steady pace with some jitter.
#[derive(Debug, Clone)]
struct Play {
    count: usize,
    liar: usize,
    pace_ns: u64,
    /// Thousandths of the largest jitter, by frame and node.
    jitter: Vec<u64>,
    /// When and what.
    lies: Vec<(u64, Lie)>,
}

const FRAMES: u64 = 30;
const FIRST: u64 = 1000;

fn play() -> impl Strategy<Value = Play> {
    (2..=5_usize).prop_flat_map(|count| {
        let jitter = prop::collection::vec(0..1000_u64, count * FRAMES as usize);
        let lies = prop::collection::vec((0..FRAMES * 1000, lie()), 0..40);
        (0..count, 1..8 * DEADLINE_NS, jitter, lies).prop_map(move |(liar, pace_ns, jitter, lies)| Play {
            count,
            liar,
            pace_ns,
            jitter,
            lies,
        })
    })
}

impl Play {
    /// Reports by time: (time, node, frame). An honest node is at most half a deadline, or half the pace, late.
    fn reports(&self) -> Vec<(u64, usize, FrameId)> {
        let most_ns = self.pace_ns.min(DEADLINE_NS) / 2;
        let id = |run, frame| FrameId { run, frame };
        let honest = (0..FRAMES).flat_map(|n| {
            (0..self.count).filter(|node| *node != self.liar).map(move |node| {
                let jitter = self.jitter[n as usize * self.count + node];
                (1 + n * self.pace_ns + jitter * most_ns / 1000, node, id(5, FIRST + n))
            })
        });
        let lies = self.lies.iter().map(|(at, lie)| {
            let at_ns = 1 + at * self.pace_ns / 1000;
            let now = FIRST + at / 1000;
            let frame = match *lie {
                Lie::LaterRun(by) => id(5_u64.saturating_add(by), now),
                Lie::FarAhead(by) => id(5, now + by),
                Lie::Ahead(by) => id(5, now + by),
                Lie::Behind(by) => id(5, now - by),
            };
            (at_ns, self.liar, frame)
        });
        let mut all: Vec<_> = honest.chain(lies).collect();
        all.sort_by_key(|(at_ns, ..)| *at_ns);
        all
    }

    /// Plays it; every closed frame, or the honest report that was late.
    fn run(&self) -> Result<Vec<Assembled<()>>, FrameId> {
        let mut assembler = connected(self.count);
        let mut closed = Vec::new();
        for (at_ns, node, frame) in self.reports() {
            while let Some(due_ns) = assembler.next_deadline_ns().filter(|due_ns| *due_ns <= at_ns) {
                closed.extend(assembler.close_due(due_ns));
            }
            match assembler.offer(node, Report { frame, ..report(0, PAIR) }, at_ns, ()) {
                Ok(more) => closed.extend(more),
                Err(_) if node == self.liar => {}
                Err(_) => return Err(frame),
            }
        }
        while let Some(due_ns) = assembler.next_deadline_ns() {
            closed.extend(assembler.close_due(due_ns));
        }
        assert_eq!(assembler.open_frames(), 0, "nothing waits for ever");
        Ok(closed)
    }
}

fn is_fused(frame: &Assembled<()>) -> bool {
    matches!(frame.closing, Closing::Complete | Closing::Overdue)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// 2000 random interleavings: whatever one node makes up, what the others report is never late, is fused once
    /// and in order.
    #[test]
    fn honest_frames_are_fused_in_order_whatever_one_node_makes_up(play in play()) {
        let closed = play.run().map_err(|frame| TestCaseError::fail(format!("late: {frame:?}")))?;
        let fused: Vec<FrameId> = closed.iter().filter(|frame| is_fused(frame)).map(|frame| frame.frame).collect();
        // Of two that disagree, either may be right: a fix of the liar alone may then come out of order.
        prop_assert!(play.count == 2 || fused.is_sorted_by(|a, b| a < b), "{fused:?}");
        for node in (0..play.count).filter(|node| *node != play.liar) {
            let of_node = |frame: &&Assembled<()>| frame.members.iter().any(|member| member.node == node);
            let own: Vec<u64> =
                closed.iter().filter(|frame| is_fused(frame)).filter(of_node).map(|f| f.frame.frame).collect();
            prop_assert_eq!(own, (FIRST..FIRST + FRAMES).collect::<Vec<_>>());
        }
    }
}
