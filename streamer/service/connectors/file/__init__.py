"""Files of lines: a source that follows them, and a sink that appends to them."""
