"""Events: layouts, JSON, the parts of an event, and values that the source did not carry."""
