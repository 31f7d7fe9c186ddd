"""What connects a service to the outside: one folder for each kind, with its source, its sink or both."""
