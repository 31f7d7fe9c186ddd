"""Can this event match anything at all? Bloom filters over access keys."""
