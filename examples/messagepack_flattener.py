"""Match MessagePack events: a flattener for `streamer.automaton.Quamina`.

pip install msgspec
python examples/messagepack_flattener.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from streamer.automaton import Leaf, Quamina
from streamer.automaton.flattener import leaves
from streamer.errors import EventCode, EventError


class MessagePackFlattener:
    """Reads a MessagePack map. Its binary and extension types are no leaves that a pattern could match, and are refused."""

    def flatten(self, event: bytes) -> Iterator[Leaf]:
        """Return the leaves of a MessagePack map.

        Raises:
            EventError: not MessagePack, or not a map with strings as keys.
        """
        try:
            value: Any = msgspec.msgpack.decode(event, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise EventError(EventCode.BAD_VALUE, f"not a MessagePack map: {error}") from None
        # MessagePack has the shape of JSON, so its leaves are those of the same maps, arrays and scalars.
        return leaves(value)


def main() -> None:
    """Show that a pattern matches a MessagePack event, arrays included."""
    quamina: Quamina[str] = Quamina(flattener=MessagePackFlattener())
    quamina.add_pattern("hot", {"sensors": {"kind": ["thermometer"], "celsius": [{"numeric": [">", 30]}]}})
    event = {"sensors": [{"kind": "thermometer", "celsius": 21.5}, {"kind": "thermometer", "celsius": 35}]}
    print(quamina.matches_for_event(msgspec.msgpack.encode(event)))


if __name__ == "__main__":
    main()
