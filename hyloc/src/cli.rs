//! The command line: what can be asked for, and the exit code of each way it can end.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use settings::Layered;

use crate::commands;
use crate::demo::{self, DemoFlags};
use crate::figures::Request;
use crate::latency::{self, LatencyFlags};
use crate::solve;

/// Exit code for input that cannot be used: a bad scenario, an unreadable file (EX_USAGE).
const EXIT_BAD_INPUT: u8 = 64;

/// Locate a target with several intelligent reflecting surfaces (IRSs) at once.
///
/// A base station illuminates K IRSs; each reflects towards the target and listens with its own
/// sensors. Every pair of reflecting and sensing IRS is a path with a delay and two angles: K^2 paths,
/// one position.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the whole pipeline on this machine: simulator, K nodes and fusion center as real processes.
    ///
    /// By default Table I: K = 3 IRSs, 50 dBm, 50 frames a second. Examples:
    ///
    ///   hyloc demo
    ///   hyloc demo --nodes 8 --frames 200 --rate 10
    ///   hyloc demo --power-dbm 40 --frames-per-fix 10 --fixes fixes.jsonl
    ///   hyloc demo --kill-node-after 100 --json
    ///   hyloc demo --dashboard --allow-control --backhaul fibre
    ///
    /// The summary is printed however the demo ends. Exit code: 0 with fixes; 69 without any, with the
    /// most frequent reason; 70 if a process died that nobody told to. When a node dies the others go on;
    /// when any other process dies, or a node before the first fix, the demo ends.
    #[command(verbatim_doc_comment)]
    Demo(DemoFlags),
    /// Run a fusion center: assembles the blocks of all nodes, solves, locates, publishes fixes.
    Fusion(Box<Layered<fusion_center::FusionOptions>>),
    /// Run the node of one IRS: matched-filters echoes and streams blocks to the fusion center.
    Node(Box<Layered<irs_node::NodeOptions>>),
    /// Run the simulator: sends echo frames to the nodes, and the truth to the fusion center for display.
    Simulate(Box<Layered<simulator::SimulatorOptions>>),
    /// Run a backhaul that can be made bad on purpose: a TCP relay between nodes and fusion center.
    ///
    ///   hyloc backhaul --fusion 127.0.0.1:7400 --profile congested
    ///   hyloc backhaul cut 127.0.0.2
    ///   hyloc backhaul measure
    #[command(verbatim_doc_comment)]
    Backhaul(Box<backhaul::RelayArguments>),
    /// Ask a process for its health: exit code 0 if it is ready, else 1.
    Healthcheck {
        /// As in http://127.0.0.1:7401/health.
        url: String,
    },
    /// Measure latency per stage for several IRS counts, through real processes, open loop at a fixed rate.
    ///
    ///   hyloc latency --nodes 3,8 --frames 300 --rate 20 --out latency
    #[command(verbatim_doc_comment)]
    Latency(LatencyFlags),
    /// Feed a recording (`--record DIR`) to the solver again: the same fixes, bit for bit.
    Replay {
        /// Directory of the recording.
        directory: PathBuf,
        /// File that takes one JSON line per fix.
        #[arg(long, value_name = "FILE")]
        fixes: Option<PathBuf>,
        /// Print one JSON object instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Check or generate scenarios.
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Solve one kind of problem from a JSON file.
    #[command(subcommand)]
    Solve(SolveCommand),
    /// Reproduce Section VI of the paper: every figure as plot and data, and a verdict on every claim.
    ///
    /// Monte Carlo on all cores; the same seed and trials give the same files on any number of
    /// threads. Writes NAME.csv, NAME.svg and NAME.png for each figure, and report.md and
    /// report.html. docs/science/claims.md tells what is in them. Examples:
    ///
    ///   hyloc figures --quick --out quick-figures
    ///   hyloc figures --only angle-power location-power --trials 2000
    ///   hyloc figures --resume
    #[command(verbatim_doc_comment)]
    Figures(FigureArguments),
}

#[derive(Debug, Args)]
struct FigureArguments {
    /// Figures to make, all by default: crb-elements, crb-sensors, crb-coverage, crb-irs-count, angle-power,
    /// angle-power-full-rank, literal-sweep, location-power, location-distance, end-to-end-power,
    /// imperfections, backhaul-accuracy.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// Trials per point, instead of each figure's own number.
    #[arg(long, value_name = "N")]
    trials: Option<u64>,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Where the files go.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Fewer trials: all shapes within a minute on two cores.
    #[arg(long)]
    quick: bool,
    /// Take over figures that an earlier run with the same seed, trials and code finished.
    #[arg(long)]
    resume: bool,
    /// Run no trials: draw plots and report again from the CSV files in DIR.
    #[arg(long, conflicts_with_all = ["only", "trials", "quick", "resume"])]
    redraw: bool,
    /// Threads; all cores by default.
    #[arg(long, value_name = "N", hide = true)]
    threads: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum ScenarioCommand {
    /// Check a scenario and show what follows from it: SNR per path, rank cases, sectors, bounds.
    ///
    /// Settings come in layers: the defaults (Table I of the paper), the file, environment variables
    /// such as HYLOC__BASE_STATION__POWER_DBM=40, and --set. Examples:
    ///
    ///   hyloc scenario check deploy/scenarios/paper.toml
    ///   hyloc scenario check deploy/scenarios/rank-one.toml --set base_station.power_dbm=60 --json
    #[command(verbatim_doc_comment)]
    Check {
        /// Scenario file, TOML; without one, the defaults.
        file: Option<PathBuf>,
        /// Override one key; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Print JSON for programs instead of tables for people.
        #[arg(long)]
        json: bool,
    },
    /// Print the blocks of simulated scenes, with S_k and weights, as `hyloc solve angles` takes them.
    ///
    /// Blocks of the first frame at the true delays, scaled to unit noise and unit mean norm of S_k; scene i has the
    /// scenario's seed plus i.
    Blocks {
        /// Scenario file, TOML; without one, the defaults.
        file: Option<PathBuf>,
        /// Override one key; may be repeated.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        overrides: Vec<String>,
        /// Number of scenes.
        #[arg(long, value_name = "N", default_value_t = 1)]
        scenes: u64,
    },
    /// Print a scenario with K IRSs on a ring around the coverage area, as TOML.
    ///
    /// Subcarriers and transmit antennas grow with K, so that the energy per path stays the same.
    Generate {
        /// Number of IRSs, 2 to 32 (the most that a site may have).
        #[arg(long)]
        nodes: usize,
        /// Scenario to start from; without one, the defaults.
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
    /// Position, covariance and integrity from cascade delays and bearings; what is `null` is missing.
    Locate(SolveFiles),
    /// Joint angles of all paths from given blocks, by ADMM on the atomic-norm problem.
    Angles {
        #[command(flatten)]
        files: SolveFiles,
        /// Relative accuracy of the objective at which to stop [default: 1e-4].
        #[arg(long, value_name = "RATIO")]
        tolerance: Option<f64>,
        /// Iteration limit; a solution that meets it is marked as not converged.
        #[arg(long, value_name = "N")]
        max_iterations: Option<usize>,
        /// Solve each problem N times from a cold start and tell the median time.
        #[arg(long, value_name = "N")]
        repeat: Option<usize>,
    },
}

#[derive(Debug, Args)]
struct SolveFiles {
    /// JSON file with the problems under "cases"; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Where the answer goes; standard output by default.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl From<FigureArguments> for Request {
    fn from(arguments: FigureArguments) -> Self {
        let FigureArguments { only, trials, seed, out, quick, resume, redraw, threads } = arguments;
        Self { only, trials, seed, out, quick, resume, redraw, threads }
    }
}

/// Runs a command; errors end as one sentence on standard error.
pub fn run(arguments: Arguments) -> ExitCode {
    let command = match arguments.command {
        Command::Fusion(arguments) => return fusion_center::main(&arguments),
        Command::Node(arguments) => return irs_node::main(&arguments),
        Command::Simulate(arguments) => return simulator::main(&arguments),
        Command::Backhaul(arguments) => return backhaul::main(&arguments),
        Command::Healthcheck { url } => return telemetry::client::check(&url),
        command => command,
    };
    match dispatch(command) {
        Ok(code) => code,
        Err(error) => {
            commands::complain(&error);
            ExitCode::from(EXIT_BAD_INPUT)
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    if let Command::Demo(flags) = &command {
        return demo::run(flags);
    }
    run_to_end(command).map(|()| ExitCode::SUCCESS)
}

fn run_to_end(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Latency(flags) => latency::run(&flags),
        Command::Replay { directory, fixes, json } => {
            commands::replay::replay(&directory, fixes.as_deref(), json)
        }
        // Processes, started before.
        Command::Fusion(_) | Command::Node(_) | Command::Simulate(_) | Command::Backhaul(_) => Ok(()),
        Command::Healthcheck { .. } | Command::Demo(_) => Ok(()),
        Command::Scenario(ScenarioCommand::Check { file, overrides, json }) => {
            commands::scenario::check(file, overrides, json)
        }
        Command::Scenario(ScenarioCommand::Blocks { file, overrides, scenes }) => {
            commands::scenario::blocks(file, overrides, scenes)
        }
        Command::Scenario(ScenarioCommand::Generate { nodes, scenario, overrides }) => {
            commands::scenario::generate(nodes, scenario, overrides)
        }
        Command::Figures(arguments) => commands::figures::run(arguments.into()),
        Command::Solve(SolveCommand::Crb(files)) => {
            solve::run::<solve::crb::Crb>(&(), &files.input, files.output.as_deref())
        }
        Command::Solve(SolveCommand::Delay(files)) => {
            solve::run::<solve::delay::Delay>(&(), &files.input, files.output.as_deref())
        }
        Command::Solve(SolveCommand::Locate(files)) => {
            solve::run::<solve::locate::Locate>(&(), &files.input, files.output.as_deref())
        }
        Command::Solve(SolveCommand::Angles { files, tolerance, max_iterations, repeat }) => {
            let settings = solve::angles::Settings { tolerance, max_iterations, repeat };
            solve::run::<solve::angles::Angles>(&settings, &files.input, files.output.as_deref())
        }
    }
}
