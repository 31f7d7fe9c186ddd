"""Parse AMQP topic patterns (semantics.md section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from streamer.errors import SubscriptionError

ONE_WORD = "*"
ANY_WORDS = "#"

#: Of a pattern, and of a key that a pattern with `#` may match. In AMQP each has at most 255 bytes, so at most 256 words.
MAX_WORDS = 1024


@final
@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic pattern as its words: `*` is exactly one word, `#` zero or more, any other stands for itself (`a*` too)."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.words)


def parse_topic(text: str, place: str = "topic") -> TopicPattern:
    """Return the words of a topic pattern.

    Raises:
        SubscriptionError: not a string, one that UTF-8 cannot hold, or too many words.
    """
    if not isinstance(text, str):
        raise SubscriptionError(f"a topic pattern is a string, not {type(text).__name__}", place=place)
    if not _is_well_formed(text):
        raise SubscriptionError("a lone surrogate in the topic pattern", place=place)
    words = split_words(text)
    if len(words) > MAX_WORDS:
        raise SubscriptionError(f"a topic pattern of {len(words)} words; at most {MAX_WORDS} are allowed", place=place)
    return TopicPattern(words)


def split_words(text: str) -> tuple[str, ...]:
    """Split a pattern or a routing key as RabbitMQ does: words may be empty (`a.` has two), the empty text has none."""
    return tuple(text.split(".")) if text else ()


def count_words(text: str) -> int:
    """Return how many words `split_words` would return."""
    return text.count(".") + 1 if text else 0


def _is_well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
