"""What outlives a process: subscriptions, positions, dead letters."""
