"""The effort of explanations, which `streamer.effort` counts, for the code that explains on Spark."""

from streamer.effort import EFFORT as EFFORT
