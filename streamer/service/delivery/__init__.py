"""The path of an event, from read to acknowledge: matched, routed, written or spooled."""
