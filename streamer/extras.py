"""What a plain installation leaves out, and what is said where it is wanted and not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DISTRIBUTION: Final = "streamer-engine"

#: The modules that each extra brings (pyproject.toml).
MODULES: Final = {
    "arrow": ("pyarrow",),
    "kafka": ("confluent_kafka",),
    "plot": ("matplotlib",),
    "portable": ("bitarray", "celpy", "pybloom_live", "rpds"),
    "postgres": ("psycopg",),
    "registry": ("fastavro", "google", "grpc_tools"),
    "service": ("httptools", "jinja2", "starlette", "uvicorn"),
    "spark": ("pyspark", "pyarrow", "bitarray", "pybloom_live", "rich", "typer"),
    "zstd": ("zstandard",),
}


def missing(who: str, extra: str) -> str:
    """Return what to say where an extra is not there.

    Args:
        who: what needs what, as `drawing needs Matplotlib`.
        extra: a name in `MODULES`.
    """
    return f"{who}: pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def needed(who: str, extra: str) -> Iterator[None]:
    """Import what an extra brings; where it is not there, say so in the words of `missing`.

    Raises:
        ModuleNotFoundError: it is not there. One of another module is left as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES[extra]:
            raise
        raise ModuleNotFoundError(missing(who, extra), name=error.name) from error
