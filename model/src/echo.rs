//! Synthetic echoes: what the sensors of each IRS receive in a frame.
//!
//! Eq. (7) on subcarriers: `Y_l(f) = sum_k alpha_lk a(theta_l) a(theta_k)^H S_k X_k(f) exp(-j 2 pi f tau_lk) + N_l(f)`,
//! with the known BS-IRS delay removed; where waves are spherical, with the responses of [`crate::panel`]. The phase of a path is uniform, unknown, and constant over a coherent interval.
//! Imperfections that the paper does not model, off by default:
//! - *leakage*: beams made from an erroneous channel estimate, so that IRS k also radiates the streams of the others;
//! - *clocks*: the clock of each node has an offset, see [`crate::clocks`];
//! - *fluctuating cross-section*: Swerling I per path;
//! - *second-order reflections*: waves that pass from one IRS to another on their way to the target or back, over a
//!   line-of-sight channel of free-space gain. Between IRSs they are plane.
//!
//! Only the echo source knows the truth; estimators get a [`System`].

use std::f64::consts::TAU;

use num_complex::Complex64;
use rand::RngExt;
use rand_distr::{Exp1, StandardNormal};

use crate::algebra::{CMatrix, CVector, unit_phasor};
use crate::beamforming::apply_phases;
use crate::channel::free_space_gain;
use crate::clocks::ClockOffsets;
use crate::geometry::{Point, cascade_delay_s};
use crate::panel::Wavefront;
use crate::random::{Purpose, stream};
use crate::scenario::{CrossSection, Motion, Scenario, ScenarioError};
use crate::system::{Illumination, System};
use crate::units::SPEED_OF_LIGHT_M_S;

/// Generates the frames of a scenario.
#[derive(Debug, Clone)]
pub struct EchoSource {
    scenario: Scenario,
    system: System,
    /// What IRS k actually radiates of the streams of IRS j: `Theta_k H_k W_j`, indexed [k][j].
    radiated: Vec<Vec<CMatrix>>,
    phases: Vec<CVector>,
    clocks: ClockOffsets,
}

/// A wave that arrives at the sensors of one node on the streams of IRS `stream`.
struct Wave {
    stream: usize,
    gain: Complex64,
    /// Response across the sensors.
    arrival: CVector,
    /// Content per stream, `a^H S`.
    content: CVector,
    delay_s: f64,
}

impl EchoSource {
    /// Validates the scenario and draws its channels, beams, phases and clocks.
    pub fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        let illumination = Illumination::new(scenario)?;
        let leaky = scenario.imperfections.channel_error > 0.0;
        let count = scenario.irs.len();
        let radiated = (0..count)
            .map(|k| {
                let reflect = |j: usize| {
                    let incident = &illumination.channels[k] * &illumination.beams[j];
                    apply_phases(&illumination.phases[k], &incident)
                };
                // Without channel error the streams of the others are zero up to rounding.
                (0..count).map(|j| if leaky || j == k { reflect(j) } else { CMatrix::zeros(0, 0) }).collect()
            })
            .collect();
        let clocks = ClockOffsets::new(scenario);
        let system = System::of(scenario, illumination.believed)?;
        Ok(Self { scenario: scenario.clone(), system, radiated, phases: illumination.phases, clocks })
    }

    /// The site: what estimators may know.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Radar cross-section of the target; the mean if it fluctuates.
    pub fn rcs_m2(&self) -> f64 {
        self.scenario.rcs_m2()
    }

    /// Offset of the clock of node `l` in a frame.
    pub fn clock_offset_s(&self, l: usize, frame: u64) -> f64 {
        self.clocks.offset_s(l, frame)
    }

    fn interval(&self, frame: u64) -> u64 {
        frame / self.scenario.signal.coherent_frames
    }

    /// Position of the target in a frame.
    pub fn target_m(&self, frame: u64) -> Point {
        self.target_on_m(&self.scenario.target.motion, frame)
    }

    /// Position of a target with another motion in a frame.
    pub fn target_on_m(&self, motion: &Motion, frame: u64) -> Point {
        motion.position_m(frame).unwrap_or_else(|| {
            let mut draw = stream(self.scenario.seed, Purpose::Target, [self.interval(frame), 0]);
            let (coverage, u, v) = (&self.scenario.coverage, draw.random(), draw.random());
            if coverage.is_flat() { coverage.at(u, v) } else { coverage.at_height(u, v, draw.random()) }
        })
    }

    /// What node `l` receives in `frame` from a target at `target_m`: M sensors x L subcarriers; noise only if there is no
    /// such node.
    pub fn frame(&self, l: usize, frame: u64, target_m: Point) -> CMatrix {
        let mut received = self.noise(l, frame);
        for wave in self.waves(l, frame, target_m) {
            self.add(&mut received, &wave);
        }
        received
    }

    /// What node `l` receives in `frame` without a target: noise only.
    pub fn noise(&self, l: usize, frame: u64) -> CMatrix {
        let mut noise = stream(self.scenario.seed, Purpose::Noise, [l as u64, frame]);
        let deviation = (self.system.noise_power_w / 2.0).sqrt();
        let mut draw = || deviation * noise.sample::<f64, _>(StandardNormal);
        CMatrix::from_fn(self.system.sensors(), self.system.subcarriers, |_, _| {
            Complex64::new(draw(), draw())
        })
    }

    fn waves(&self, l: usize, frame: u64, target_m: Point) -> Vec<Wave> {
        let count = self.system.irs_count();
        let Some(node) = self.system.irs.get(l) else { return Vec::new() };
        let arrival = self.system.arrival(self.wavefront(), &node.pose, target_m);
        let offset_s = self.clocks.offset_s(l, frame);
        let mut waves = Vec::with_capacity(count);
        for k in 0..count {
            let gain = self.path_gain(l, k, frame, target_m);
            let delay_s = self.delay_s(l, k, target_m) + offset_s;
            let steering = self.departure(k, target_m);
            for j in (0..count).filter(|&j| !self.radiated[k][j].is_empty()) {
                let content = self.radiated[k][j].tr_mul(&steering.conjugate());
                waves.push(Wave { stream: j, gain, arrival: arrival.clone(), content, delay_s });
            }
        }
        if self.scenario.imperfections.second_order_reflections {
            self.second_order(l, frame, target_m, &arrival, &mut waves);
        }
        waves
    }

    fn departure(&self, k: usize, target_m: Point) -> CVector {
        self.system.departure(self.wavefront(), &self.system.irs[k].pose, target_m)
    }

    /// The waves as they are, whatever estimators assume.
    fn wavefront(&self) -> Wavefront {
        self.scenario.signal.wavefront
    }

    fn delay_s(&self, l: usize, k: usize, target_m: Point) -> f64 {
        cascade_delay_s(&self.system.irs[l].pose, &self.system.irs[k].pose, target_m)
    }

    /// alpha_lk with its phase and the fluctuation of the cross-section.
    fn path_gain(&self, l: usize, k: usize, frame: u64, target_m: Point) -> Complex64 {
        let path = (l * self.system.irs_count() + k) as u64;
        let draw = |purpose| stream(self.scenario.seed, purpose, [self.interval(frame), path]);
        let phasor = unit_phasor(draw(Purpose::PathPhase).random_range(0.0..TAU));
        let fluctuation = match self.scenario.imperfections.cross_section {
            CrossSection::Constant => 1.0,
            CrossSection::Swerling1 => draw(Purpose::CrossSection).sample::<f64, _>(Exp1).sqrt(),
        };
        phasor * self.system.echo_gain(l, k, target_m, self.rcs_m2()).unwrap_or(0.0) * fluctuation
    }

    /// Gain and delay of the line of sight between two IRSs.
    fn between(&self, from: usize, to: usize) -> (f64, f64) {
        let distance_m = self.system.irs[from].pose.distance_m(self.system.irs[to].pose.position_m);
        (free_space_gain(self.system.wavelength_m, distance_m), distance_m / SPEED_OF_LIGHT_M_S)
    }

    /// `a` of the elements of IRS `k` for plane waves to or from another IRS.
    fn elements_towards(&self, k: usize, other: usize) -> CVector {
        let irs = &self.system.irs;
        self.system.departure(Wavefront::Plane, &irs[k].pose, irs[other].pose.position_m)
    }

    fn second_order(&self, l: usize, frame: u64, target_m: Point, arrival: &CVector, waves: &mut Vec<Wave>) {
        let irs = &self.system.irs;
        let count = self.system.irs_count();
        let offset_s = self.clocks.offset_s(l, frame);
        for (k, j) in (0..count).flat_map(|k| (0..count).map(move |j| (k, j))).filter(|(k, j)| k != j) {
            // BS -> IRS k -> IRS j -> target -> sensors of l.
            let (gain, extra_s) = self.between(k, j);
            let sent = self.elements_towards(k, j).ad_mul(&self.radiated[k][k]);
            let bounce = apply_phases(&self.phases[j], &(self.elements_towards(j, k) * sent));
            waves.push(Wave {
                stream: k,
                gain: self.path_gain(l, j, frame, target_m) * gain,
                arrival: arrival.clone(),
                content: bounce.tr_mul(&self.departure(j, target_m).conjugate()),
                delay_s: self.delay_s(l, j, target_m) + extra_s + offset_s,
            });
            if j == l {
                continue;
            }
            // BS -> IRS k -> target -> IRS j -> sensors of l.
            let (gain, extra_s) = self.between(j, l);
            let caught = self.phases[j].component_mul(&self.departure(j, target_m));
            let through = self.elements_towards(j, l).dotc(&caught);
            waves.push(Wave {
                stream: k,
                gain: self.path_gain(j, k, frame, target_m) * gain * through,
                arrival: self.system.arrival(Wavefront::Plane, &irs[l].pose, irs[j].pose.position_m),
                content: self.radiated[k][k].tr_mul(&self.departure(k, target_m).conjugate()),
                delay_s: self.delay_s(j, k, target_m) + extra_s + offset_s,
            });
        }
    }

    /// Adds `gain a (content^T X(f)) exp(-j 2 pi f tau)` on the subcarriers of the wave's streams.
    fn add(&self, received: &mut CMatrix, wave: &Wave) {
        let waveform = &self.system.irs[wave.stream].waveform;
        let phasors = self.system.delay_phasors(wave.stream, wave.delay_s).unwrap_or_default();
        for ((&subcarrier, code), phasor) in
            waveform.subcarriers.iter().zip(waveform.codes.column_iter()).zip(phasors)
        {
            let symbol = wave.gain * phasor * wave.content.dot(&code);
            for (out, a) in received.column_mut(subcarrier).iter_mut().zip(wave.arrival.iter()) {
                *out += symbol * a;
            }
        }
    }
}
