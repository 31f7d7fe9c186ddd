"""The job: matching on Spark without a program of one's own."""

from streamer.spark.job.job import main

__all__ = ["main"]
