//! Limits of the problems that `hyloc solve` accepts. They are far beyond any use, and they bound memory and time: within
//! them no input overflows, and every answer arrives within about a minute.

use anyhow::ensure;
use model::units::SPEED_OF_LIGHT_M_S;
use model::{CMatrix, MOST_IRS, Point};

/// Largest file of problems.
pub const MOST_INPUT_BYTES: u64 = 64 << 20;

/// Largest absolute value of an entry of a matrix.
pub const LARGEST_ENTRY: f64 = 1e15;

/// Most rows or columns of a matrix.
pub const MOST_SIDE: usize = 4096;

/// Largest coordinate of a position, as in a scenario.
const FARTHEST_M: f64 = 1e6;

/// Steps of the joint solver: paths (M + N)^3 per iteration.
const MOST_ADMM_WORK: f64 = 1e11;

/// Refuses a number outside of an interval.
pub fn within(name: &str, value: f64, least: f64, most: f64) -> anyhow::Result<()> {
    ensure!(value >= least && value <= most, "{name} = {value}: must be a number between {least} and {most}");
    Ok(())
}

/// Refuses a count that is zero or too large.
pub fn count(name: &str, value: usize, most: usize) -> anyhow::Result<()> {
    ensure!((1..=most).contains(&value), "{name} = {value}: must be between 1 and {most}");
    Ok(())
}

pub fn irs_count(name: &str, value: usize) -> anyhow::Result<()> {
    count(&format!("number of {name}"), value, MOST_IRS)
}

pub fn position(name: &str, position_m: [f64; 2]) -> anyhow::Result<()> {
    position_m.into_iter().try_for_each(|value| within(name, value, -FARTHEST_M, FARTHEST_M))
}

/// The speed of light of a case that states none.
pub fn speed_of_light() -> f64 {
    SPEED_OF_LIGHT_M_S
}

/// Refuses any other speed of light: a case computed with one would have other answers.
pub fn at_speed_of_light(speed: f64) -> anyhow::Result<()> {
    ensure!(speed == SPEED_OF_LIGHT_M_S, "speed_of_light_m_s = {speed}: must be {SPEED_OF_LIGHT_M_S}");
    Ok(())
}

/// A point of the plane at height zero.
pub fn in_plane([x, y]: [f64; 2]) -> Point {
    Point::new(x, y, 0.0)
}

/// Refuses a joint problem that would take too long.
pub fn admm_work(paths: usize, sensors: usize, signals: &[CMatrix], iterations: usize) -> anyhow::Result<()> {
    let elements = signals.iter().map(|signal| signal.nrows().max(signal.ncols())).max().unwrap_or(0);
    let work = paths as f64 * ((sensors + elements) as f64).powi(3) * iterations as f64;
    ensure!(
        work <= MOST_ADMM_WORK,
        "{paths} paths of {sensors} sensors and {elements} elements in {iterations} iterations: the product of paths, \
         (sensors + elements)^3 and iterations must be at most {MOST_ADMM_WORK:e}; lower --max-iterations, or use \
         smaller blocks"
    );
    Ok(())
}
