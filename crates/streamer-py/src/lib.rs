//! The binding of the native core, `streamer._native`. A function here is signature, options, core call, mapped error.
//! The doc comment of an item is its docstring. `make docs` copies it to `streamer/_native.pyi`; types are only there.
//!
//! ```text
//!  core.rs    an engine: match, select, remove                 hits.rs    the matches of one event, packed
//!  draft.rs   subscriptions to add                             errors.rs  every error, mapped
//!  host.rs    the calls of the core to Python                  batch.rs   several events at once      bloom.rs   the portable Bloom layout over buffers
//!  cel.rs     an expression, checked by itself               programs.rs  expressions, evaluated by themselves
//!  open.rs    events that are not settled yet            arrow/       events from Arrow buffers, results into such
//!  plain.rs   JSON text of plain values                 matcher.rs  patterns and topics under names
//!  parallel.rs  blocks of work, for several threads     gil.rs     releases and acquires the GIL, forks
//!  named.rs   types of Python that are made here        shared.rs  the engine with its host, for all matching
//!  messages.rs  matches as CloudEvents               reader.rs    records of a source as events
//!  testing.rs, hook.rs   hooks for tests only           interrupts.rs  exceptions raised within a match
//! ```
//!
//! Two rules keep threads apart. Wait for the writer's lock only with the GIL released, since its owner may be waiting
//! for the GIL. Do not run Python while a cell is made: it may come to the same cell, or fork.

mod arrow;
mod batch;
mod bloom;
mod cel;
mod core;
mod draft;
mod errors;
mod external_cel;
mod gil;
mod hits;
mod hook;
mod host;
mod interrupts;
mod match_objects;
mod matcher;
mod memory;
mod messages;
mod named;
mod open;
mod parallel;
mod plain;
mod programs;
mod reader;
mod shared;
mod testing;

use pyo3::PyClass;
use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

/// The native core: subscriptions, their index, their CEL.
///
/// `streamer.native.core` makes an engine of it. It calls its *host*, a `streamer.native.core.Host`, for the rest.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    memory::begin();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IMAGES", streamer_core::engine::IMAGES)?;
    module.add("LATENCY_BOUNDS", streamer_core::engine::state::telemetry::BOUNDS.to_vec())?;
    module.add("SIZE_BOUNDS", streamer_core::engine::state::telemetry::SIZES.to_vec())?;
    add_class::<core::Core>(module)?;
    add_class::<draft::Draft>(module)?;
    add_class::<matcher::Matcher>(module)?;
    add_class::<programs::CelPrograms>(module)?;
    add_class::<hits::Hits>(module)?;
    add_class::<match_objects::MatchIterator>(module)?;
    add_class::<reader::RecordReader>(module)?;
    add_class::<batch::Batch>(module)?;
    add_class::<batch::ResultIterator>(module)?;
    add_class::<bloom::GatheredKeys>(module)?;
    add_class::<bloom::ShippedFilter>(module)?;
    add_class::<testing::CoreHooks>(module)?;
    module.add_function(wrap_pyfunction!(gil::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(gil::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(gil::after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(cel::cel_check, module)?)?;
    module.add_function(wrap_pyfunction!(draft::canonical, module)?)?;
    module.add_function(wrap_pyfunction!(plain::plain_json, module)?)?;
    module.add_function(wrap_pyfunction!(bloom::bloom_fill, module)?)?;
    module.add_function(wrap_pyfunction!(bloom::bloom_probe, module)?)?;
    module.add_function(wrap_pyfunction!(bloom::bloom_probe_any, module)?)
}

/// Add a class. Python aligns its objects to 16 bytes, so a class must box what needs more, such as a finder of memchr.
fn add_class<T: PyClass>(module: &Bound<'_, PyModule>) -> PyResult<()> {
    const { assert!(align_of::<T>() <= 16) };
    module.add_class::<T>()
}
