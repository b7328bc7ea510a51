//! Exit codes, after `sysexits.h` where it has one.

use std::process::ExitCode;

/// All done, or stopped by a signal and drained.
pub const CLEAN: u8 = 0;

/// Something failed while running.
pub const FAILED: u8 = 1;

/// The configuration cannot be used; no port was bound (EX_USAGE).
pub const BAD_CONFIGURATION: u8 = 64;

/// A peer refused this process for good: other protocol, other scenario, index taken (EX_DATAERR).
pub const REFUSED: u8 = 65;

/// All ran, and there is no result: a demo without a fix (EX_UNAVAILABLE).
pub const NO_RESULT: u8 = 69;

/// A process that the work depends on died (EX_SOFTWARE).
pub const PROCESS_DIED: u8 = 70;

/// Reads the command line; what cannot be read ends with [`BAD_CONFIGURATION`], help and version with [`CLEAN`].
pub fn parse_arguments<P: clap::Parser>() -> Result<P, ExitCode> {
    P::try_parse().map_err(|error| {
        // Nothing can be done about a terminal that is gone.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { BAD_CONFIGURATION } else { CLEAN })
    })
}
