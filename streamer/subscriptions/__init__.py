"""From what a user writes to what the engine works with: filters, patterns and topics, one dialect a file; normal form; keys."""
