//! The extension module `hyloc._hyloc`: what the Python package `hyloc` is made of. It converts, calls and converts back; the classes
//! and functions that people use, with their documentation, are in `python/hyloc/*.py`.
//!
//! Every long call releases the interpreter lock and works on the threads of [`work`]. An array is copied at most once: into the
//! column-major matrices of the estimators, or out of them.

mod arrays;
mod blocks;
mod errors;
mod fixes;
mod locator;
mod recording;
mod samples;
mod scenario;
mod score;
mod simulate;
mod site;
mod watch;
mod wire;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _hyloc(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<site::SiteHandle>()?;
    module.add_class::<scenario::ScenarioHandle>()?;
    module.add_class::<locator::LocatorHandle>()?;
    module.add_class::<blocks::BlocksHandle>()?;
    module.add_class::<fixes::FixesHandle>()?;
    module.add_class::<recording::RecordingHandle>()?;
    module.add_class::<watch::WatchHandle>()?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(samples::decode_samples, module)?)?;
    module.add_function(wrap_pyfunction!(samples::encode_samples, module)?)?;
    module.add_function(wrap_pyfunction!(score::fixes_of_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(score::score_simulation, module)?)?;
    module.add_function(wrap_pyfunction!(score::score_recording, module)?)?;
    module.add_function(wrap_pyfunction!(score::score_positions, module)?)?;
    module.add_function(wrap_pyfunction!(work::panic_for_test, module)?)?;
    Ok(())
}
