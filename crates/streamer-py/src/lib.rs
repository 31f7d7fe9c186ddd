//! The binding of the native core, `streamer._native`. A function here is signature, options, core call, mapped error.

use pyo3::prelude::*;

/// The native core of Streamer.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
