//! `hyloc solve delay`: the matched-filter delay of given spectra, the paper's Frobenius statistic.

use estimation::delay::{BlockNorm, DelayWindow, MatchedFilter};
use serde::{Deserialize, Serialize};

use super::complex::ComplexRows;
use super::{Problem, limits};

/// Most subcarriers of a band.
const MOST_SUBCARRIERS: usize = 1 << 16;

/// Spectrum of one path (M x n) with the codes (D x n) on its subcarriers.
#[derive(Debug, Clone, Deserialize)]
pub struct DelayCase {
    bandwidth_hz: f64,
    subcarriers: usize,
    subcarrier_index: Vec<usize>,
    spectrum: ComplexRows,
    codes: ComplexRows,
    search_window_s: [f64; 2],
}

/// Delay of the strongest block, and the block at this delay.
#[derive(Debug, Clone, Serialize)]
pub struct DelayAnswer {
    delay_s: f64,
    block: ComplexRows,
}

impl Problem for DelayCase {
    type Settings = ();
    type Answer = DelayAnswer;

    fn solve(&self, _: &()) -> anyhow::Result<DelayAnswer> {
        limits::count("subcarriers", self.subcarriers, MOST_SUBCARRIERS)?;
        limits::within("bandwidth_hz", self.bandwidth_hz, 1.0, 1e12)?;
        self.search_window_s
            .into_iter()
            .try_for_each(|edge| limits::within("search_window_s", edge, -1.0, 1.0))?;
        let codes = self.codes.matrix("codes")?;
        let filter = MatchedFilter::new(codes, &self.subcarrier_index, self.subcarriers, self.bandwidth_hz)?;
        let window = DelayWindow::new(self.search_window_s[0], self.search_window_s[1])?;
        let found = filter.search(&self.spectrum.matrix("spectrum")?, &window, BlockNorm::Frobenius)?;
        Ok(DelayAnswer { delay_s: found.delay_s, block: ComplexRows::from(&found.block) })
    }
}
