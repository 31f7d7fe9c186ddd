//! Matching events that are given as their fields, by who has read them from another format than JSON.

use crate::engine::engine::{Engine, Matched, Root, Scratch};
use crate::error::EventError;
use crate::flatten::Fields;
use std::sync::Arc;

impl Engine {
    /// Find what an event matches in the state that *root* is, as an event of *tenant* without a collection. Patterns see its
    /// fields and topics its topic; filters and CEL see an event without a document.
    ///
    /// # Errors
    ///
    /// The fields cannot be those of one event.
    pub fn match_fields_on<'s>(
        &self,
        root: &Arc<Root>,
        fields: &Fields,
        tenant: &str,
        scratch: &'s mut Scratch,
    ) -> Result<Matched<'s>, EventError> {
        self.inner.match_fields(root, fields, tenant, scratch)
    }
}
