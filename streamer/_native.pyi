"""The native core of Streamer."""

__version__: str
