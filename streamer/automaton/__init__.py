"""Exact matching of patterns and topics: two matchers for use without an engine, `Quamina` and `TopicMatcher`."""

from streamer.automaton.flattener import Flattener, JsonFlattener, Leaf
from streamer.automaton.quamina import Quamina
from streamer.automaton.storage import LivePatterns, MemoryPatterns, SqlitePatterns
from streamer.automaton.topic_matcher import TopicMatcher

__all__ = [
    "Flattener",
    "JsonFlattener",
    "Leaf",
    "LivePatterns",
    "MemoryPatterns",
    "Quamina",
    "SqlitePatterns",
    "TopicMatcher",
]
