"""The command `streamer` from its first moment on: Ctrl-C ends it quietly also while it is still importing.

It stands outside of the package because importing anything of the package imports the package first.
"""

import os
import signal
import sys
from types import FrameType


def _end(_signal: int, _frame: FrameType | None) -> None:
    # There is nothing to clean up yet; an exception could be swallowed by whatever is being imported.
    os._exit(130)


def main() -> None:
    """Run the command line."""
    # A shell starts what it runs in the background with Ctrl-C ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        from streamer.cli.main import main as run
    except Exception as error:
        # Importing the package is what failed, so that it cannot be asked for its errors; but they were imported first.
        errors = sys.modules.get("streamer.errors")
        if errors is None or not isinstance(error, errors.BackendError):
            raise
        # The exit code of wrong usage (streamer.terminal).
        print(f"streamer: {error}", file=sys.stderr)
        sys.exit(2)
    run()
