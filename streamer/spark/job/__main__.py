"""`python -m streamer.spark.job`."""

from streamer.spark.job.main import main

main()
