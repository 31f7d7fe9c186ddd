"""The Python part of the native core, on top of the extension module `streamer._native`."""
