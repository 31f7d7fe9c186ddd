//! Can an event match anything of a partition at all?

pub mod portable;
