//! The Cramér-Rao bound of a scenario: how well the target of Table I can be located at best, by power and measurements.
//!
//! `cargo run -p hyloc-estimation --example 01_bound`
#![allow(clippy::print_stdout)]

use hyloc_estimation::model::{EchoSource, Gain, Information, Scenario, Scheme};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("rms bound in metres, gains unknown");
    println!("power    hybrid  angles  delays  own paths");
    for power_dbm in [40.0, 50.0, 60.0] {
        let source = EchoSource::new(&Scenario::default().with_power_dbm(power_dbm))?;
        let target_m = source.target_m(0);
        let information = Information::new(source.system(), target_m, source.rcs_m2(), Gain::Unknown);
        let rms_m = |scheme| information.position_crb_m2(scheme).map(|bound_m2| bound_m2.trace().sqrt());
        let (hybrid, angles) = (rms_m(Scheme::Hybrid)?, rms_m(Scheme::AngleOnly)?);
        let (delays, own) = (rms_m(Scheme::DelayOnly)?, rms_m(Scheme::NoCollaboration)?);
        println!("{power_dbm} dBm  {hybrid:.4}  {angles:.4}  {delays:.4}  {own:.4}");
    }
    Ok(())
}

// Output:
// rms bound in metres, gains unknown
// power    hybrid  angles  delays  own paths
// 40 dBm  0.2288  0.2950  0.3856  0.3527
// 50 dBm  0.0724  0.0933  0.1219  0.1115
// 60 dBm  0.0229  0.0295  0.0386  0.0353
