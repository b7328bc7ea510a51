//! Follows the certificate of a process, and tells health when its files cannot be used.

use tokio_util::sync::CancellationToken;
use trust::Identity;

use crate::Health;

/// Name of the certificate among the parts of a process that may fail while the rest goes on.
const PART: &str = "certificate";

/// Follows the files of `identity` until `stop`.
pub fn follow_certificate(identity: &Identity, health: &Health, stop: &CancellationToken) {
    tokio::spawn(identity.clone().follow(stop.clone()));
    let (mut problem, health, stop) = (identity.problem(), health.clone(), stop.clone());
    tokio::spawn(async move {
        loop {
            health.degradations.set(PART, problem.borrow_and_update().clone());
            tokio::select! {
                changed = problem.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
        }
    });
}
