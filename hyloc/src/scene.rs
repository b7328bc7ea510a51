//! Blocks of a simulated scene at its true delays.

use estimation::Blocks;
use estimation::delay::MatchedFilter;
use model::geometry::cascade_delay_s;
use model::{CMatrix, EchoSource};

/// R_lk of all paths in the first frame.
pub(crate) fn blocks_at_true_delays(source: &EchoSource) -> anyhow::Result<Blocks> {
    let (system, target_m) = (source.system(), source.target_m(0));
    let count = system.irs_count();
    let filters = (0..count).map(|k| MatchedFilter::of_system(system, k)).collect::<Result<Vec<_>, _>>()?;
    let block = |frame: &CMatrix, l: usize, k: usize| {
        let delay_s = cascade_delay_s(&system.irs[l].pose, &system.irs[k].pose, target_m);
        let spectrum = frame.select_columns(&system.irs[k].waveform.subcarriers);
        filters[k].block(&spectrum, delay_s).map(Some)
    };
    let table = (0..count)
        .map(|l| {
            let frame = source.frame(l, 0, target_m);
            (0..count).map(|k| block(&frame, l, k)).collect()
        })
        .collect::<Result<Vec<Vec<_>>, _>>()?;
    Ok(Blocks::of_system(system, system.noise_power_w, table)?)
}
