//! The fuzz targets on their seeds and on seeded changes of them: what `fuzz/` runs guided by coverage, in short and with
//! the ordinary compiler. `HYLOC_FUZZ_SECONDS` prolongs it for every target.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::path::PathBuf;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: targets::Bounded = targets::Bounded;

/// Altered inputs for each target.
const INPUTS: u64 = 400;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 9] = [
    ("echo_codec", targets::echo_codec),
    ("echo_file", targets::echo_file),
    ("report", targets::report),
    ("scenario", targets::scenario),
    ("recording", targets::recording),
    ("replay", targets::replay),
    ("solve", targets::solve),
    ("relay", targets::relay),
    ("zmtp", targets::zmtp),
];

/// A multiplicative congruential generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % count.max(1) as u64) as usize
    }

    /// Changes a few places: bits, bytes, numbers, lengths; parts are cut, repeated or moved.
    fn alter(&mut self, data: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let (at, length) = (self.below(data.len()), 1 + self.below(32));
            let end = (at + length).min(data.len());
            match self.below(8) {
                _ if data.is_empty() => data.push(self.below(256) as u8),
                0 | 1 => data[at] ^= 1 << self.below(8),
                2 => data[at] = [0, 1, 0x7f, 0x80, 0xff, b'-', b'9', b'e'][self.below(8)],
                3 => {
                    let number = [0, 1, u64::MAX, 1 << 31, 1 << 40, u64::MAX >> 1][self.below(6)];
                    data[at..end]
                        .iter_mut()
                        .zip(number.to_le_bytes())
                        .for_each(|(byte, value)| *byte = value);
                }
                4 => drop(data.drain(at..end)),
                5 => data.truncate(at),
                6 => {
                    let part = data[at..end].repeat(1 + self.below(20));
                    data.splice(at..at, part);
                }
                _ => {
                    let part = data[at..end].to_vec();
                    let to = self.below(data.len());
                    data.splice(to..to, part);
                }
            }
        }
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn no_reader_panics_on_altered_seeds() {
    let seconds = std::env::var("HYLOC_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seed");
        seeds.iter().for_each(|seed| targets::bounded(seed, target));
        let (began, mut input, mut slowest) = (Instant::now(), 0, Duration::ZERO);
        while input < INPUTS || began.elapsed().as_secs() < seconds {
            let mut draw = Draw(input);
            let mut data = seeds[draw.below(seeds.len())].clone();
            draw.alter(&mut data);
            let started = Instant::now();
            if let Err(panic) = std::panic::catch_unwind(|| targets::bounded(&data, target)) {
                let path = std::env::temp_dir().join(format!("hyloc-{name}-{input}"));
                std::fs::write(&path, &data).unwrap();
                eprintln!("{name}: input {input}, kept as {}", path.display());
                std::panic::resume_unwind(panic);
            }
            slowest = slowest.max(started.elapsed());
            input += 1;
        }
        println!("{name}: {input} inputs, the slowest took {slowest:?}");
    }
}
