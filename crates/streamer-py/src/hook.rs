//! What tests call in the midst of a write.

use crate::gil;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// What a test wants to be called in the midst of a write.
pub type Hook = Mutex<Option<Py<PyAny>>>;

/// Call the test's function, if there is one. What it raises is a panic in the midst of a write.
pub fn call(hook: &Hook) {
    let is_set = hook.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if is_set {
        gil::held(|py| {
            let hook = hook.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|hook| hook.clone_ref(py));
            if let Some(Err(error)) = hook.map(|hook| hook.call0(py)) {
                panic!("{error}");
            }
        });
    }
}
