//! Memory that is kept from one problem to the next, by several threads at once if need be.

use std::sync::{Mutex, PoisonError};

/// Workspaces that no thread uses at the moment.
#[derive(Debug)]
pub(crate) struct Idle<T>(Mutex<Vec<T>>);

impl<T: Default> Idle<T> {
    /// Lends a workspace to a task, a new one where all are in use.
    pub fn with<R>(&self, task: impl FnOnce(&mut T) -> R) -> R {
        let idle = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut workspace = idle().pop().unwrap_or_default();
        let result = task(&mut workspace);
        idle().push(workspace);
        result
    }
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Clone for Idle<T> {
    /// No workspaces yet: they are made when they are needed.
    fn clone(&self) -> Self {
        Self::default()
    }
}
