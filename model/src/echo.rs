//! Synthetic echoes: what the sensors of each IRS receive in a frame.
//!
//! Eq. (7) on subcarriers: `Y_l(f) = sum_k alpha_lk a(theta_l) a(theta_k)^H S_k X_k(f) exp(-j 2 pi f tau_lk) + N_l(f)`,
//! with the known BS-IRS delay removed; where waves are spherical, with the responses of [`crate::panel`]. The phase of a path is
//! uniform, unknown, and constant over a coherent interval. Echoes of several targets add up, with independent phases.
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
use crate::scenario::{ClockStep, CrossSection, Motion, Scenario, ScenarioError, Target};
use crate::system::{Illumination, System};
use crate::units::SPEED_OF_LIGHT_M_S;

/// A target of a scenario as it is in a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrueTarget {
    /// Its number in the scenario.
    pub identity: usize,
    /// Its position.
    pub position_m: Point,
    /// Its radar cross-section; the mean if it fluctuates.
    pub rcs_m2: f64,
}

/// A motion that is ahead by a number of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    /// The motion.
    pub motion: Motion,
    /// Frames by which it is ahead.
    pub ahead_frames: u64,
}

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
        if let Some(system) = System::measured(scenario)? {
            return Ok(Self::of_measured(scenario, system));
        }
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

    /// A source whose IRSs radiate what was measured.
    fn of_measured(scenario: &Scenario, system: System) -> Self {
        let count = system.irs_count();
        let none = || CMatrix::zeros(0, 0);
        let signal =
            |k: usize, j: usize| if j == k { system.irs[k].reflected_signal.clone() } else { none() };
        let radiated = (0..count).map(|k| (0..count).map(|j| signal(k, j)).collect()).collect();
        // Phases matter for waves between IRSs alone, which a scenario with measured signals does not have.
        let phases = vec![CVector::zeros(system.elements()); count];
        Self { scenario: scenario.clone(), radiated, phases, clocks: ClockOffsets::new(scenario), system }
    }

    /// The site: what estimators may know.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Radar cross-section of the first target; the mean if it fluctuates.
    pub fn rcs_m2(&self) -> f64 {
        self.scenario.rcs_m2()
    }

    /// Offset of the clock of node `l` in a frame.
    pub fn clock_offset_s(&self, l: usize, frame: u64) -> f64 {
        self.clocks.offset_s(l, frame)
    }

    /// Lets a clock step.
    pub fn step_clock(&mut self, step: ClockStep) {
        self.clocks.step(step);
    }

    /// Position of the first target in a frame, whether it is there or not; a random one if there is none.
    pub fn target_m(&self, frame: u64) -> Point {
        let motion = self.scenario.targets.first().map_or(&Motion::Random, |target| &target.motion);
        self.scenario.position_m(0, motion, frame)
    }

    /// The targets that are there in a frame.
    pub fn targets(&self, frame: u64) -> Vec<TrueTarget> {
        let scenario = &self.scenario;
        let there = scenario.targets.iter().enumerate().filter(|(_, target)| target.is_there(frame));
        let seen = |(identity, target): (usize, &Target)| TrueTarget {
            identity,
            position_m: scenario.position_m(identity, &target.motion, frame),
            rcs_m2: target.rcs_m2(),
        };
        there.map(seen).collect()
    }

    /// The targets that are there in a frame, with other movements: those of the scenario in their order, of which there may be
    /// fewer. More are like the first one, and always there.
    pub fn targets_on(&self, movements: &[Movement], frame: u64) -> Vec<TrueTarget> {
        let targets = &self.scenario.targets;
        let first = targets.first().cloned().unwrap_or_default();
        let another = Target { rcs_dbsm: first.rcs_dbsm, ..Target::default() };
        let moving = movements.iter().enumerate();
        let there = moving.filter(|(t, _)| targets.get(*t).unwrap_or(&another).is_there(frame));
        let seen = |(identity, Movement { motion, ahead_frames }): (usize, &Movement)| TrueTarget {
            identity,
            position_m: self.scenario.position_m(identity, motion, frame.saturating_add(*ahead_frames)),
            rcs_m2: targets.get(identity).unwrap_or(&another).rcs_m2(),
        };
        there.map(seen).collect()
    }

    /// What node `l` receives in `frame` from the first target if it is at `target_m`, see [`Self::frame_of`].
    pub fn frame(&self, l: usize, frame: u64, target_m: Point) -> CMatrix {
        self.frame_of(l, frame, &[TrueTarget { identity: 0, position_m: target_m, rcs_m2: self.rcs_m2() }])
    }

    /// What node `l` receives in `frame` from these targets: M sensors x L subcarriers; noise only if there is no such node.
    /// Waves that are scattered from one target to another are left out.
    pub fn frame_of(&self, l: usize, frame: u64, targets: &[TrueTarget]) -> CMatrix {
        let mut received = self.noise(l, frame);
        for wave in targets.iter().flat_map(|target| self.waves(l, frame, target)) {
            self.add(&mut received, &wave);
        }
        received
    }

    /// The gains alpha_lk of a target in a frame on all paths, K x K, with their phases and the fluctuation of the
    /// cross-section.
    pub fn gains(&self, frame: u64, target: &TrueTarget) -> CMatrix {
        let count = self.system.irs_count();
        CMatrix::from_fn(count, count, |l, k| self.path_gain(l, k, frame, target))
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

    fn waves(&self, l: usize, frame: u64, target: &TrueTarget) -> Vec<Wave> {
        let target_m = target.position_m;
        let count = self.system.irs_count();
        let Some(node) = self.system.irs.get(l) else { return Vec::new() };
        let arrival = self.system.arrival(self.wavefront(), &node.pose, target_m);
        let offset_s = self.clocks.offset_s(l, frame);
        let mut waves = Vec::with_capacity(count);
        for k in 0..count {
            let gain = self.path_gain(l, k, frame, target);
            let delay_s = self.delay_s(l, k, target_m) + offset_s;
            let steering = self.departure(k, target_m);
            for j in (0..count).filter(|&j| !self.radiated[k][j].is_empty()) {
                let content = self.radiated[k][j].tr_mul(&steering.conjugate());
                waves.push(Wave { stream: j, gain, arrival: arrival.clone(), content, delay_s });
            }
        }
        if self.scenario.imperfections.second_order_reflections {
            self.second_order(l, frame, target, &arrival, &mut waves);
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
    fn path_gain(&self, l: usize, k: usize, frame: u64, target: &TrueTarget) -> Complex64 {
        // Paths of target t are counted from t 2^32.
        let path = (target.identity as u64) << 32 | (l * self.system.irs_count() + k) as u64;
        let draw = |purpose| stream(self.scenario.seed, purpose, [self.scenario.interval(frame), path]);
        let phasor = unit_phasor(draw(Purpose::PathPhase).random_range(0.0..TAU));
        let fluctuation = match self.scenario.imperfections.cross_section {
            CrossSection::Constant => 1.0,
            CrossSection::Swerling1 => draw(Purpose::CrossSection).sample::<f64, _>(Exp1).sqrt(),
        };
        phasor * self.system.echo_gain(l, k, target.position_m, target.rcs_m2).unwrap_or(0.0) * fluctuation
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

    fn second_order(
        &self,
        l: usize,
        frame: u64,
        target: &TrueTarget,
        arrival: &CVector,
        waves: &mut Vec<Wave>,
    ) {
        let target_m = target.position_m;
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
                gain: self.path_gain(l, j, frame, target) * gain,
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
                gain: self.path_gain(j, k, frame, target) * gain * through,
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
