//! Fixes of a running fusion center, as they are made.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fusion_center::place::symmetric;
use nalgebra::DMatrix;
use numpy::PyArray2;
use proto::channel::connect;
use proto::v1;
use proto::v1::fusion_client::FusionClient;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use settings::check::host_and_port;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status, Streaming};
use trust::{ClientTls, Role, TlsOptions};

use crate::arrays::{array, rows};
use crate::errors::{ErrorKind, of_settings};

/// How often a signal such as Ctrl-C is looked for.
const SIGNALS: Duration = Duration::from_millis(100);

/// A stream of fixes.
#[pyclass(name = "WatchHandle", module = "hyloc._hyloc", frozen)]
pub struct WatchHandle(Mutex<Option<OpenStream>>);

struct OpenStream {
    fixes: Streaming<v1::Fix>,
    // Dropped last, with its connection.
    runtime: Runtime,
    timeout: Option<Duration>,
}

/// The side of a watcher, if there are certificates.
fn client_tls(paths: [Option<PathBuf>; 3]) -> PyResult<Option<ClientTls>> {
    let [tls_ca, tls_cert, tls_key] = paths;
    let options = TlsOptions { tls_ca, tls_cert, tls_key, insecure: false };
    let identity = options.load("watch", None, |role| role == Role::Watcher);
    let identity = identity.map_err(|error| of_settings(&error, ErrorKind::Argument))?;
    Ok(identity.map(|identity| identity.client(Some(Role::FusionCenter))))
}

/// The exception of a call that failed.
fn refused(address: &str, status: &Status) -> PyErr {
    let sentence = status.message();
    let sentence =
        if sentence.starts_with(address) { sentence.to_owned() } else { format!("{address}: {sentence}") };
    ErrorKind::Unavailable.error(sentence)
}

/// Waits for `future` without the interpreter lock; none if the time is over. Signals are raised.
fn wait<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    timeout: Option<Duration>,
    future: impl Future<Output = T> + Send,
) -> PyResult<Option<T>> {
    let mut future = Box::pin(future);
    let end = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = end.map_or(SIGNALS, |end| SIGNALS.min(end.saturating_duration_since(Instant::now())));
        let waited =
            py.detach(|| runtime.block_on(async { tokio::time::timeout(left, future.as_mut()).await }));
        py.check_signals()?;
        match waited {
            Ok(value) => return Ok(Some(value)),
            Err(_) if end.is_some_and(|end| Instant::now() >= end) => return Ok(None),
            Err(_) => {}
        }
    }
}

#[pymethods]
impl WatchHandle {
    #[new]
    fn new(
        py: Python<'_>,
        address: &str,
        certificates: (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>),
        timeout_s: Option<f64>,
    ) -> PyResult<Self> {
        let refuse = |reason: String| ErrorKind::Argument.error(reason);
        let address =
            host_and_port(address).map_err(|allowed| refuse(format!("address = '{address}': {allowed}")))?;
        let timeout = timeout_s.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|error| refuse(format!("timeout_s: {error}")))?;
        let (ca, cert, key) = certificates;
        let tls = client_tls([ca, cert, key])?;
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("hyloc-watch").enable_all().build();
        let runtime = runtime.map_err(|error| ErrorKind::Internal.error(error))?;
        let open = async {
            let mut client = FusionClient::new(connect(&address, tls.as_ref()).await?);
            Ok(client.watch(v1::WatchRequest {}).await?.into_inner())
        };
        let fixes: Option<Result<Streaming<v1::Fix>, Status>> = wait(py, &runtime, timeout, open)?;
        let fixes = fixes.ok_or_else(|| PyTimeoutError::new_err(format!("{address}: no answer in time")))?;
        let fixes = fixes.map_err(|status| refused(&address, &status))?;
        Ok(Self(Mutex::new(Some(OpenStream { fixes, runtime, timeout }))))
    }

    /// The next fix; none when the fusion center has ended the stream.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let mut place =
            self.0.try_lock().map_err(|_| ErrorKind::Argument.error("another thread waits for a fix"))?;
        let Some(OpenStream { fixes, runtime, timeout }) = place.as_mut() else { return Ok(None) };
        let message = wait(py, runtime, *timeout, fixes.message())?;
        match message {
            None => Err(PyTimeoutError::new_err("no fix in time")),
            Some(Ok(Some(fix))) => as_dict(py, fix).map(Some),
            Some(Ok(None)) => Ok(None),
            Some(Err(status)) if status.code() == Code::Cancelled => Ok(None),
            Some(Err(status)) => Err(ErrorKind::Unavailable.error(status.message())),
        }
    }

    fn close(&self) {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(OpenStream { fixes, runtime, .. }) = closed {
            drop(fixes);
            runtime.shutdown_background();
        }
    }
}

fn point(at: &v1::Point) -> Vec<f64> {
    vec![at.x_m, at.y_m, at.z_m]
}

fn matrix<'py>(py: Python<'py>, triangle: &[f64]) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let matrix = symmetric(triangle).unwrap_or_else(|| DMatrix::zeros(0, 0));
    array(py, [matrix.nrows(), matrix.ncols()], rows(&matrix).collect())
}

fn position<'py>(
    py: Python<'py>,
    at: Option<&v1::Point>,
) -> PyResult<Option<Bound<'py, numpy::PyArray1<f64>>>> {
    at.map(|at| array(py, [3], point(at))).transpose()
}

/// A fix with the names of `hyloc.LiveFix`.
fn as_dict<'py>(py: Python<'py>, fix: v1::Fix) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let stages = fix.stages.unwrap_or_default();
    dict.set_item("run", fix.run)?;
    dict.set_item("frame", fix.frame)?;
    dict.set_item("time_ns", fix.time_ns)?;
    dict.set_item("status", fix.status)?;
    dict.set_item("method", Some(fix.method).filter(|name| !name.is_empty()))?;
    let located = fix.position.is_some();
    dict.set_item("position_m", position(py, fix.position.as_ref())?)?;
    let covariance_m2 = located.then(|| matrix(py, &fix.covariance_m2)).transpose()?;
    dict.set_item("covariance_m2", covariance_m2)?;
    dict.set_item("protection_level_m", fix.protection_level_m)?;
    dict.set_item("nodes", fix.nodes)?;
    dict.set_item("paths", fix.paths_used)?;
    dict.set_item("cautions", fix.cautions)?;
    dict.set_item("excluded", fix.excluded)?;
    dict.set_item("truth_m", position(py, fix.truth.as_ref())?)?;
    dict.set_item("bound_rms_m", fix.bound_rms_m)?;
    dict.set_item("fusion_ms", stages.fusion_ms)?;
    dict.set_item("total_ms", stages.total_ms)?;
    let targets = PyList::empty(py);
    for target in &fix.targets {
        let one = PyDict::new(py);
        one.set_item("position_m", position(py, target.position.as_ref())?)?;
        one.set_item("covariance_m2", matrix(py, &target.covariance_m2)?)?;
        one.set_item("false_alarm_probability", target.false_alarm_probability)?;
        one.set_item("unresolved", target.unresolved)?;
        targets.append(one)?;
    }
    dict.set_item("targets", targets)?;
    let tracks = PyList::empty(py);
    for track in &fix.tracks {
        let one = PyDict::new(py);
        one.set_item("identity", track.identity)?;
        one.set_item("position_m", position(py, track.position.as_ref())?)?;
        one.set_item("velocity_m_s", position(py, track.velocity.as_ref())?)?;
        one.set_item("covariance", matrix(py, &track.covariance)?)?;
        one.set_item("existence", track.existence)?;
        one.set_item("coasting", track.coasting)?;
        one.set_item("age_s", track.age_s)?;
        tracks.append(one)?;
    }
    dict.set_item("tracks", tracks)?;
    Ok(dict)
}
