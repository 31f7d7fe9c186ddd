//! Hooks that tests call during a write.

use crate::gil;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// The function of a test to call during a write.
pub type Hook = Mutex<Option<Py<PyAny>>>;

/// Call the test's function, if there is one. An exception of it is a panic during the write.
pub fn call(hook: &Hook) {
    let is_set = hook.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if is_set {
        gil::with(|py| {
            let hook = hook.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|hook| hook.clone_ref(py));
            if let Some(Err(error)) = hook.map(|hook| hook.call0(py)) {
                panic!("{error}");
            }
        });
    }
}
