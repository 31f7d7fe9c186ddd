"""The topics of the reference backend: a trie of words.

The patterns form a trie of words, in which wildcards are ordinary words:

    a.*.c, a.#, a.b          (root) ─ a ─┬─ * ── c ■
                                         ├─ # ■          ↺ any word
                                         └─ b ■

A key is read word by word, with the set of nodes that it has reached. From each node, the next word leads to the child with this
word and to the child `*`; a `#` also stays. If a node has a child `#`, that is reached at once, because `#` may match zero words.

Each step of a change leaves a correct trie, except for unused nodes, so a change may stop at any step, also because of a fork.

Invariant: the set contains each node once, independent of the number of ways to it; a search with backtracking would take time
exponential in the number of `#`. If a walk reaches too many nodes (`#.a.#.a…` keeps all of its nodes), it stops, and each pattern
is compared with the key separately. So a key costs at most about 100 µs for each pattern.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar, final

from streamer.locks import Lock
from streamer.model import TopicDialect
from streamer.reference.topics import is_in
from streamer.subscriptions.topics import TopicPattern, Wild, Word, is_hidden, is_topic, parse_topic, split_words

X = TypeVar("X", bound=Hashable)

#: The number of nodes that a key may reach before the walk stops: a fixed part, and a part for each pattern.
_FEWEST_STEPS: Final = 1_000
_STEPS: Final = 10


class _Node(Generic[X]):
    __slots__ = ("below", "bound", "stays")

    def __init__(self, stays: bool) -> None:
        self.below: dict[Word, _Node[X]] = {}
        self.bound: dict[X, None] = {}
        self.stays = stays  # whether it is a `#`, which matches any number of words


@final
class TopicTrie(Generic[X]):
    """Topic patterns, with the names that are bound to them."""

    def __init__(self, dialect: TopicDialect = "amqp") -> None:
        self._dialect: Final[TopicDialect] = dialect
        self._lock = Lock()
        self._root: _Node[X] = _Node(stays=False)
        self._ends: dict[TopicPattern, _Node[X]] = {}
        self._pruned = 0

    def add(self, x: X, pattern: str) -> bool:
        """Bind a name to a pattern, and return whether the binding is new."""
        parsed = parse_topic(pattern, self._dialect)
        is_new = False
        with self._lock:
            while True:
                pruned = self._pruned
                node = self._root
                for word in parsed.words:
                    if word not in node.below:
                        node.below[word] = _Node(stays=word is Wild.MANY)
                    node = node.below[word]
                # First, because a bound pattern is not bound a second time.
                self._ends[parsed] = node
                if x not in node.bound:
                    node.bound[x] = None
                    is_new = True
                # A signal handler in this thread may have unbound another name, and removed nodes that this path used.
                if self._pruned == pruned:
                    return is_new

    def discard(self, x: X, pattern: str) -> bool:
        """Unbind a name from a pattern, and return whether it was bound."""
        parsed = parse_topic(pattern, self._dialect)
        with self._lock:
            trail = [self._root]
            for word in parsed.words:
                below = trail[-1].below.get(word)
                if below is None:
                    return False
                trail.append(below)
            if x not in trail[-1].bound:
                return False
            trail[-1].bound.pop(x, None)
            if not trail[-1].bound:
                self._ends.pop(parsed, None)
                self._pruned += 1
            for word, node, above in zip(reversed(parsed.words), reversed(trail), reversed(trail[:-1]), strict=False):
                # Python runs no signal handler from here to the end of the loop's body.
                if node.bound or node.below or word not in above.below or above.below[word] is not node:
                    break
                self._pruned += 1
                del above.below[word]
            return True

    def match_topic(self, key: str) -> list[X]:
        """Return the names that are bound to a pattern that matches the key, each once."""
        if not is_topic(key, self._dialect):
            return []
        with self._lock:
            nodes = self._walk(key)
            if nodes is None:
                nodes = [node for pattern, node in self._ends.copy().items() if is_in(pattern, key)]
            bound: dict[X, None] = {}
            for node in nodes:
                bound.update(node.bound.copy())
            return list(bound)

    def _walk(self, key: str) -> Iterable[_Node[X]] | None:
        """Return the nodes at which a key ends, or None if that takes too many steps."""
        steps = _FEWEST_STEPS + _STEPS * len(self._ends)
        # Wildcards do not match the first word of a hidden key.
        hidden = is_hidden(key, self._dialect)
        nodes = {self._root} if hidden else _with_any_words({self._root})
        for word in split_words(key, self._dialect):
            steps -= len(nodes)
            if steps < 0:
                return None
            reached = {node for node in nodes if node.stays}
            for node in nodes:
                for symbol in (word,) if hidden else (word, Wild.ONE):
                    below = node.below.get(symbol)
                    if below is not None:
                        reached.add(below)
            nodes, hidden = _with_any_words(reached), False
            if not nodes:
                break
        return nodes


def _with_any_words(nodes: set[_Node[X]]) -> set[_Node[X]]:
    """Add the nodes that are reached without a word, through `#`, and return the set."""
    pending = list(nodes)
    while pending:
        below = pending.pop().below.get(Wild.MANY)
        if below is not None and below not in nodes:
            nodes.add(below)
            pending.append(below)
    return nodes
