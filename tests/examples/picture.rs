//! Films the live page and writes the animated picture of the README.
//!
//! `cargo run --release -p hyloc-tests --example picture -- [FILE]`, by default `docs/dashboard.png`; needs Chromium.
//!
//! A demo at Table I: the page follows the target, shows the likelihood of the frames, loses a node and gets it back. Frames after the
//! first contain only what has changed, so that the file stays below 2 MB.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use hyloc_tests::browser::Browser;
use hyloc_tests::process::{Process, eventually};
use png::{BitDepth, BlendOp, ColorType, Compression, Decoder, DisposeOp, Encoder, Filter, Transformations};

const WIDTH: u32 = 1240;
const HEIGHT: u32 = 780;
/// Pictures of each scene.
const SCENE: usize = 10;
/// How long each is shown.
const SHOWN_MS: u16 = 330;
const MOST_BYTES: u64 = 2_000_000;

fn main() {
    let path = std::env::args()
        .nth(1)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dashboard.png"), PathBuf::from);
    let pictures = film();
    write(&path, &pictures);
    let bytes = std::fs::metadata(&path).expect("a file").len();
    println!("{}: {} pictures, {bytes} bytes", path.display(), pictures.len());
    assert!(bytes < MOST_BYTES, "too large for a README");
}

/// Opaque pixels, RGBA.
type Picture = Vec<u8>;

fn film() -> Vec<Picture> {
    let demo = Process::start("hyloc", &["demo", "--json", "--dashboard", "--allow-control", "--rate", "20"]);
    let line = demo.said("dashboard: http://");
    let http: std::net::SocketAddr =
        line.split(['/', ' ']).find_map(|part| part.parse().ok()).expect("an address");
    let browser = Browser::open(WIDTH, HEIGHT);
    browser.become_screen(WIDTH, HEIGHT);
    browser.prefer("light");
    browser.go(&format!("http://{http}/"));
    browser.until("return document.getElementById('headline').dataset.state === 'nominal'");
    browser.run("document.querySelector('[data-span=\"30\"]').click()");
    // A history that fills the plots.
    browser.until(
        "return document.querySelector('#error .line-error')?.getAttribute('d').split('L').length > 150",
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("picture.png");
    let mut pictures = Vec::new();
    let mut scene = |count: usize| {
        for _ in 0..count {
            browser.screenshot(&file);
            pictures.push(read(&file));
            std::thread::sleep(std::time::Duration::from_millis(u64::from(SHOWN_MS) / 2));
        }
    };
    scene(SCENE);
    browser.run("document.getElementById('likelihood').click()");
    browser.until("return document.getElementById('surface').dataset.frame !== undefined");
    scene(SCENE);
    browser.run("document.getElementById('likelihood').click()");
    browser.run(
        "const s = document.getElementById('which'); s.value = '2'; s.dispatchEvent(new Event('change'))",
    );
    let press = |text: &str, state: &str| {
        let ready = format!(
            "const b = document.getElementById('kill'); return !b.disabled && b.textContent === '{text}'"
        );
        browser.until(&ready);
        browser.run("document.getElementById('kill').click()");
        eventually(state, || {
            let now = browser.run("return document.getElementById('headline').dataset.state");
            (now == state).then_some(())
        });
    };
    press("Kill node", "degraded");
    scene(SCENE / 2);
    press("Start node", "nominal");
    scene(SCENE / 2);
    drop(browser);
    demo.signal(rustix::process::Signal::INT);
    demo.finish();
    pictures
}

fn read(path: &Path) -> Picture {
    let mut decoder = Decoder::new(BufReader::new(File::open(path).expect("a picture")));
    decoder.set_transformations(Transformations::ALPHA | Transformations::STRIP_16);
    let mut reader = decoder.read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!((info.width, info.height, info.color_type), (WIDTH, HEIGHT, ColorType::Rgba));
    // 32 levels of each colour, which are enough for flat areas and compress well.
    pixels.iter_mut().for_each(|value| *value = *value & 0xf8 | *value >> 5);
    pixels
}

/// What has changed: its place, its size, and its pixels, transparent where they are as before.
fn change(before: &Picture, after: &Picture) -> ([u32; 2], [u32; 2], Vec<u8>) {
    let at = |x: u32, y: u32| 4 * (y * WIDTH + x) as usize;
    let differs = |x: u32, y: u32| before[at(x, y)..at(x, y) + 4] != after[at(x, y)..at(x, y) + 4];
    let rows: Vec<u32> = (0..HEIGHT).filter(|&y| (0..WIDTH).any(|x| differs(x, y))).collect();
    let columns: Vec<u32> = (0..WIDTH).filter(|&x| (0..HEIGHT).any(|y| differs(x, y))).collect();
    let range = |list: &[u32]| (list.first().copied().unwrap_or(0), list.last().copied().unwrap_or(0));
    let ((x0, x1), (y0, y1)) = (range(&columns), range(&rows));
    let places = (y0..=y1).flat_map(|y| (x0..=x1).map(move |x| (x, y)));
    let pixels = places.flat_map(|(x, y)| match differs(x, y) {
        true => [after[at(x, y)], after[at(x, y) + 1], after[at(x, y) + 2], 255],
        false => [0; 4],
    });
    ([x0, y0], [x1 - x0 + 1, y1 - y0 + 1], pixels.collect())
}

fn write(path: &Path, pictures: &[Picture]) {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut encoder = Encoder::new(file, WIDTH, HEIGHT);
    encoder.set_color(ColorType::Rgba);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    // Flat areas and single changed pixels compress best as they are.
    encoder.set_filter(Filter::NoFilter);
    encoder.set_animated(pictures.len() as u32, 0).expect("an animation");
    encoder.set_frame_delay(SHOWN_MS, 1000).expect("a delay");
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&pictures[0]).expect("the first picture");
    for pair in pictures.windows(2) {
        let ([x, y], [width, height], pixels) = change(&pair[0], &pair[1]);
        writer.set_frame_position(0, 0).expect("a place");
        writer.set_frame_dimension(width, height).expect("a size");
        writer.set_frame_position(x, y).expect("a place");
        writer.set_blend_op(BlendOp::Over).expect("a blend");
        writer.set_dispose_op(DisposeOp::None).expect("a disposal");
        writer.write_image_data(&pixels).expect("a picture");
    }
    writer.finish().expect("an end");
}
