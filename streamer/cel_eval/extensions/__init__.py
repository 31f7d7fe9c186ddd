"""CEL's extension libraries, as cel-go documents them: a file for each, with a table of its functions.

A name with a dot is a function of a namespace, `math.abs(x)`; any other is called on a value, `x.trim()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamer.cel_eval.extensions import encoders, lists, numbers, optionals, sets, strings
from streamer.cel_eval.extensions.rows import Row, function

EXTENSIONS: Final[Mapping[str, Row]] = {
    **strings.ROWS,
    **encoders.ROWS,
    **numbers.ROWS,
    **sets.ROWS,
    **lists.ROWS,
    **optionals.ROWS,
}

IMPLEMENTATIONS: Final = {name: function(name, row) for name, row in EXTENSIONS.items()}
