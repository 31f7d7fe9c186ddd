"""Run the service of a configuration: start it, reload it, check it, end it."""
