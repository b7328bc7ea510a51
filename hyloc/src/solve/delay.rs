//! `hyloc solve delay`: the matched-filter delay of given spectra, the paper's Frobenius statistic.

use estimation::delay::{BlockNorm, DelayWindow, MatchedFilter};
use serde::{Deserialize, Serialize};

use super::Problem;
use super::complex::ComplexRows;

/// The problem of `solve delay`.
pub struct Delay;

/// Spectrum of one path (M x n) with the codes (D x n) on its subcarriers.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    bandwidth_hz: f64,
    subcarriers: usize,
    subcarrier_index: Vec<usize>,
    spectrum: ComplexRows,
    codes: ComplexRows,
    search_window_s: [f64; 2],
}

/// Where the block is strongest, and the block there.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    delay_s: f64,
    block: ComplexRows,
}

impl Problem for Delay {
    type Settings = ();
    type Case = Case;
    type Answer = Answer;

    fn solve(_: &(), case: &Case) -> anyhow::Result<Answer> {
        let codes = case.codes.matrix("codes")?;
        let filter = MatchedFilter::new(codes, &case.subcarrier_index, case.subcarriers, case.bandwidth_hz)?;
        let window = DelayWindow::new(case.search_window_s[0], case.search_window_s[1])?;
        let found = filter.search(&case.spectrum.matrix("spectrum")?, &window, BlockNorm::Frobenius)?;
        Ok(Answer { delay_s: found.delay_s, block: ComplexRows::from(&found.block) })
    }
}
