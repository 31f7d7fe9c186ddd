//! What a user writes becomes the normal form.

pub mod normal_form;
pub mod regexps;
