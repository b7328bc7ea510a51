//! Errors as Python exceptions, with the sentences of the command line.

use std::error::Error;
use std::io;

use fusion_center::recorded::RecordingError;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use settings::SettingsError;

/// The exceptions of `hyloc.errors`.
#[derive(Debug, Clone, Copy)]
pub enum ErrorKind {
    Argument,
    Internal,
    Recording,
    Scenario,
    Unavailable,
}

impl ErrorKind {
    fn name(self) -> &'static str {
        match self {
            Self::Argument => "ArgumentError",
            Self::Internal => "InternalError",
            Self::Recording => "RecordingError",
            Self::Scenario => "ScenarioError",
            Self::Unavailable => "UnavailableError",
        }
    }

    /// An exception of this kind.
    pub fn error(self, sentence: impl ToString) -> PyErr {
        let sentence = sentence.to_string();
        Python::attach(|py| {
            let made = py
                .import("hyloc.errors")
                .and_then(|module| module.getattr(self.name()))
                .and_then(|class| class.call1((&sentence,)));
            made.map_or_else(|_| PyRuntimeError::new_err(sentence.clone()), PyErr::from_value)
        })
    }
}

/// An error of the operating system; the number makes it a `FileNotFoundError` and so on.
fn of_system(source: &io::Error, sentence: impl ToString) -> PyErr {
    PyOSError::new_err((source.raw_os_error().unwrap_or_default(), sentence.to_string()))
}

/// The exception of settings that cannot be used; a file that cannot be read is an `OSError`.
pub fn of_settings(error: &SettingsError, kind: ErrorKind) -> PyErr {
    match error {
        SettingsError::File { source, .. } => of_system(source, error),
        _ => kind.error(error),
    }
}

/// The exception of a recording that cannot be read; a file that cannot be read is an `OSError`.
pub fn of_recording(error: &RecordingError) -> PyErr {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    match source.filter(|source| source.raw_os_error().is_some()) {
        Some(source) => of_system(source, error),
        None => ErrorKind::Recording.error(error),
    }
}
