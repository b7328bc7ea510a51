//! Short timeslices for time-critical threads.
//!
//! A thread that wakes on a busy machine waits for the end of the running thread's timeslice, 3 to 4 ms. Since version
//! 6.12 Linux schedules a thread at once if it has requested shorter timeslices; this gives it no larger share of the
//! processor and needs no privilege. Older kernels accept the request and ignore it.

use std::cell::Cell;

/// The shortest timeslice that the kernel accepts.
const TIMESLICE_NS: u64 = 100_000;

/// Requests short timeslices for this thread, once. A thread with a non-default scheduling policy is not changed.
pub fn shorten() {
    thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
    if !ASKED.replace(true) {
        ask();
    }
}

/// First version of the kernel's `struct sched_attr`.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[cfg(target_os = "linux")]
fn attributes() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes of plain integers into a struct of that size.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (failed == 0).then_some(attributes)
}

#[cfg(target_os = "linux")]
fn ask() {
    if let Some(known) = attributes()
        && known.policy == libc::SCHED_OTHER as u32
    {
        let wanted = Attributes { size: size_of::<Attributes>() as u32, runtime: TIMESLICE_NS, ..known };
        // SAFETY: the kernel reads `size` bytes. If it refuses, nothing changes.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Kernels before 6.12 do not report the timeslice.
    #[test]
    fn timeslices_become_short_and_nothing_else_changes() {
        let before = attributes().unwrap();
        shorten();
        let after = attributes().unwrap();
        assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
        assert!(after.runtime == TIMESLICE_NS || before.runtime == 0, "{before:?}, then {after:?}");
    }
}
