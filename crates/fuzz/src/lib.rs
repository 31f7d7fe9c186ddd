//! What fuzz targets check, apart from how they get their input: `cargo test` replays the corpus through the same functions,
//! and feeds them random choices.

mod deciding;
mod engine;
mod events;
pub mod expressions;
mod flattening;
mod image;
mod parsers;
mod subscriptions;

pub use deciding::decides;
pub use engine::engine;
pub use events::{Choices, event};
pub use flattening::flatten;
pub use image::image;
pub use parsers::parsers;
