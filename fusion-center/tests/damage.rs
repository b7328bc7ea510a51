//! Damaged and hostile recordings: every fault is named, the rest is replayed, and memory stays bounded.

mod support;

use std::alloc::{GlobalAlloc, Layout, System as SystemAllocator};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hyloc_fusion_center::container::{Container, ContainerEvent};
use hyloc_fusion_center::replay::{Replayed, replay};
use support::*;
use tempfile::TempDir;

/// Counts what is allocated, and the maximum.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        unsafe { SystemAllocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { SystemAllocator.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FRAMES: u64 = 12;

/// Numbers of the channels.
const FRAME_CHANNEL: u16 = 2;
const HOLE_CHANNEL: u16 = 4;

/// A recording with one chunk per frame, and the fixes of its replay. The lock keeps the tests of this file apart, whose
/// allocations are counted.
fn recording() -> (MutexGuard<'static, ()>, &'static (TempDir, Vec<String>)) {
    static LOCK: Mutex<()> = Mutex::new(());
    static RECORDING: OnceLock<(TempDir, Vec<String>)> = OnceLock::new();
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let recording = RECORDING.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(record(directory.path()));
        rechunk(&directory.path().join("blocks.mcap"));
        let (replayed, fixes) = replay_files(directory.path());
        let replayed = replayed.unwrap();
        assert!(replayed.damage.is_empty() && replayed.missing.is_empty() && replayed.broken.is_none());
        assert_eq!(fixes.len() as u64, FRAMES);
        (directory, fixes)
    });
    (guard, recording)
}

async fn record(directory: &Path) {
    let center = Center::start(Options { record: Some(directory.into()), ..Options::default() }).await;
    let echoes = Echoes::new();
    let mut nodes = nodes(&center).await;
    for frame in 0..FRAMES {
        for node in &mut nodes {
            node.send(echoes.report(node.index, frame)).await;
        }
        assert_eq!(nodes[2].acknowledgement().await.unwrap().fused, 3);
    }
    assert_eq!(center.stop().await.incomplete_files, []);
}

/// Writes the same messages with one chunk per frame.
fn rechunk(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let options = mcap::WriteOptions::new().compression(None).chunk_size(None);
    let mut writer = options.create(Cursor::new(Vec::new())).unwrap();
    let events = || Container::new(Cursor::new(&bytes)).unwrap().map(Result::unwrap);
    let metadata = events().find_map(|event| match event {
        ContainerEvent::Metadata(metadata) => Some(metadata),
        _ => None,
    });
    let metadata = metadata.expect("hashes of the files");
    assert_eq!(metadata["site_file_sha256"].len(), 64);
    writer.write_metadata(&mcap::records::Metadata { name: "hyloc".into(), metadata }).unwrap();
    for event in events() {
        match event {
            ContainerEvent::Channel { id, topic } => {
                assert_eq!(writer.add_channel(0, &topic, "", &BTreeMap::new()).unwrap(), id);
            }
            ContainerEvent::Entry(entry) => {
                let (channel_id, sequence) = (entry.channel, entry.sequence);
                let header =
                    mcap::records::MessageHeader { channel_id, sequence, log_time: 1, publish_time: 1 };
                writer.write_to_known_channel(&header, &entry.data).unwrap();
                if entry.channel == FRAME_CHANNEL {
                    writer.flush().unwrap();
                }
            }
            ContainerEvent::Metadata(_) => {}
            other => panic!("{other:?}"),
        }
    }
    writer.finish().unwrap();
    std::fs::write(path, writer.into_inner().into_inner()).unwrap();
}

fn replay_files(directory: &Path) -> (anyhow::Result<Replayed>, Vec<String>) {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("fixes.jsonl");
    let replayed = replay(directory, Some(&log), |_| {});
    let fixes = if log.exists() { fix_lines(&log) } else { Vec::new() };
    (replayed, fixes)
}

/// A copy with one file changed.
fn changed(directory: &Path, name: &str, content: &[u8]) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in ["blocks.mcap", "site.pb", "method.toml"] {
        std::fs::copy(directory.join(file), copy.path().join(file)).unwrap();
    }
    std::fs::write(copy.path().join(name), content).unwrap();
    copy
}

/// Seeded places: a multiplicative congruential generator.
fn places(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}

fn in_order(fixes: &[String], all: &[String]) -> bool {
    let mut rest = all.iter();
    fixes.iter().all(|fix| rest.any(|other| other == fix))
}

#[test]
fn a_flipped_bit_is_reported_or_changes_nothing() {
    let (_lock, (directory, expected)) = recording();
    let mut draw = places(17);
    let (mut refused, mut reported, mut harmless, mut replayed_frames) = (0, 0, 0, 0);
    for flip in 0..200 {
        // The small files get a share of their own.
        let name = ["blocks.mcap", "blocks.mcap", "blocks.mcap", "site.pb", "method.toml"][flip % 5];
        let mut bytes = std::fs::read(directory.path().join(name)).unwrap();
        let (at, bit) = (draw(bytes.len() as u64) as usize, draw(8));
        bytes[at] ^= 1 << bit;
        let copy = changed(directory.path(), name, &bytes);
        let (outcome, fixes) = replay_files(copy.path());
        let place = format!("{name}, bit {bit} of byte {at}");
        match outcome {
            Err(error) => {
                assert!(error.to_string().contains(copy.path().to_str().unwrap()), "{place}: {error}");
                refused += 1;
            }
            Ok(replayed) => {
                let faults = [&replayed.damage[..], &replayed.missing[..]].concat();
                assert!(in_order(&fixes, expected), "{place}: a fix changed, {faults:?}");
                if !replayed.damage.is_empty() {
                    assert!(faults[0].contains(name), "{place}: {faults:?}");
                    assert!(fixes.len() + 2 >= expected.len(), "{place}: {} fixes, {faults:?}", fixes.len());
                    reported += 1;
                    replayed_frames += fixes.len();
                } else {
                    assert_eq!(fixes, *expected, "{place}: {faults:?}");
                    harmless += 1;
                }
            }
        }
    }
    // Every byte of every file is covered by a checksum.
    assert_eq!((refused + reported, harmless), (200, 0));
    assert!(refused <= 85 && replayed_frames >= 110 * 10, "{refused} {reported} {replayed_frames}");
}

#[test]
fn a_damaged_chunk_is_named_with_its_place_and_its_frames() {
    let (_lock, (directory, expected)) = recording();
    let mut bytes = std::fs::read(directory.path().join("blocks.mcap")).unwrap();
    let seventh = place_of_frame(&bytes, 6);
    bytes[seventh] ^= 1;
    let copy = changed(directory.path(), "blocks.mcap", &bytes);
    let (replayed, fixes) = replay_files(copy.path());
    let Replayed { damage, missing, broken, .. } = replayed.unwrap();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(
        damage[0].contains("blocks.mcap: bytes") && damage[0].contains("checksum of the chunk"),
        "{damage:?}"
    );
    assert_eq!(missing, [format!("frames 6 to 6 of run {RUN} are lost")]);
    assert!(broken.is_none());
    assert_eq!(fixes, [&expected[..6], &expected[7..]].concat());
}

/// Two reports without their frame, and a frame without its reports: the other frames are replayed.
#[test]
fn a_lost_report_costs_its_frame_alone() {
    let (_lock, (directory, expected)) = recording();
    let bytes = std::fs::read(directory.path().join("blocks.mcap")).unwrap();
    let options = mcap::WriteOptions::new().compression(None);
    let mut writer = options.create(Cursor::new(Vec::new())).unwrap();
    let hole = proto::v1::RecordedHole { run: RUN, first: 3, last: 4, entries: 2 };
    let hole = prost::Message::encode_to_vec(&hole);
    for event in Container::new(Cursor::new(&bytes)).unwrap().map(Result::unwrap) {
        match event {
            ContainerEvent::Channel { topic, .. } => {
                writer.add_channel(0, &topic, "", &BTreeMap::new()).unwrap();
            }
            ContainerEvent::Entry(mut entry) if entry.sequence != 10 || entry.channel != 1 => {
                if entry.channel == 1 && entry.sequence == 12 {
                    (entry.channel, entry.data) = (HOLE_CHANNEL, hole.clone());
                }
                let (channel_id, sequence) = (entry.channel, entry.sequence);
                let header =
                    mcap::records::MessageHeader { channel_id, sequence, log_time: 1, publish_time: 1 };
                writer.write_to_known_channel(&header, &entry.data).unwrap();
            }
            _ => {}
        }
    }
    writer.finish().unwrap();
    let copy = changed(directory.path(), "blocks.mcap", &writer.into_inner().into_inner());
    let (replayed, fixes) = replay_files(copy.path());
    let Replayed { damage, missing, .. } = replayed.unwrap();
    assert_eq!(damage, [""; 0]);
    let expected_missing = [
        "frame 3 of run 7 is not replayed: its report 10 is missing",
        "2 entries of frames 3 to 4 of run 7 were not recorded",
        "frame 4 of run 7 is not replayed: its report 12 is missing",
    ];
    assert_eq!(missing, expected_missing);
    assert_eq!(fixes, [&expected[..3], &expected[5..]].concat());
}

/// Values that a length may claim.
const LENGTHS: [u64; 12] =
    [0, 1, 39, 40, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, u64::MAX - 9, u64::MAX];

/// Places of the lengths of all records outside of chunks, and of the sizes in the headers of chunks.
fn length_places(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    let mut at = 8;
    while at + 9 <= bytes.len() - 8 {
        places.push((at + 1, 8));
        if bytes[at] == 6 {
            places.extend([(at + 9 + 16, 8), (at + 9 + 28, 4), (at + 9 + 32, 8), (at + 9 + 41, 8)]);
        }
        if [1, 4, 7, 12].contains(&bytes[at]) {
            places.extend([(at + 9, 4), (at + 11, 4)]);
        }
        at += 9 + u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
    }
    places
}

#[test]
fn hostile_lengths_allocate_no_more_than_the_file_is_long() {
    let (_lock, (directory, expected)) = recording();
    let bytes = std::fs::read(directory.path().join("blocks.mcap")).unwrap();
    let places = length_places(&bytes);
    assert!(places.len() > 60, "{}", places.len());
    let mut tried = 0;
    for (i, (at, width)) in places.into_iter().enumerate() {
        // The first chunks and the end with all values, the others with some.
        for (j, length) in LENGTHS.into_iter().enumerate().filter(|(j, _)| i < 14 || (i + j) % 6 == 0) {
            let mut hostile = bytes.clone();
            hostile[at..at + width].copy_from_slice(&length.to_le_bytes()[..width]);
            let place = format!("length {j} = {length} at byte {at}");
            let before = NOW.load(Ordering::Relaxed);
            MOST.store(before, Ordering::Relaxed);
            let events: Vec<ContainerEvent> =
                Container::new(Cursor::new(&hostile)).unwrap().map(Result::unwrap).collect();
            let most = MOST.load(Ordering::Relaxed) - before;
            assert!(most < 3 * hostile.len() + (1 << 20), "{place}: {most} bytes");
            assert!(events.len() < 200, "{place}");
            tried += 1;
            if tried % 20 == 0 {
                let copy = changed(directory.path(), "blocks.mcap", &hostile);
                let (_, fixes) = replay_files(copy.path());
                assert!(in_order(&fixes, expected), "{place}");
            }
        }
    }
    assert!(tried >= 191, "{tried}");
}

/// A few bytes may expand to large structures: many empty parts of a message.
#[test]
fn small_parts_in_great_number_are_refused() {
    let (_lock, (directory, _)) = recording();
    // Field 15 (IRSs) of length 0, two million times.
    let site = std::fs::read(directory.path().join("site.pb")).unwrap();
    let tag = site.windows(2).position(|part| part[0] >> 3 == 15 && part[0] & 7 == 2);
    assert!(tag.is_some(), "the list of IRSs is field 15");
    let many = [site.as_slice(), &[0x7a, 0x00].repeat(2 << 20)].concat();
    let copy = changed(directory.path(), "site.pb", &many);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let error = replay_files(copy.path()).0.unwrap_err().to_string();
    assert!(error.contains("site.pb"), "{error}");
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most < many.len() + (64 << 20), "{most}");
}

/// What no process wrote: empty files, other files, a directory.
#[test]
fn what_is_no_recording_is_refused_by_name() {
    let (_lock, (directory, _)) = recording();
    for content in [&b""[..], b"\x89MCAP0\r\n", b"\x89MCAP0\r\n\x06", &[0; 100], &[6; 1000]] {
        let copy = changed(directory.path(), "blocks.mcap", content);
        let error = replay_files(copy.path()).0.unwrap_err().to_string();
        assert!(error.contains("blocks.mcap"), "{content:?}: {error}");
    }
    let copy = changed(directory.path(), "blocks.mcap", b"");
    let path: PathBuf = copy.path().join("blocks.mcap");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(replay_files(copy.path()).0.unwrap_err().to_string().contains("blocks.mcap"));
}
