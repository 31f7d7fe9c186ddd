"""The flights that left New York in 2013, on Spark: `python -m examples.flights_spark`."""
