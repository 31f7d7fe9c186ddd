"""What patterns and topics are bound to: any hashable value."""

from __future__ import annotations


def check_name(x: object) -> None:
    """Refuse a name that cannot be looked up.

    Raises:
        TypeError: it is not hashable.
    """
    try:
        hash(x)
    except TypeError:
        raise TypeError(f"a name must be hashable, which {type(x).__name__} is not") from None
