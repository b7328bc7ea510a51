//! What the fuzz targets call: one function for every reader of bytes from outside. A reader may refuse its input; it may
//! not panic, abort, hang, or allocate more than [`ALLOWED`] above the size of the input.

use std::alloc::{GlobalAlloc, Layout, System as SystemAllocator};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backhaul::plan::Plan;
use backhaul::wire::Wire;
use fusion_center::container::{Container, ContainerEvent};
use hyloc::solve::angles::{AngleCase, AngleSolveFlags};
use hyloc::solve::crb::CrbCase;
use hyloc::solve::delay::DelayCase;
use hyloc::solve::locate::LocateCase;
use hyloc::solve::{Cases, Problem, solve_all};
use model::{Scenario, System};
use prost::Message;
use proto::convert::report_from_wire;
use proto::echo::file::read_bytes;
use proto::echo::zmtp::inbound::{Inbound, InboundEvent as Incoming};
use proto::echo::zmtp::scan::{COMMAND_BYTES, MessageLimits, Violation, scan_pieces};
use proto::echo::{EchoFrame, EchoLayout};
use proto::site::SharedSite;
use proto::v1;

/// Bytes that a reader may allocate above the size of its input.
pub const ALLOWED: usize = 64 << 20;

/// An allocator that ends the process if more than the limit is allocated.
pub struct Bounded;

static NOW: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed).saturating_add(layout.size());
        if now > LIMIT.load(Ordering::Relaxed) {
            LIMIT.store(usize::MAX, Ordering::Relaxed);
            panic!("an allocation of {} bytes exceeds the limit", layout.size());
        }
        unsafe { SystemAllocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { SystemAllocator.dealloc(pointer, layout) }
    }
}

/// Calls a reader with limited memory.
pub fn bounded(data: &[u8], reader: fn(&[u8])) {
    // Tables that are made once are not part of an input's share.
    site();
    LIMIT.store(NOW.load(Ordering::Relaxed) + data.len() + ALLOWED, Ordering::Relaxed);
    reader(data);
    LIMIT.store(usize::MAX, Ordering::Relaxed);
}

/// The site of Table I.
pub fn site() -> &'static SharedSite {
    static SITE: OnceLock<SharedSite> = OnceLock::new();
    SITE.get_or_init(|| SharedSite::new(System::new(&Scenario::default()).unwrap()).unwrap())
}

pub fn echo_codec(data: &[u8]) {
    let system = &site().system;
    if let Ok(frame) = EchoFrame::decode(data) {
        let node = frame.node;
        let _ = frame.into_matrix(node, system.sensors(), system.subcarriers);
    }
}

/// The frames of files of echoes: 2 sensors, 3 subcarriers.
pub fn echo_file_layout() -> EchoLayout {
    EchoLayout { node: 1, site_sha256: [7; 32], sensors: 2, subcarriers: 3, bandwidth_hz: 30e6, window: 8 }
}

/// What makes the site of measured signals small.
pub const SMALL_SITE: [&str; 4] =
    ["surface.elements=2", "surface.sensors=2", "channel.paths=1", "signal.subcarriers=6"];

/// A file; the first byte says of which kind: echoes in `.npz` or an archive of SigMF, or measured signals of a scenario.
pub fn echo_file(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    if kind == b'm' {
        let file = tempfile::Builder::new().tempfile_in(memory()).unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut overrides: Vec<String> = SMALL_SITE.map(str::to_owned).to_vec();
        overrides.push(format!("measured={}", file.path().display()));
        let layers = settings::Layers { file: None, overrides, environment: Some(Default::default()) };
        let _ = settings::load_scenario(&layers);
        return;
    }
    let layout = echo_file_layout();
    let mut last = None;
    let _ = read_bytes(bytes, kind == b'n', &layout, &mut |frame| {
        assert!(frame.samples.len() == 6 && frame.samples.iter().all(|sample| sample.is_finite()));
        assert!(last < Some(frame.frame), "frames are in order");
        last = Some(frame.frame);
        ControlFlow::Continue(())
    });
}

/// A report, or a site if the first bit is set.
pub fn report(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    if first >= 128 {
        let _ = SharedSite::decode(rest);
    } else if let Ok(message) = v1::FrameReport::decode(rest) {
        let _ = report_from_wire(message, usize::from(first), &site().system);
    }
}

/// A scenario as TOML, or overrides of it line by line if the first byte is `=`.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let scenario = match text.strip_prefix('=') {
        Some(lines) => {
            let overrides = lines.lines().map(str::to_owned).collect();
            let layers = settings::Layers { file: None, overrides, environment: Some(Default::default()) };
            settings::load_scenario(&layers).ok()
        }
        None => toml::from_str::<Scenario>(text).ok().filter(|scenario| scenario.validate().is_ok()),
    };
    // Larger systems are valid but take seconds.
    let small = |scenario: &Scenario| {
        let surface = &scenario.surface;
        let counts = [surface.elements.count(), surface.sensors.count(), scenario.base_station.antennas];
        counts.into_iter().all(|count| count <= 64) && scenario.irs.len() <= 4
    };
    if let Some(system) = scenario.filter(small).and_then(|scenario| System::new(&scenario).ok()) {
        let site = SharedSite::new(system).unwrap();
        assert_eq!(SharedSite::decode(&site.encode()).unwrap().sha256, site.sha256);
    }
}

/// The container of a recording with the content of its entries.
pub fn recording(data: &[u8]) {
    let mut bytes = 0;
    for event in Container::new(Cursor::new(data)).unwrap() {
        let ContainerEvent::Entry(entry) = event.unwrap() else { continue };
        bytes += entry.data.len();
        if let Ok(message) = v1::FrameReport::decode(&entry.data[..entry.data.len().min(1 << 16)]) {
            let node = message.recorded_node.unwrap_or(0) as usize;
            let _ = report_from_wire(message, node, &site().system);
        }
    }
    assert!(bytes <= data.len(), "no byte is returned twice");
}

/// The whole replay of a recording at Table I.
pub fn replay(data: &[u8]) {
    let directory = tempfile::Builder::new().tempdir_in(memory()).unwrap();
    std::fs::write(directory.path().join("site.pb"), site().encode()).unwrap();
    std::fs::write(directory.path().join("blocks.mcap"), data).unwrap();
    let _ = fusion_center::replay::replay(directory.path(), None, |_| {});
}

fn memory() -> std::path::PathBuf {
    let shared = std::path::PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

/// Problems of `hyloc solve`; the first byte selects the kind.
pub fn solve(data: &[u8]) {
    fn problems<P: Problem>(settings: &P::Settings, json: &[u8]) {
        if let Ok(cases) = serde_json::from_slice::<Cases<P>>(json) {
            let _ = solve_all(settings, &cases);
        }
    }
    let Some((&kind, json)) = data.split_first() else { return };
    match kind {
        b'a' => problems::<AngleCase>(
            &AngleSolveFlags { max_iterations: Some(20), ..AngleSolveFlags::default() },
            json,
        ),
        b'c' => problems::<CrbCase>(&(), json),
        b'd' => problems::<DelayCase>(&(), json),
        b'l' => problems::<LocateCase>(&(), json),
        _ => {}
    }
}

/// A plan of the backhaul emulator, a zero byte, and bytes that enter its wires: pauses and sizes, four bytes each.
pub fn relay(data: &[u8]) {
    let (plan, traffic) = data.split_at(data.iter().position(|byte| *byte == 0).unwrap_or(data.len()));
    let Ok(plan) = std::str::from_utf8(plan) else { return };
    let Ok(plan) = Plan::parse(plan, "clear") else { return };
    for direction in plan.directions().take(4) {
        let mut wire = Wire::new(*direction, 1, "west", true, Duration::ZERO);
        let (mut now, mut last) = (Duration::ZERO, Duration::ZERO);
        for entry in traffic.chunks_exact(8).take(1000) {
            let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
            now += Duration::from_micros(u64::from(number(0)));
            let released = wire.release(now, number(4) as usize);
            assert!(released >= last && released >= now, "bytes keep their order and are not early");
            last = released;
        }
    }
}

/// The byte stream of a ZMTP peer. The first two bytes say where it is cut into pieces, the third selects the limits: those
/// of the simulator's port or those of the guard in a node. Neither the scanner, which is the guard, nor the assembled messages may
/// depend on the cuts, exceed the limits or contain a byte that did not come.
pub fn zmtp(data: &[u8]) {
    let Some((&[first, period, kind], stream)) = data.split_first_chunk::<3>() else { return };
    let limits = match kind % 2 {
        0 => MessageLimits { frame_bytes: 512, frames: 2 },
        _ => MessageLimits { frame_bytes: 1 << 40, frames: 2 },
    };
    let (head, tail) = stream.split_at(usize::from(first).min(stream.len()));
    let pieces: Vec<&[u8]> = [head].into_iter().chain(tail.chunks(usize::from(period) + 1)).collect();

    let whole = scan_pieces(limits, &[stream]);
    assert_eq!(whole, scan_pieces(limits, &pieces), "the cuts change what is scanned");
    let (headers, body, violation) = whole;
    assert!(body <= stream.len(), "bytes that did not come");
    for header in headers {
        assert!(header.length <= if header.command { COMMAND_BYTES } else { limits.frame_bytes });
    }

    let whole = assemble(limits, &[stream]);
    assert_eq!(whole, assemble(limits, &pieces), "the cuts change what is assembled");
    let (events, refused) = whole;
    // A message is refused where its header is; only READY is judged by its content.
    assert!(refused == violation || refused == Some(Violation::Ready), "{refused:?} {violation:?}");
    let mut assembled = 0;
    for event in events {
        let Incoming::Message(parts) = event else { continue };
        assert!((1..=limits.frames as usize).contains(&parts.len()), "{} frames", parts.len());
        assert!(parts.iter().all(|part| part.len() as u64 <= limits.frame_bytes), "a long frame");
        assembled += parts.iter().map(|part| part.len()).sum::<usize>();
        for part in parts {
            let _ = EchoFrame::decode(&part);
        }
    }
    assert!(assembled <= body, "bytes that were not scanned");
}

/// The events of a stream that comes in pieces, and the violation that ends it.
fn assemble(limits: MessageLimits, pieces: &[&[u8]]) -> (Vec<Incoming>, Option<Violation>) {
    let (mut inbound, mut events) = (Inbound::new(limits), Vec::new());
    for piece in pieces {
        let mut input = *piece;
        loop {
            match inbound.next(&mut input) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(violation) => return (events, Some(violation)),
            }
        }
    }
    (events, None)
}
