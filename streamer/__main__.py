"""`python -m streamer` is the command line."""

from streamer.cli.main import main

if __name__ == "__main__":
    main()
