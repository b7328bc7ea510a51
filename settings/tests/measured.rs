//! Scenarios with measured signals: the site of the file is taken to the bit, and a file that does not fit is refused by array.

use std::path::{Path, PathBuf};

use arrays::NpzWriter;
use hyloc_settings::{Layers, load_scenario};
use model::{CMatrix, EchoSource, Scenario, System};
use num_complex::Complex64;
use tempfile::TempDir;

/// What a file has, to be changed before it is written.
#[derive(Clone)]
struct Signals {
    frequencies_hz: Vec<f64>,
    transmit_power_w: Vec<f64>,
    irs: Vec<(CMatrix, CMatrix, Vec<u64>)>,
}

impl Signals {
    fn of(system: &System) -> Self {
        let irs = system.irs.iter().map(|irs| {
            let subcarriers = irs.waveform.subcarriers.iter().map(|i| *i as u64).collect();
            (irs.reflected_signal.clone(), irs.waveform.codes.clone(), subcarriers)
        });
        Self {
            frequencies_hz: (0..system.subcarriers).map(|i| system.frequency_hz(i)).collect(),
            transmit_power_w: vec![system.transmit_power_w],
            irs: irs.collect(),
        }
    }

    fn write(&self, path: &Path) {
        let mut writer = NpzWriter::new(std::fs::File::create(path).unwrap());
        let list = |values: &[f64]| if values.len() == 1 { vec![] } else { vec![values.len()] };
        writer.reals("frequencies_hz", &[self.frequencies_hz.len()], self.frequencies_hz.clone()).unwrap();
        writer
            .reals("transmit_power_w", &list(&self.transmit_power_w), self.transmit_power_w.clone())
            .unwrap();
        for (k, (signal, codes, subcarriers)) in self.irs.iter().enumerate() {
            for (name, matrix) in [("reflected_signal", signal), ("codes", codes)] {
                let shape = [matrix.nrows(), matrix.ncols()];
                writer.complex(&format!("{name}_{k}"), &shape, matrix.transpose().iter().copied()).unwrap();
            }
            writer.integers(&format!("subcarriers_{k}"), &[subcarriers.len()], subcarriers.clone()).unwrap();
        }
        writer.finish().unwrap();
    }
}

/// A directory with `site.npz` after a change, and `scenario.toml` that names it.
fn files(change: impl FnOnce(&mut Signals)) -> (TempDir, PathBuf) {
    let mut signals = Signals::of(&System::new(&Scenario::default()).unwrap());
    change(&mut signals);
    let directory = TempDir::new().unwrap();
    signals.write(&directory.path().join("site.npz"));
    let scenario = directory.path().join("scenario.toml");
    std::fs::write(&scenario, "measured = \"site.npz\"\n").unwrap();
    (directory, scenario)
}

fn load(file: &Path, overrides: &[&str]) -> Result<Scenario, String> {
    let overrides = overrides.iter().map(|pair| (*pair).to_owned()).collect();
    let layers = Layers { file: Some(file.to_path_buf()), overrides, environment: Some(Default::default()) };
    load_scenario(&layers).map_err(|error| error.to_string())
}

#[test]
fn what_is_written_is_taken_back_to_the_bit() {
    let (_directory, file) = files(|_| {});
    let scenario = load(&file, &[]).unwrap();
    let (original, measured) =
        (EchoSource::new(&Scenario::default()).unwrap(), EchoSource::new(&scenario).unwrap());
    assert_eq!(original.system(), measured.system());
    assert_eq!(System::new(&scenario).as_ref(), Ok(original.system()));
    for l in 0..3 {
        assert_eq!(
            original.frame_of(l, 5, &original.targets(5)),
            measured.frame_of(l, 5, &measured.targets(5))
        );
    }
    // The file is named by its whole path from now on, so that other processes find it.
    let text = toml::to_string(&scenario).unwrap();
    assert!(text.contains(&format!("measured = \"{}", file.parent().unwrap().display())), "{text}");
    let again = file.with_file_name("again.toml");
    std::fs::write(&again, text).unwrap();
    assert_eq!(load(&again, &[]).unwrap(), scenario);
}

/// Signals that no channel model of ours would draw: other streams, subcarriers and bandwidth.
#[test]
fn signals_of_other_origin_make_the_site() {
    let i = Complex64::i();
    let (_directory, file) = files(|signals| {
        *signals = Signals {
            frequencies_hz: (0..12).map(|n| (f64::from(n) - 6.0) * 1e6).collect(),
            transmit_power_w: vec![4.0],
            irs: (0..3u64)
                .map(|k| {
                    let signal = CMatrix::from_fn(10, 1, |n, _| i.powu((n as u32 + k as u32) % 4) * 0.5);
                    let codes = CMatrix::from_fn(1, 4, |_, n| i.powu(n as u32) * 0.5);
                    (signal, codes, (0..4).map(|n| 3 * n + k).collect())
                })
                .collect(),
        };
    });
    let power = ["base_station.power_dbm=36.020599913279624"];
    let site = System::new(&load(&file, &power).unwrap()).unwrap();
    assert_eq!(
        (site.subcarriers, site.bandwidth_hz, site.irs[1].waveform.subcarriers.as_slice()),
        (12, 12e6, &[1, 4, 7, 10][..])
    );
    assert_eq!(site.irs[0].reflected_signal[(1, 0)], i * 0.5);
    // Six decibels more are twice the amplitude.
    let louder = System::new(&load(&file, &["base_station.power_dbm=42.04119982655925"]).unwrap()).unwrap();
    assert!((louder.irs[0].reflected_signal[(1, 0)] - i).norm() < 1e-9);
    // The simulator radiates them: an echo is four times as strong at four times the power.
    let energy = |power| {
        let source = EchoSource::new(&load(&file, &[power]).unwrap()).unwrap();
        (source.frame(0, 0, source.target_m(0)) - source.noise(0, 0)).norm_squared()
    };
    let ratio = energy("base_station.power_dbm=42.04119982655925") / energy(power[0]);
    assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
}

type Change = fn(&mut Signals);

#[test]
fn a_file_that_does_not_fit_is_refused_by_array() {
    let cases: [(Change, &str); 14] = [
        (|s| s.frequencies_hz[17] += 1e5, "frequencies_hz[17] = "),
        (|s| s.frequencies_hz[17] = f64::NAN, "frequencies_hz[17] = NaN"),
        (|s| s.frequencies_hz.iter_mut().for_each(|f| *f += 2e5), "frequencies_hz[0] = "),
        (|s| s.frequencies_hz.truncate(1), "frequencies_hz.shape = (1,)"),
        (|s| s.frequencies_hz.truncate(99), "frequencies_hz[0] = "),
        (|s| s.transmit_power_w = vec![-1.0], "transmit_power_w = -1: must be a number above zero"),
        (|s| s.transmit_power_w = vec![1.0, 2.0], "transmit_power_w.shape = (2,)"),
        (|s| s.irs[1].0[(2, 3)].re = f64::INFINITY, "reflected_signal_1[2, 3]: must be finite"),
        (|s| s.irs[1].0 = CMatrix::zeros(9, 10), "reflected_signal_1 = 9 x 10: must be 10 x 10"),
        (|s| s.irs[2].1 *= Complex64::from(1.001), "codes_2 = 0.002"),
        (|s| s.irs[2].1 = s.irs[2].1.clone().remove_column(0), "codes_2 = 10 x 32: must be 10 x 33"),
        (|s| s.irs[1].2[0] = s.irs[0].2[0], "subcarriers_1[0] = "),
        (|s| s.irs[0].2[32] = 100, "subcarriers_0[32] = 100: must be below 100"),
        (|s| s.irs.truncate(2), "has signals of 2 IRSs, the scenario has 3"),
    ];
    for (change, expected) in cases {
        let (directory, file) = files(change);
        let said = load(&file, &[]).unwrap_err();
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(said.contains(&directory.path().display().to_string()), "{said} names the file");
    }
    let (directory, file) = files(|s| s.irs.clear());
    assert!(load(&file, &[]).unwrap_err().contains("reflected_signal_0: there is no such array"));
    std::fs::write(directory.path().join("site.npz"), "no archive").unwrap();
    assert!(load(&file, &[]).unwrap_err().contains("no archive of numpy arrays"));
    std::fs::remove_file(directory.path().join("site.npz")).unwrap();
    assert!(load(&file, &[]).unwrap_err().starts_with("cannot read "));
}

#[test]
fn what_needs_the_channel_model_is_refused() {
    let (_directory, file) = files(|_| {});
    for pair in ["imperfections.channel_error=0.1", "imperfections.second_order_reflections=true"] {
        let said = load(&file, &[pair]).unwrap_err();
        assert!(said.contains("needs the channel model, which measured signals replace"), "{said}");
    }
    // A scenario that nobody has read the file for.
    let unread: Scenario = toml::from_str("measured = \"site.npz\"").unwrap();
    let said = System::new(&unread).unwrap_err().to_string();
    assert_eq!(said, "measured = site.npz: the file has not been read");
}
