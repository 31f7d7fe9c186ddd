"""Match topic patterns against routing keys, word by word (semantics.md section 6).

A set of positions in the key, as the bits of an integer, moves through the pattern: bit j means that the words of the pattern
so far match the first j words of the key.

    pattern a.#.c, key a.b.c      0001 ─a→ 0010 ─#→ 1110 ─c→ 1000      bit 3 of 3 words: a match

Cost: one pass over the key, and for each word of the pattern one operation on integers with one bit per word of the key. A
pattern with `#` is charged that cost. A pattern without `#` matches only a key with the same number of words.
"""

from __future__ import annotations

from streamer.reference.searches import may_look
from streamer.subscriptions.topics import TopicPattern, Wild, Word, count_words, is_hidden, is_topic, split_words


def topic_matches(pattern: TopicPattern, key: str | None) -> bool:
    """Return whether *pattern* matches the routing *key*. An event without a topic has the key None, which never matches.

    The cost is charged to the budget of the event; a pattern beyond the budget does not match.
    """
    if key is None or not _may_match(pattern, key):
        return False
    symbols, words = pattern.words, count_words(key, pattern.dialect)
    is_looked_at = may_look(len(symbols), words) if Wild.MANY in symbols else len(symbols) == words
    return is_looked_at and _words_match(symbols, split_words(key, pattern.dialect))


def is_in(pattern: TopicPattern, key: str) -> bool:
    """Return whether *pattern* matches *key*, without a budget."""
    return _may_match(pattern, key) and _words_match(pattern.words, split_words(key, pattern.dialect))


def _may_match(pattern: TopicPattern, key: str) -> bool:
    if is_hidden(key, pattern.dialect) and not isinstance(pattern.words[0], str):
        return False
    return is_topic(key, pattern.dialect)


def _words_match(symbols: tuple[Word, ...], words: tuple[str, ...]) -> bool:
    """Return whether a pattern matches a key, both as words, without a budget."""
    places = _places(words, set(symbols))
    everywhere = (1 << (len(words) + 1)) - 1
    matched = 1
    for symbol in symbols:
        if symbol is Wild.MANY:
            # Set the lowest bit of the set and all bits above it.
            matched = -(matched & -matched) & everywhere
        elif symbol is Wild.ONE:
            matched = (matched << 1) & everywhere
        else:
            matched = (matched & places.get(symbol, 0)) << 1
        if not matched:
            return False
    return bool(matched >> len(words))


def _places(words: tuple[str, ...], wanted: set[Word]) -> dict[str, int]:
    """Return, for each wanted word that the key has, its positions in the key as bits."""
    bits: dict[str, bytearray] = {}
    for at, word in enumerate(words):
        if word in wanted:
            if word not in bits:
                bits[word] = bytearray(len(words) // 8 + 1)
            bits[word][at // 8] |= 1 << at % 8
    return {word: int.from_bytes(places, "little") for word, places in bits.items()}
