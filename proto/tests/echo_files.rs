//! Files of echoes: what is written is read to the bit, and what is wrong is refused by key and place with the frames before it kept.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrays::{NpyType, NpzWriter};
use hyloc_proto::echo::file::{EchoFileFormat, EchoFilePlan, read_echoes, read_header};
use hyloc_proto::echo::{EchoFrame, EchoLayout};
use model::CMatrix;
use model::waveform::subcarriers_of_samples;
use num_complex::Complex64;
use serde_json::{Value, json};
use tempfile::TempDir;

const FRAMES: u64 = 4;

/// Bytes of a frame of 2 x 3 samples in double precision.
const FRAME_BYTES: u64 = 96;

fn layout() -> EchoLayout {
    EchoLayout { node: 1, site_sha256: [7; 32], sensors: 2, subcarriers: 3, bandwidth_hz: 30e6, window: 8 }
}

fn frame(number: u64) -> EchoFrame {
    let samples =
        (0..6).map(|n| Complex64::new(number as f64 + f64::from(n) / 3.0, -1e-9 * f64::from(n))).collect();
    EchoFrame {
        run: 99,
        frame: number,
        node: 1,
        intended_ns: 5_000 + number * 20_000_000,
        sensors: 2,
        subcarriers: 3,
        samples,
    }
}

/// A file with the frames above.
fn written(format: EchoFileFormat, directory: &Path) -> PathBuf {
    let plan =
        EchoFilePlan { layout: layout(), run: 99, frames: FRAMES, frame_rate_hz: 50.0, start_ns: 5_000 };
    let mut writer = format.create(directory, &plan).unwrap();
    (0..FRAMES).for_each(|number| writer.write(&frame(number)).unwrap());
    writer.finish().unwrap().remove(0)
}

/// The frames of a file, and why there are no more.
fn read(path: &Path) -> (Vec<EchoFrame>, Option<String>) {
    let mut frames = Vec::new();
    let ended = read_echoes(path, &layout(), &mut |frame| {
        frames.push(frame);
        ControlFlow::Continue(())
    });
    if let Ok(count) = ended {
        assert_eq!(count, frames.len() as u64);
    }
    let shown = path.display().to_string();
    let said = ended.err().map(|error| error.to_string());
    assert!(said.as_ref().is_none_or(|said| said.starts_with(&shown)), "{said:?} names the file");
    (frames, said.map(|said| said[shown.len() + 2..].to_owned()))
}

fn numbers(frames: &[EchoFrame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.frame).collect()
}

#[test]
fn frames_survive_to_the_bit_with_run_and_time() {
    for format in [EchoFileFormat::Sigmf, EchoFileFormat::Npz] {
        let directory = TempDir::new().unwrap();
        let path = written(format, directory.path());
        let (frames, fault) = read(&path);
        assert_eq!((frames, fault), ((0..FRAMES).map(frame).collect(), None), "{format:?}");
        let header = read_header(&path).unwrap();
        assert_eq!((header.node, header.run, header.site_sha256), (Some(1), 99, Some([7; 32])));
        let again = format.create(
            directory.path(),
            &EchoFilePlan { layout: layout(), run: 1, frames: 1, frame_rate_hz: 1.0, start_ns: 0 },
        );
        assert!(again.err().unwrap().to_string().contains("node-1."), "a file is not overwritten");
    }
}

/// Stops in the middle when it is told to.
#[test]
fn a_reader_that_has_enough_ends_without_a_fault() {
    let directory = TempDir::new().unwrap();
    for format in [EchoFileFormat::Sigmf, EchoFileFormat::Npz] {
        let path = written(format, directory.path());
        assert_eq!(read_echoes(&path, &layout(), &mut |_| ControlFlow::Break(())), Ok(1));
    }
}

/// Metadata of a file after a change.
fn edited(directory: &Path, edit: impl FnOnce(&mut Value)) -> PathBuf {
    let path = written(EchoFileFormat::Sigmf, directory);
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut metadata);
    std::fs::write(&path, metadata.to_string()).unwrap();
    path
}

#[test]
fn metadata_that_does_not_fit_is_refused_by_key() {
    let cases = [
        ("core:datatype", json!("ci16_le"), "core:datatype = ci16_le: must be cf32_le or cf64_le"),
        ("core:version", json!("2.0.0"), "core:version = 2.0.0: only version 1"),
        (
            "core:sample_rate",
            json!(20e6),
            "core:sample_rate = 20000000: must be the bandwidth of the site, 30000000 Hz",
        ),
        ("core:sample_rate", json!("fast"), "core:sample_rate = fast: must be a number"),
        ("core:num_channels", json!(3), "hyloc:sensors = 2: core:num_channels is 3"),
        ("hyloc:sensors", json!(null), "hyloc:sensors = null: must be an integer"),
        ("hyloc:subcarriers", json!(4), "hyloc:subcarriers = 4: the site has 3 subcarriers"),
        ("hyloc:node", json!(2), "hyloc:node = 2: this is node 1"),
        ("hyloc:node", json!(-1), "hyloc:node = -1: must be an integer"),
        ("hyloc:domain", json!("delay"), "hyloc:domain = delay: must be subcarriers or time"),
        ("hyloc:site_sha256", json!("08".repeat(32)), "hyloc:site_sha256 = 0808"),
        ("hyloc:site_sha256", json!("08"), "hyloc:site_sha256 = 08: must have 64 hexadecimal digits"),
        ("hyloc:frame_rate_hz", json!(0), "hyloc:frame_rate_hz = 0: must be above zero"),
        ("core:sha512", json!("00"), "core:sha512 = 00: the samples have "),
        ("core:metadata_only", json!(true), "core:metadata_only = true"),
        ("core:trailing_bytes", json!(8), "core:trailing_bytes = 8"),
        ("core:offset", json!(3), "captures[0].core:sample_start = 0: must not be below core:offset"),
        ("core:dataset", json!("../elsewhere"), "core:dataset = ../elsewhere: must be the name of a file"),
        ("core:dataset", json!("missing.dat"), "cannot be read: missing.dat: "),
        (
            "core:extensions",
            json!([{"name": "antenna", "version": "1.0.0", "optional": false}]),
            "core:extensions = antenna: this extension is not optional",
        ),
    ];
    for (key, value, expected) in cases {
        let directory = TempDir::new().unwrap();
        let path = edited(directory.path(), |metadata| metadata["global"][key] = value.clone());
        let (frames, said) = read(&path);
        let said = said.unwrap_or_else(|| panic!("{key} = {value} is accepted"));
        assert!(said.starts_with(expected), "{key}: {said}");
        assert_eq!(numbers(&frames), [0; 0], "{key}");
    }
    for (key, expected) in
        [("core:datatype", "core:datatype is missing"), ("hyloc:subcarriers", "hyloc:subcarriers is missing")]
    {
        let directory = TempDir::new().unwrap();
        let path = edited(directory.path(), |metadata| {
            drop(metadata["global"].as_object_mut().unwrap().remove(key))
        });
        assert!(read(&path).1.unwrap().starts_with(expected), "{key}");
        assert!(read_header(&path).unwrap_err().to_string().contains(expected), "{key}");
    }
    let directory = TempDir::new().unwrap();
    let path = written(EchoFileFormat::Sigmf, directory.path());
    std::fs::write(&path, "{").unwrap();
    assert!(read(&path).1.unwrap().starts_with("the metadata is no valid JSON"));
    let other = directory.path().join("echoes.dat");
    std::fs::write(&other, "").unwrap();
    assert!(read(&other).1.unwrap().contains("must end with .sigmf-meta"));
}

#[test]
fn captures_name_frames_and_times_with_gaps() {
    let directory = TempDir::new().unwrap();
    let path = edited(directory.path(), |metadata| {
        metadata["global"]["core:offset"] = json!(30);
        metadata["captures"] = json!([
            {"core:sample_start": 30, "hyloc:frame": 10, "core:datetime": "1970-01-01T00:00:01.5Z"},
            {"core:sample_start": 36, "hyloc:frame": "20"},
            {"core:sample_start": 39, "hyloc:time_ns": 7},
        ]);
    });
    let (frames, fault) = read(&path);
    // Frame 3 follows the numbers of the file, and those must increase.
    assert_eq!(numbers(&frames), [10, 11, 20]);
    assert_eq!(
        frames.iter().map(|frame| frame.intended_ns).collect::<Vec<_>>(),
        [1_500_000_000, 1_520_000_000, 0]
    );
    assert_eq!(fault.unwrap(), "frame 3 at byte 288: comes after frame 20: numbers must increase");
    let directory = TempDir::new().unwrap();
    let path = edited(directory.path(), |metadata| metadata["captures"][0]["core:sample_start"] = json!(1));
    assert!(
        read(&path)
            .1
            .unwrap()
            .starts_with("captures[0].core:sample_start = 1: a capture must begin with a frame")
    );
}

#[test]
fn a_cut_off_recording_is_used_up_to_the_cut() {
    let directory = TempDir::new().unwrap();
    let path = written(EchoFileFormat::Sigmf, directory.path());
    let data = path.with_extension("sigmf-data");
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..2 * FRAME_BYTES as usize + 5]).unwrap();
    let (frames, fault) = read(&path);
    assert_eq!(frames, [frame(0), frame(1)]);
    assert_eq!(fault.unwrap(), "frame 2 at byte 192: the samples are cut off: 5 of 96 bytes are there");
    // The same in an archive, and of all its lengths none panics or invents a frame.
    std::fs::write(&data, &bytes).unwrap();
    let archive = directory.path().join("node-1.sigmf");
    let mut builder = tar::Builder::new(Vec::new());
    for file in [&path, &data] {
        builder.append_path_with_name(file, Path::new("node-1").join(file.file_name().unwrap())).unwrap();
    }
    let whole = builder.into_inner().unwrap();
    std::fs::write(&archive, &whole).unwrap();
    assert_eq!(read(&archive), ((0..FRAMES).map(frame).collect(), None));
    let start = whole.windows(16).position(|window| window == &bytes[..16]).unwrap();
    for length in (0..start + bytes.len()).step_by(37) {
        std::fs::write(&archive, &whole[..length]).unwrap();
        let (frames, fault) = read(&archive);
        assert_eq!(frames.len(), length.saturating_sub(start) / FRAME_BYTES as usize, "{length}: {fault:?}");
        assert!(fault.is_some(), "{length}");
    }
}

#[test]
fn damaged_samples_are_not_used() {
    let directory = TempDir::new().unwrap();
    let path = written(EchoFileFormat::Sigmf, directory.path());
    let data = path.with_extension("sigmf-data");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&data, &bytes).unwrap();
    let (frames, fault) = read(&path);
    assert!(frames.is_empty() && fault.unwrap().contains("nothing of them is used"));
}

/// An archive of these echoes, in C order.
fn npz(
    path: &Path,
    entry: NpyType,
    shape: &[usize],
    values: &[u8],
    more: impl FnOnce(&mut NpzWriter<std::fs::File>),
) {
    let mut writer = NpzWriter::new(std::fs::File::create(path).unwrap());
    more(&mut writer);
    writer.begin("echoes", entry, shape).unwrap();
    writer.write(values).unwrap();
    writer.finish().unwrap();
}

#[test]
fn arrays_that_do_not_fit_are_refused_by_name() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("echoes.npz");
    let refused = |entry, shape: &[usize], more: fn(&mut NpzWriter<std::fs::File>)| {
        let bytes = vec![0; shape.iter().product::<usize>() * entry_bytes(entry)];
        npz(&path, entry, shape, &bytes, more);
        let (frames, fault) = read(&path);
        (frames.len(), fault.unwrap_or_default())
    };
    let none = |_: &mut NpzWriter<std::fs::File>| {};
    let complex = NpyType::Complex128;
    assert_eq!(refused(complex, &[4, 2, 3], none), (4, String::new()), "nothing but the echoes is needed");
    assert_eq!(refused(NpyType::Complex64, &[4, 2, 3], none), (4, String::new()));
    let said = |entry, shape: &[usize], more| refused(entry, shape, more).1;
    assert_eq!(
        said(NpyType::Float64, &[4, 2, 3], none),
        "echoes.dtype = float64: must be complex64 or complex128"
    );
    assert_eq!(said(complex, &[4, 2], none), "echoes.shape = (4, 2): must be (frames, sensors, subcarriers)");
    assert_eq!(said(complex, &[4, 3, 3], none), "echoes.shape[1] = 3: the site has 2 sensors");
    assert_eq!(said(complex, &[4, 2, 5], none), "echoes.shape[2] = 5: the site has 3 subcarriers");
    let node = said(complex, &[1, 2, 3], |writer| writer.integers("node", &[], [3]).unwrap());
    assert_eq!(node, "node = 3: this is node 1");
    let rate = said(complex, &[1, 2, 3], |writer| writer.reals("sample_rate_hz", &[], [1e6]).unwrap());
    assert!(rate.starts_with("sample_rate_hz = 1000000: must be the bandwidth"), "{rate}");
    let short = said(complex, &[2, 2, 3], |writer| writer.integers("frame", &[1], [3]).unwrap());
    assert_eq!(short, "frame.shape = (1,): echoes has 2 frames");
    let order = refused(complex, &[2, 2, 3], |writer| writer.integers("frame", &[2], [3, 3]).unwrap());
    assert_eq!(order, (1, "frame 3 at byte 96: comes after frame 3: numbers must increase".into()));
    let domain = said(complex, &[1, 2, 3], |writer| writer.text("domain", "delay").unwrap());
    assert_eq!(domain, "domain = delay: must be subcarriers or time");
    let site = said(complex, &[1, 2, 3], |writer| writer.text("site_sha256", &"01".repeat(32)).unwrap());
    assert!(site.starts_with("site_sha256 = 0101"), "{site}");
    std::fs::write(&path, "no archive").unwrap();
    assert!(read(&path).1.unwrap().starts_with("no archive of numpy arrays"));
}

fn entry_bytes(entry: NpyType) -> usize {
    entry.bytes()
}

#[test]
fn a_cut_off_archive_is_used_up_to_the_cut() {
    let directory = TempDir::new().unwrap();
    let path = written(EchoFileFormat::Npz, directory.path());
    let whole = std::fs::read(&path).unwrap();
    let start = whole.windows(6).rposition(|window| window == b"\x93NUMPY").unwrap() + 128;
    std::fs::write(&path, &whole[..start + 2 * FRAME_BYTES as usize + 5]).unwrap();
    let (frames, fault) = read(&path);
    assert_eq!(frames, [frame(0), frame(1)]);
    assert_eq!(fault.unwrap(), "frame 2 at byte 192: echoes is cut off at byte 197 of its data");
    assert_eq!(read_header(&path).unwrap().node, Some(1), "what is known about it");
    for length in (0..whole.len()).step_by(41) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let (frames, fault) = read(&path);
        let there = (length.saturating_sub(start) / FRAME_BYTES as usize).min(FRAMES as usize);
        assert_eq!(frames.len(), there, "{length}: {fault:?}");
        assert!(fault.is_some(), "{length}");
    }
}

#[test]
fn samples_that_are_not_finite_end_the_file_there() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("echoes.npz");
    let mut parts = vec![1.0f64; 24];
    parts[12 + 9] = f64::NAN;
    let bytes: Vec<u8> = parts.into_iter().flat_map(f64::to_le_bytes).collect();
    npz(&path, NpyType::Complex128, &[2, 2, 3], &bytes, |_| {});
    let (frames, fault) = read(&path);
    assert_eq!(numbers(&frames), [0]);
    assert_eq!(fault.unwrap(), "frame 1 at byte 96: sample 1 of sensor 1 is not finite");
}

#[test]
fn samples_in_time_become_subcarriers_once() {
    let directory = TempDir::new().unwrap();
    let expected = |number| {
        let samples = CMatrix::from_vec(2, 3, frame(number).samples);
        subcarriers_of_samples(&samples).as_slice().to_vec()
    };
    let path = edited(directory.path(), |metadata| metadata["global"]["hyloc:domain"] = json!("time"));
    let (frames, fault) = read(&path);
    assert_eq!((frames.len(), fault), (4, None));
    assert_eq!(frames[2].samples, expected(2));
    let rows: Vec<u8> = (0..2)
        .flat_map(|m| (0..3).map(move |n| frame(2).samples[2 * n + m]))
        .flat_map(|sample| [sample.re, sample.im])
        .flat_map(f64::to_le_bytes)
        .collect();
    let path = directory.path().join("time.npz");
    npz(&path, NpyType::Complex128, &[1, 2, 3], &rows, |writer| writer.text("domain", "time").unwrap());
    assert_eq!(read(&path).0[0].samples, expected(2));
}
