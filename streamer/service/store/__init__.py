"""The data that outlives a process: positions, subscriptions, the spool, dead letters."""
