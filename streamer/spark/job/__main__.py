"""`python -m streamer.spark.job`."""

from streamer.spark.job.job import main

main()
