"""The command `streamer plot`, and the drawing for `streamer stats`: arguments in, a picture out."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamer.extras import missing
from streamer.files import check_target
from streamer.terminal import EXIT_CODES, fail, note

if TYPE_CHECKING:
    from streamer.metrics.history import Sample

#: The formats that Matplotlib draws without further packages.
ENDINGS = (".png", ".svg", ".pdf")


@click.command(name="plot", short_help="Draw how the filters did over time.", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@click.argument("history", metavar="HISTORY", help="Samples, as `stats --history` writes them.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path), help="The picture: .png, .svg, .pdf.")
def plot(history: str, file: Path) -> None:
    """Draw the history of the filters: passed and stopped events, keys, and rebuilds with their reasons."""
    from streamer.metrics.history import read_history

    check_plot(file)
    try:
        samples = read_history(history)
    except ValueError as error:
        fail(f"{history}: {error}")
    except OSError as error:
        fail(f"{history}: {error.strerror or error}")
    draw(samples, file)


def check_plot(file: Path) -> None:
    """Report at once any reason for which drawing would fail at the end, and end the program."""
    if file.suffix.lower() not in ENDINGS:
        fail(f"{file}: expected a name that ends in {', '.join(ENDINGS)}")
    check_writable(file)
    if importlib.util.find_spec("matplotlib") is None:
        fail(missing("drawing needs Matplotlib", "plot"))


def check_writable(file: Path) -> None:
    """Report at once if a file could not be written at the end, and end the program."""
    try:
        check_target(file)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def draw(samples: Sequence[Sample], file: Path) -> None:
    """Draw, or print an error and end the program."""
    from streamer.metrics.plot import plot as plot_samples

    try:
        with warnings.catch_warnings():
            # The font lacks the letters of a name: the picture shows boxes, so a warning is unnecessary.
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            plot_samples(samples, file)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    note(f"drawn: {file}")
