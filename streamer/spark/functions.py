"""Python functions that CEL expressions call (`Engine(cel_functions=...)`), and their transport to the workers.

```
driver    {"is_vip": is_vip} ─► cloudpickle, as PySpark does with a UDF ─► bytes in the plan
workers   bytes ─► {"is_vip": is_vip}, once a process ─► the engine that evaluates portable expressions
```

Functions of a module that workers can import travel as its name, others (of a notebook, lambdas) as their code.

Invariant: a function that cannot travel is refused on the driver, before any task starts. Equal bytes are equal functions; a
rewritten function is another one, so that workers never continue with the old one.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, final

from streamer.core.snapshot import read_head
from streamer.engine.engine import Engine
from streamer.errors import ConfigError


@final
class Carried(Mapping[str, Callable[..., Any]]):
    """Functions by name, which are unpickled on first use.

    Attributes:
        key: identifies them.
    """

    __slots__ = ("_functions", "_pickled", "key")

    def __init__(self, pickled: bytes) -> None:
        self._pickled: Final = pickled
        self.key: Final = hashlib.sha256(pickled).hexdigest()
        self._functions: dict[str, Callable[..., Any]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Carried, (self._pickled,)

    def _read(self) -> dict[str, Callable[..., Any]]:
        if self._functions is None:
            # Unpickling a function by value imports PySpark's cloudpickle itself; every worker has it.
            self._functions = pickle.loads(self._pickled)
        return self._functions

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def carried(functions: Mapping[str, Callable[..., Any]] | None) -> Carried | None:
    """Make functions ready to travel; None for none.

    Raises:
        ConfigError: one that cannot be pickled.
    """
    if not functions:
        return None
    if isinstance(functions, Carried):
        return functions
    from pyspark import cloudpickle

    dumps: Any = cloudpickle.dumps

    for name, function in functions.items():
        try:
            dumps(function)
        except Exception as error:
            reason = f"it cannot travel to Spark's workers: {type(error).__name__}: {error}"
            raise ConfigError(reason, place=f"cel_functions[{name!r}]") from error
    return Carried(dumps(dict(functions)))


def check(path: str | os.PathLike[str], functions: Carried | None) -> None:
    """Compile the cel-python expressions of a snapshot, so that a missing function is found here and not in every task.

    Raises:
        SnapshotError: a function is missing, or is called with a wrong number of arguments.
    """
    if read_head(path).is_portable:
        Engine.load(path, cel_functions=functions or {}).bloom.stop()
