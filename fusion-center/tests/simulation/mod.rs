//! The pipeline without sockets, threads and clocks: registry, intake, ledger, queue and outboxes, driven in virtual time by a
//! seeded scheduler over a simulated network.
//!
//! A seed decides everything: delays, partitions, crashes and restarts of every process, new runs with random
//! identities, peers that only register, guess sessions, or take a free index and invent frames. After the chaos everything
//! is healed. What must hold is checked in `check`; a seed that fails, fails again.

pub mod agreement;
pub mod center;
pub mod check;
pub mod node;
pub mod world;

pub use world::simulate;
