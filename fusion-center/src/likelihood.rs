//! The likelihood of the latest frame over the coverage area, for viewers that ask for it.
//!
//! Solvers leave the paths of the latest frame here, which costs them a pointer. The likelihood is computed only when somebody
//! asks, by the low-priority threads of the page, one computation at a time and at most two a second for all viewers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use estimation::direct::{ClockPrior, LikelihoodMap};
use estimation::fusion::Fuser;
use proto::convert::FrameId;
use serde::Serialize;
use tokio::time::Instant;

use crate::solve::Kept;

/// How long an answer is served again.
const FRESH: Duration = Duration::from_millis(500);

/// The paths of a frame, with what was known about the clocks.
#[derive(Debug, Clone)]
pub struct SeenFrame {
    pub frame: FrameId,
    pub kept: Arc<Kept>,
    pub clocks: Option<ClockPrior>,
}

/// The latest frame that was solved; shared, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LatestFrame(Arc<Mutex<Option<SeenFrame>>>);

impl LatestFrame {
    pub fn put(&self, seen: SeenFrame) {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(seen);
        // Freed without the lock.
        drop(before);
    }

    fn get(&self) -> Option<SeenFrame> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The answer to a viewer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LikelihoodView {
    pub run: u64,
    pub frame: u64,
    /// The first point of the grid.
    pub min_m: [f64; 2],
    pub step_m: [f64; 2],
    pub columns: usize,
    pub rows: usize,
    /// Log-likelihood ratio to noise alone, row by row from the least y; in space, the highest of all heights.
    pub values: Vec<f32>,
}

impl LikelihoodView {
    fn new(frame: FrameId, map: &LikelihoodMap) -> Self {
        let LikelihoodMap { min_m, step_m, columns, rows, values } = map;
        let values = values.iter().map(|value| *value as f32).collect();
        Self {
            run: frame.run,
            frame: frame.frame,
            min_m: *min_m,
            step_m: *step_m,
            columns: *columns,
            rows: *rows,
            values,
        }
    }
}

/// Answers viewers.
#[derive(Debug)]
pub struct Likelihoods {
    fuser: Option<Arc<Fuser>>,
    latest: LatestFrame,
    cached: tokio::sync::Mutex<Option<(Instant, Arc<LikelihoodView>)>>,
}

impl Likelihoods {
    /// With the tables of the solver; none where it does not use the direct method.
    pub fn new(fuser: Option<Arc<Fuser>>, latest: LatestFrame) -> Self {
        Self {
            fuser: fuser.filter(|fuser| fuser.has_direct()),
            latest,
            cached: tokio::sync::Mutex::default(),
        }
    }

    /// The likelihood of the latest frame, or why there is none.
    pub async fn view(&self) -> Result<Arc<LikelihoodView>, &'static str> {
        let Some(fuser) = self.fuser.clone() else {
            return Err("the estimator of this fusion center has no likelihood over the area");
        };
        let mut cached = self.cached.lock().await;
        if let Some((since, view)) = &*cached
            && since.elapsed() < FRESH
        {
            return Ok(view.clone());
        }
        let SeenFrame { frame, kept, clocks } = self.latest.get().ok_or("no frame was solved yet")?;
        let compute = move || {
            let survey = fuser.survey(&kept.blocks, clocks.as_ref()).ok()?;
            Some(LikelihoodView::new(frame, &fuser.locator()?.likelihood_map(&survey)?))
        };
        let computed = tokio::task::spawn_blocking(compute).await.ok().flatten();
        let view = Arc::new(computed.ok_or("the latest frame has no likelihood over the area")?);
        *cached = Some((Instant::now(), view.clone()));
        Ok(view)
    }
}
