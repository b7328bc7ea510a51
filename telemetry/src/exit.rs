//! Exit codes, after `sysexits.h` where it has one.

/// All done, or stopped by a signal and drained.
pub const CLEAN: u8 = 0;

/// Something failed while running.
pub const FAILED: u8 = 1;

/// The configuration cannot be used; no port was bound (EX_USAGE).
pub const BAD_CONFIGURATION: u8 = 64;

/// A peer refused this process for good: other protocol, other scenario, index taken (EX_DATAERR).
pub const REFUSED: u8 = 65;
