"""The flights that left New York in 2013, replayed against subscriptions of every kind: `python -m examples.flights`."""
