"""HTTP endpoints: a request, its signature, and the addresses that it may go to."""
