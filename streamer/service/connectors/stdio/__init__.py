"""Standard input as a source, and standard output as a sink."""
