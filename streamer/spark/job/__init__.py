"""The job: matching on Spark without a program of one's own."""

from streamer.spark.job.main import main

__all__ = ["main"]
