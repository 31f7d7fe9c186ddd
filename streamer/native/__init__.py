"""The native core: what Python has beside the extension module `streamer._native`."""
