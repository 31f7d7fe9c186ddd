"""The job: match on Spark without writing a program."""

from streamer.extras import needed

with needed("the job needs PySpark", "spark"):
    from streamer.spark.job.job import main

__all__ = ["main"]
