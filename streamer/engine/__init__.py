"""Event bytes to matches: the facade, what it needs of a backend, lazy results, streams, `explain` and `plan`."""
