//! The texts of users become the normal form.
//!
//! ```text
//!  JSON text ─ parse ─► Subscription ─┬─ filters, patterns (regexps), topics, each checked by its module
//!                                     └─ lower ─► NormalForm
//! ```
//!
//! Every error has its place, in the words of the Python package: the same cases test both.

pub mod canonical;
pub mod dialect;
pub mod filters;
pub mod groups;
pub mod lower;
pub mod normal_form;
pub mod operators;
pub mod parse;
pub mod patterns;
pub(crate) mod simplify;
mod text;
pub mod topics;
pub(crate) mod wording;

pub use groups::and_groups;
pub use lower::{and_cel, normal_form};
pub use parse::{OnUnknown, Subscription};
