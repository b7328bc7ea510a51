//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use settings::check::within;
use settings::{Layered, SettingsError};
use telemetry::exit;
use trust::{ClientTls, Identity, Paths};

use crate::commands::{self, certs::CertsCommand};
use crate::demo::{self, DemoFlags};
use crate::export;
use crate::figures::{self, FigureFlags};
use crate::kpi::{self, KpiFlags};
use crate::latency::{self, LatencyFlags};
use crate::score::{self, ScoreFlags};
use crate::solve::angles::{AngleCase, AngleSolveFlags};
use crate::solve::crb::CrbCase;
use crate::solve::delay::DelayCase;
use crate::solve::direct::DirectCase;
use crate::solve::locate::LocateCase;
use crate::solve::{self, SolveFiles};
use crate::sweep::{self, SweepFlags};
use crate::verdict::DetectionConditions;

/// Locate a target with several intelligent reflecting surfaces (IRSs) at once.
///
/// A base station illuminates K IRSs; each reflects towards the target and listens with its own
/// sensors. Every pair of reflecting and sensing IRS is a path with a delay and two angles: K^2 paths,
/// one position.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct HylocArguments {
    #[command(subcommand)]
    command: HylocCommand,
}

#[derive(Debug, Subcommand)]
enum HylocCommand {
    /// Run the whole pipeline on this machine: simulator, K nodes and fusion center as real processes.
    ///
    /// By default Table I: K = 3 IRSs, 50 dBm, 50 frames a second. Examples:
    ///
    ///   hyloc demo
    ///   hyloc demo --nodes 8 --frames 200 --rate 10
    ///   hyloc demo --power-dbm 40 --frames-per-fix 10 --fixes fixes.jsonl
    ///   hyloc demo --kill-node-after 100 --json
    ///   hyloc demo --dashboard --allow-control --backhaul fibre
    ///   hyloc demo --tls
    ///
    /// The summary is always printed. Exit code: 0 with fixes; 69 without any, with the most frequent
    /// reason; 70 if a process died unexpectedly. If a node dies the others continue; if any other
    /// process dies, or a node before the first fix, the demo ends.
    #[command(verbatim_doc_comment)]
    Demo(DemoFlags),
    /// Run a fusion center: assembles the reports of all nodes, estimates positions and publishes fixes.
    Fusion(Box<Layered<fusion_center::FusionOptions>>),
    /// Run the node of one IRS: estimates delays from echoes by matched filter and reports to the fusion center.
    ///
    ///   hyloc node --index 0
    ///   hyloc node --echoes echoes/node-0.sigmf-meta
    #[command(verbatim_doc_comment)]
    Node(Box<Layered<irs_node::NodeOptions>>),
    /// Run the simulator: sends echo frames to the nodes, and the truth to the fusion center for display.
    ///
    ///   hyloc simulate --fusion 127.0.0.1:7400 --frames 500
    ///   hyloc simulate --frames 500 --echoes-out echoes --echoes-format npz
    #[command(verbatim_doc_comment)]
    Simulate(Box<Layered<simulator::SimulatorOptions>>),
    /// Run a backhaul emulator: a TCP relay between nodes and fusion center with configurable impairments.
    ///
    ///   hyloc backhaul --fusion 127.0.0.1:7400 --profile congested
    ///   hyloc backhaul cut 127.0.0.2
    ///   hyloc backhaul measure
    #[command(verbatim_doc_comment)]
    Backhaul(Box<backhaul::RelayArguments>),
    /// Query the health of a process: exit code 0 if it is ready, otherwise 1.
    ///
    ///   hyloc healthcheck http://127.0.0.1:7401/health
    ///   hyloc healthcheck https://192.0.2.7:7401/health --tls-ca certs/ca.pem
    #[command(verbatim_doc_comment)]
    Healthcheck {
        /// As in http://127.0.0.1:7401/health.
        url: String,
        /// Whether it answers at all, ready or not.
        #[arg(long)]
        alive: bool,
        #[command(flatten)]
        tls: ClientFlags,
    },
    /// Make a small authority and certificates for mutual TLS, for demos and labs.
    ///
    /// A certificate names the role of its holder: fusion-center, node/INDEX, simulator, backhaul,
    /// watcher (reads) or operator (reads and changes). An existing PKI can issue certificates with the
    /// same names instead: spiffe://DOMAIN/hyloc/ROLE as the URI among the alternative names.
    #[command(subcommand, verbatim_doc_comment)]
    Certs(CertsCommand),
    /// Measure latency per stage for several IRS counts, through real processes, open loop at a fixed rate.
    ///
    ///   hyloc latency --nodes 3,8 --frames 300 --rate 20 --out latency
    #[command(verbatim_doc_comment)]
    Latency(LatencyFlags),
    /// Score a scenario against the sensing service categories of 3GPP TS 22.137.
    ///
    /// Runs echoes, nodes and fusion in this process, without sockets: N frames with a target at a random
    /// position of the coverage area, and N of noise alone. Prints, per category, what is required and what
    /// is reached: horizontal and vertical accuracy at 95 % confidence, latency, refresh, missed detection
    /// and false alarm. A requirement is met only if the whole 95 % interval meets it, which takes enough
    /// frames: about 400 for 1 % missed detection, 200 for 2 %. Latency is from the end of an echo frame to its
    /// fix (slowest node plus fusion), without any network; refresh is the time this machine needs per
    /// frame for all nodes and fusion. Everything but these two follows from the seed. Examples:
    ///
    ///   hyloc kpi --scenario deploy/scenarios/hall.toml
    ///   hyloc kpi --scenario deploy/scenarios/hall.toml --power-dbm 20 --frames 1000 --json
    ///
    /// The exit code is 0 whatever the verdict.
    #[command(verbatim_doc_comment)]
    Kpi(KpiFlags),
    /// Solve a recording (`--record DIR`) again: the same fixes, bit for bit.
    ///
    /// The fixes are compared with those that the recording contains; differences are named.
    Replay {
        /// Directory of the recording.
        directory: PathBuf,
        /// Output file with one JSON line per fix; `-` is standard output, and tables then go to standard error.
        #[arg(long, value_name = "FILE")]
        fixes: Option<PathBuf>,
        /// Print one JSON object instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Score fixes of anybody against the truth and the exact bound.
    ///
    /// Prints availability, rms error, the gap to the bound with its 95 % interval, NEES (the mean normalised
    /// squared error, if covariances are stated) with its interval, gross errors above 1 m, and for several targets
    /// GOSPA with its parts. Frames of the truth that the fixes do not contain count as frames without a fix.
    /// The score of the fix log of a demo is the summary of that demo. Examples:
    ///
    ///   hyloc score --truth fixes.jsonl --fixes mine.csv
    ///   hyloc score --truth truth.jsonl --fixes mine.jsonl --scenario deploy/scenarios/paper.toml --json
    ///
    /// Exit code 65 names file, line and key of what cannot be read.
    #[command(verbatim_doc_comment)]
    Score(ScoreFlags),
    /// Check or generate scenarios.
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Solve one kind of problem from a JSON file.
    #[command(subcommand)]
    Solve(SolveCommand),
    /// Reproduce Section VI of the paper: every figure as plot and data, and a verdict on every claim.
    ///
    /// Every figure is a plan of hyloc/plans, run by the engine of `hyloc sweep` on all cores; the same
    /// seed and trials give the same files on any number of threads. Writes NAME.csv, NAME.svg and
    /// NAME.png for each figure, and report.md and report.html. docs/science/claims.md describes them.
    /// Ctrl-C keeps what is finished, with exit code 130, and --resume goes on. `hyloc sweep
    /// hyloc/plans/NAME.toml` runs one figure alone, in parts if needed. Examples:
    ///
    ///   hyloc figures --quick --out quick-figures
    ///   hyloc figures --only angle-power location-power --trials 2000
    ///   hyloc figures --resume
    #[command(verbatim_doc_comment)]
    Figures(FigureFlags),
    /// Monte Carlo over a grid of scenario keys and settings, on all cores or on many machines.
    ///
    /// A trial is one frame of the scenario, from echoes to fixes, compared with the truth and the exact bound,
    /// or what the `measure` of the plan says; hyloc/plans has the plans of the report's figures.
    /// Writes sweep.csv and sweep.parquet (long form: one row per point and metric, with its 95 % interval)
    /// and a plot per axis. The same plan gives the same bytes for any number of threads, shards and
    /// interruptions. Examples:
    ///
    ///   hyloc sweep --grid base_station.power_dbm=40:60:5 --grid method=direct,three-stage --trials 500
    ///   hyloc sweep plan.toml --gap-interval-db 0.2 --out results
    ///   hyloc sweep plan.toml --out results --resume
    ///   hyloc sweep plan.toml --out results --shard 3/8
    ///   hyloc sweep merge results
    ///   hyloc sweep hyloc/plans/angle-power.toml --trials 20 --out angles
    ///
    /// Ctrl-C keeps what is finished, with exit code 130.
    #[command(verbatim_doc_comment)]
    Sweep(SweepFlags),
    /// Print a script that completes commands and options in a shell.
    ///
    ///   hyloc completions bash > ~/.local/share/bash-completion/completions/hyloc
    ///   hyloc completions fish > ~/.config/fish/completions/hyloc.fish
    #[command(verbatim_doc_comment)]
    Completions { shell: Shell },
    /// Write manual pages of all commands, hyloc.1, hyloc-demo.1 and so on, and print their paths.
    ///
    ///   hyloc man ~/.local/share/man/man1
    #[command(verbatim_doc_comment)]
    Man {
        /// Output directory.
        directory: PathBuf,
    },
}

/// The client side of TLS.
#[derive(Debug, Args)]
struct ClientFlags {
    /// Certificates of the authorities that the server is verified by, for https.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate of a watcher or operator, for what is not open to all.
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ClientFlags {
    fn load(self) -> Result<Option<ClientTls>, SettingsError> {
        Ok(match (self.tls_ca, self.tls_cert.zip(self.tls_key)) {
            (Some(ca), Some((cert, key))) => Some(Identity::load(Paths { ca, cert, key })?.client(None)),
            (Some(ca), None) => Some(ClientTls::anonymous(&ca)?),
            (None, _) => None,
        })
    }
}

#[derive(Debug, Subcommand)]
enum ScenarioCommand {
    /// Check a scenario: derived quantities, bounds, link budget, and whether it will work.
    ///
    /// Prints the SNR of every path, rank cases, near-field ratios, sectors, bounds, the link budget of the
    /// strongest and the weakest path line by line, and a verdict: the share of targets in the coverage
    /// area that the direct method is expected to detect at the allowed rate of false alarms, and, if it is
    /// low, how many dB are missing and what would supply them. Nothing is simulated.
    ///
    /// Settings come in layers: the defaults (Table I of the paper), the file, environment variables
    /// such as HYLOC__BASE_STATION__POWER_DBM=40, and --set. Examples:
    ///
    ///   hyloc scenario check deploy/scenarios/paper.toml
    ///   hyloc scenario check deploy/scenarios/rank-one.toml --set base_station.power_dbm=60 --json
    ///   hyloc scenario check --set base_station.power_dbm=30 --frames-per-fix 20
    #[command(verbatim_doc_comment)]
    Check {
        /// Scenario file, TOML; the defaults without one.
        file: Option<PathBuf>,
        /// Override one key; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Share of frames without a target that may give a fix, as set at the fusion center.
        #[arg(long, value_name = "P", default_value = "0.0005", value_parser = within(1e-12, 0.5))]
        false_alarm_probability: f64,
        /// Echo frames that one fix averages coherently.
        #[arg(long, default_value = "1", value_name = "F", value_parser = within::<u64>(1, 1000))]
        frames_per_fix: u64,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Print the blocks of simulated scenes, with S_k and weights, in the format of `hyloc solve angles`.
    ///
    /// Blocks of the first frame at the true delays, scaled to unit noise and unit mean norm of S_k; scene i has the
    /// scenario's seed plus i.
    Blocks {
        /// Scenario file, TOML; the defaults without one.
        file: Option<PathBuf>,
        /// Override one key; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Number of scenes.
        #[arg(long, value_name = "N", default_value = "1", value_parser = within::<u64>(1, 10_000))]
        scenes: u64,
    },
    /// Write the site of a scenario as arrays, site.npz and site.json, for estimators outside of hyloc.
    ///
    /// The arrays are everything that an estimator may know: frequencies, and for every IRS the reflected
    /// signal S_k, codes X_k with their subcarriers, position, axes, and offsets of elements and sensors;
    /// noise and coverage. site.json has the scalars, the hash of the site, and the shape and unit of every
    /// array. A scenario takes signals, codes and frequencies back, or those measured elsewhere, with its
    /// key `measured`:
    ///
    ///   hyloc scenario export deploy/scenarios/paper.toml --out site
    ///   hyloc scenario check --set measured=site/site.npz
    #[command(verbatim_doc_comment)]
    Export {
        /// Scenario file, TOML; the defaults without one.
        file: Option<PathBuf>,
        /// Override one key; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Output directory.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print a scenario with K IRSs on a ring around the coverage area, as TOML.
    ///
    /// Subcarriers and transmit antennas grow with K, so that the energy per path stays the same.
    Generate {
        /// Number of IRSs, 2 to 32.
        #[arg(long)]
        nodes: usize,
        /// Base scenario; the defaults without one.
        #[arg(long)]
        scenario: Option<PathBuf>,
        /// Override one key of it; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum SolveCommand {
    /// Fisher information and Cramer-Rao bounds of given scenes, gain unknown (exact) and known (paper).
    Crb(SolveFiles),
    /// Matched-filter delay and block of given spectra.
    Delay(SolveFiles),
    /// Position, covariance and integrity from cascade delays and bearings; `null` means missing.
    Locate(SolveFiles),
    /// Positions of one or several targets, and unknown clock offsets, from the spectra of all paths; `null` means missing.
    Direct(SolveFiles),
    /// Joint angles of all paths from given blocks, by ADMM on the atomic-norm problem.
    Angles {
        #[command(flatten)]
        files: SolveFiles,
        #[command(flatten)]
        settings: AngleSolveFlags,
    },
}

/// Runs a command; an error is printed as one sentence on standard error.
pub fn run(arguments: HylocArguments) -> ExitCode {
    let code = dispatch(arguments.command).unwrap_or_else(|error| exit::fail("hyloc", &error));
    match telemetry::output_failure().filter(|_| code == ExitCode::SUCCESS) {
        Some(error) => exit::fail("hyloc", &error),
        None => code,
    }
}

fn dispatch(command: HylocCommand) -> anyhow::Result<ExitCode> {
    let finished = match command {
        HylocCommand::Fusion(arguments) => return Ok(fusion_center::main(&arguments)),
        HylocCommand::Node(arguments) => return Ok(irs_node::main(&arguments)),
        HylocCommand::Simulate(arguments) => return Ok(simulator::main(&arguments)),
        HylocCommand::Backhaul(arguments) => return Ok(backhaul::main(&arguments)),
        HylocCommand::Healthcheck { url, alive, tls } => {
            return Ok(telemetry::client::check(tls.load()?.as_ref(), &url, alive));
        }
        HylocCommand::Certs(command) => commands::certs::run(&command),
        HylocCommand::Demo(flags) => return demo::run(&flags),
        HylocCommand::Latency(flags) => latency::run(&flags),
        HylocCommand::Kpi(flags) => kpi::run(&flags),
        HylocCommand::Replay { directory, fixes, json } => {
            commands::replay::replay(&directory, fixes.as_deref(), json)
        }
        HylocCommand::Score(flags) => score::run(&flags),
        HylocCommand::Scenario(command) => match command {
            ScenarioCommand::Check { file, overrides, false_alarm_probability, frames_per_fix, json } => {
                let conditions = DetectionConditions { false_alarm_probability, frames_per_fix };
                commands::scenario::check(file, overrides, conditions, json)
            }
            ScenarioCommand::Blocks { file, overrides, scenes } => {
                commands::scenario::blocks(file, overrides, scenes)
            }
            ScenarioCommand::Export { file, overrides, out } => export::export(file, overrides, &out),
            ScenarioCommand::Generate { nodes, scenario, overrides } => {
                commands::scenario::generate(nodes, scenario, overrides)
            }
        },
        HylocCommand::Figures(flags) => return figures::run(&flags),
        HylocCommand::Sweep(flags) => return sweep::run(flags),
        HylocCommand::Completions { shell } => {
            commands::describe::completions(shell);
            Ok(())
        }
        HylocCommand::Man { directory } => commands::describe::man(&directory),
        HylocCommand::Solve(command) => match command {
            SolveCommand::Crb(files) => solve::run::<CrbCase>(&(), &files),
            SolveCommand::Delay(files) => solve::run::<DelayCase>(&(), &files),
            SolveCommand::Locate(files) => solve::run::<LocateCase>(&(), &files),
            SolveCommand::Direct(files) => solve::run::<DirectCase>(&(), &files),
            SolveCommand::Angles { files, settings } => solve::run::<AngleCase>(&settings, &files),
        },
    };
    finished.map(|()| ExitCode::SUCCESS)
}
