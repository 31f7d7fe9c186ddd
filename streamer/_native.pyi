"""The native core of Streamer."""

__all__ = ["__version__"]

__version__: str
