"""Events: layouts, JSON, the parts of an event, and values that the source does not have."""
