"""Parse topic patterns in their dialects, and decide whether a text is a topic in each (semantics.md section 6).

    amqp   orders.*.paid.#    words at `.`       any text is a topic
    mqtt   orders/+/paid/#    levels at `/`      no topic: the empty text, or one with `+`, `#` or U+0000
    nats   orders.*.paid.>    tokens at `.`      no topic: one with an empty token, white space, U+0000, or a token `*` or `>`

All dialects are parsed to one sequence of words, in which a wildcard is a `Wild`; they split topics differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.model import TopicDialect, is_unicode


class Wild(Enum):
    """A wildcard of a topic pattern."""

    ONE = "exactly one word"
    MANY = "zero or more words"


Word: TypeAlias = str | Wild

#: Limit of a written pattern, and of a topic that a pattern with `Wild.MANY` may match. In AMQP each has at most 255 bytes, so at
#: most 256 words.
MAX_WORDS: Final = 1024


@final
@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of a dialect.

    Attributes:
        separator: the separator of words.
        word: the dialect's term for a word.
        one: the wildcard for one word.
        many: the wildcard for any number of words.
    """

    separator: str
    word: str
    one: str
    many: str


SYNTAX: Final[Mapping[TopicDialect, Syntax]] = {
    "amqp": Syntax(".", "word", "*", "#"),
    "mqtt": Syntax("/", "level", "+", "#"),
    "nats": Syntax(".", "token", "*", ">"),
}

#: Text that a level of an MQTT topic and a token of a NATS subject must not contain. In NATS `*` and `>` are wildcards only as
#: whole tokens.
_RESERVED: Final[Mapping[TopicDialect, re.Pattern[str]]] = {
    "mqtt": re.compile("[+#\0]"),
    "nats": re.compile(r"[\0 \t\n\f\r]|(?:^|\.)[*>](?:\.|\Z)"),
}


@final
@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A topic pattern: its words, and its dialect, which defines how topics are split. The `>` of NATS is `ONE` and `MANY`."""

    words: tuple[Word, ...]
    dialect: TopicDialect = "amqp"

    def literal(self) -> str | None:
        """Return the only topic that the pattern matches, or None if it has a wildcard."""
        literal = [word for word in self.words if isinstance(word, str)]
        return SYNTAX[self.dialect].separator.join(literal) if len(literal) == len(self.words) else None

    def __str__(self) -> str:
        """Return the pattern as users write it, with its dialect unless that is AMQP."""
        syntax = SYNTAX[self.dialect]
        written = self.words
        if self.dialect == "nats" and written[-1] is Wild.MANY:
            written = (*written[:-2], Wild.MANY)
        symbols = {Wild.ONE: syntax.one, Wild.MANY: syntax.many}
        text = syntax.separator.join(word if isinstance(word, str) else symbols[word] for word in written)
        return text if self.dialect == "amqp" else f"{text} ({self.dialect})"


def parse_topic(text: str, dialect: TopicDialect = "amqp", place: str = "topic") -> TopicPattern:
    """Return the topic pattern in a text.

    Raises:
        SubscriptionError: the pattern is not a string, is not encodable in UTF-8, has too many words, or is invalid in the
            dialect.
    """
    if not isinstance(text, str):
        raise SubscriptionError(f"a topic pattern is a string, not {type(text).__name__}", place=place)
    if not is_unicode(text):
        raise SubscriptionError("a lone surrogate in the topic pattern", place=place)
    if (reason := _fault(text, dialect)) is not None:
        raise SubscriptionError(reason, place=place)
    syntax = SYNTAX[dialect]
    words: list[Word] = []
    for word in split_words(text, dialect):
        if word == syntax.many:
            words += [Wild.ONE, Wild.MANY] if dialect == "nats" else [Wild.MANY]
        else:
            words.append(Wild.ONE if word == syntax.one else word)
    return TopicPattern(tuple(words), dialect)


def split_words(text: str, dialect: TopicDialect = "amqp") -> tuple[str, ...]:
    """Return the words of a pattern or a topic. Words may be empty, as in RabbitMQ (`a.` has two); the empty text has none."""
    return tuple(text.split(SYNTAX[dialect].separator)) if text else ()


def count_words(text: str, dialect: TopicDialect = "amqp") -> int:
    """Return the number of words that `split_words` would return."""
    return text.count(SYNTAX[dialect].separator) + 1 if text else 0


#: A small cache is enough, because all subscriptions check the topic of the same event, in each dialect.
@lru_cache(maxsize=3)
def is_topic(text: str, dialect: TopicDialect) -> bool:
    """Return whether a text is a topic in a dialect; patterns of the dialect match only topics."""
    if dialect == "amqp":
        return True
    return bool(text) and not _RESERVED[dialect].search(text) and (dialect == "mqtt" or all(split_words(text, dialect)))


def is_hidden(topic: str, dialect: TopicDialect) -> bool:
    """Return whether patterns that begin with a wildcard never match a topic, whatever its other words."""
    return dialect == "mqtt" and topic.startswith("$")


def _fault(text: str, dialect: TopicDialect) -> str | None:
    """Return why a text is not a topic pattern."""
    syntax = SYNTAX[dialect]
    count = count_words(text, dialect)
    if count > MAX_WORDS:
        return f"a topic pattern of {count} {syntax.word}s; at most {MAX_WORDS} are allowed"
    if dialect == "amqp":
        return None
    if not count:
        return f"an empty topic pattern; expected at least one {syntax.word}"
    if dialect == "mqtt" and text.startswith("$share/"):
        return "a shared subscription; expected the topic filter that follows '$share/NAME/'"
    for number, word in enumerate(split_words(text, dialect), 1):
        reason = _fault_of_word(word, dialect)
        if word == syntax.many and number < count:
            reason = f"expected '{syntax.many}' to be the last {syntax.word}"
        if reason is not None:
            return f"{syntax.word} {number}: {reason}"
    return None


def _fault_of_word(word: str, dialect: TopicDialect) -> str | None:
    syntax = SYNTAX[dialect]
    if word in (syntax.one, syntax.many):
        return None
    if dialect == "nats" and not word:
        return "expected at least one character"
    for wildcard in (syntax.one, syntax.many):
        if dialect == "mqtt" and wildcard in word:
            return f"expected '{wildcard}' to be a whole {syntax.word}"
    if "\0" in word:
        return "expected no U+0000"
    return "expected no white space" if _RESERVED[dialect].search(word) else None
