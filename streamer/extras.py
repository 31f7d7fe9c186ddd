"""The optional dependencies, and the error that names the extra to install if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DISTRIBUTION: Final = "streamer-engine"

#: The modules that each extra brings (pyproject.toml).
MODULES: Final = {
    "arrow": ("pyarrow",),
    "import": ("sqlglot",),
    "kafka": ("confluent_kafka",),
    "plot": ("matplotlib",),
    "portable": ("bitarray", "celpy", "pybloom_live", "rpds"),
    "postgres": ("psycopg",),
    "registry": ("fastavro", "google", "grpc_tools"),
    "rights": ("cryptography", "jwt"),
    "service": ("httptools", "jinja2", "starlette", "uvicorn"),
    "spark": ("pyspark", "pyarrow", "bitarray", "pybloom_live", "rich", "typer"),
    "zstd": ("zstandard",),
}


def missing(who: str, extra: str) -> str:
    """Return the error message for a missing extra, with the command that installs it.

    Args:
        who: the feature and the package that it needs, such as `drawing needs Matplotlib`.
        extra: a name in `MODULES`.
    """
    return f"{who}: pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def needed(who: str, extra: str) -> Iterator[None]:
    """Import modules of an extra in a `with` block; if one is missing, raise an error with the message of `missing`.

    Raises:
        ModuleNotFoundError: a module is missing. If it is not of this extra, the original error passes through.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES[extra]:
            raise
        raise ModuleNotFoundError(missing(who, extra), name=error.name) from error
