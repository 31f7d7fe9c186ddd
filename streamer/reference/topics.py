"""Match topic patterns against routing keys, word by word (semantics.md section 6). Costs the product of their words."""

from __future__ import annotations

from streamer.subscriptions.topics import ANY_WORDS, ONE_WORD, TopicPattern, split_words


def topic_matches(pattern: TopicPattern, key: str | None) -> bool:
    """Tell whether *pattern* matches the routing *key*; an event without a topic has None, which nothing matches."""
    if key is None:
        return False
    words = split_words(key)
    # matched[j]: the part of the pattern read so far matches the first j words.
    matched = [True] + [False] * len(words)
    for symbol in pattern.words:
        if symbol == ANY_WORDS:
            for j in range(len(words)):
                matched[j + 1] |= matched[j]
        else:
            matched = [False] + [matched[j] and symbol in (ONE_WORD, word) for j, word in enumerate(words)]
    return matched[-1]
