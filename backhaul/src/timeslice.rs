//! Short timeslices for threads that keep time.
//!
//! A thread that wakes on a busy machine waits until the one that runs has had its turn, 3 to 4 ms. Since version 6.12
//! Linux lets one in at once that has asked for shorter timeslices itself; it gets no more of the processor by that,
//! and needs no privilege. Older kernels take the wish and do nothing.

use std::cell::Cell;

/// The shortest turn that can be asked for.
const TIMESLICE_NS: u64 = 100_000;

/// Asks for short timeslices for this thread, once. Who schedules it otherwise than by default is left alone.
pub fn shorten() {
    thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
    if !ASKED.replace(true) {
        ask();
    }
}

/// As the kernel has it, `struct sched_attr` in its first version.
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
    // SAFETY: the kernel writes at most `size` bytes, plain numbers, to a place that has as many.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    (failed == 0).then_some(attributes)
}

#[cfg(target_os = "linux")]
fn ask() {
    if let Some(known) = attributes()
        && known.policy == libc::SCHED_OTHER as u32
    {
        let wanted = Attributes { size: size_of::<Attributes>() as u32, runtime: TIMESLICE_NS, ..known };
        // SAFETY: the kernel reads `size` bytes. Refused, all stays as it was.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Kernels before 6.12 tell no length of a timeslice.
    #[test]
    fn turns_become_short_and_nothing_else_changes() {
        let before = attributes().unwrap();
        shorten();
        let after = attributes().unwrap();
        assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
        assert!(after.runtime == TIMESLICE_NS || before.runtime == 0, "{before:?}, then {after:?}");
    }
}
