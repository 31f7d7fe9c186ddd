"""Names for patterns and topics: any hashable value."""

from __future__ import annotations


def check_name(x: object) -> None:
    """Check that a name can be looked up.

    Raises:
        TypeError: the name is not hashable.
    """
    try:
        hash(x)
    except TypeError:
        raise TypeError(f"a name must be hashable, which {type(x).__name__} is not") from None
