"""`python -m streamer.spark` is the job."""

from streamer.spark.job.job import main

if __name__ == "__main__":
    main()
