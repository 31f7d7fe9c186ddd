"""The job: matching on Spark without a program of one's own."""

from streamer.extras import needed

with needed("the job needs PySpark", "spark"):
    from streamer.spark.job.job import main

__all__ = ["main"]
