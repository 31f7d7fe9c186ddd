"""A driver of Spark that is killed at once with its JVM and its workers, again and again, before it may run to its end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

#: Seconds until a driver has begun to write anything.
_PATIENCE: Final = 600


def kill_again_and_again(
    command: Sequence[str],
    progress: Callable[[], int],
    log: Path,
    *,
    kills: int,
    steps: Sequence[int],
    within: float,
    pause: float = 0.001,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, int]:
    """Kill a job so often, run it to its end, and return its exit code and the seed of what was chance.

    Args:
        progress: how much is written, as a number that grows.
        log: takes what all runs say.
        steps: after how much of progress it is killed, one of them each time.
        within: at a moment of so many seconds after that.
        pause: seconds from one look at progress to the next.
    """
    seed = random.randrange(2**32)
    rng, killed = random.Random(seed), []
    while True:
        before, wanted = progress(), rng.choice(steps)
        with log.open("ab") as told:
            running = subprocess.Popen(command, stdout=told, stderr=told, start_new_session=True, env=environment)
        try:
            deadline = time.monotonic() + _PATIENCE
            while len(killed) < kills and progress() - before < wanted and running.poll() is None:
                assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
                time.sleep(pause)
            if len(killed) == kills or running.poll() is not None:
                running.wait(600)
                break
            time.sleep(rng.uniform(0, within))
            killed.append(before)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
    assert len(killed) == kills, (seed, killed, log.read_text()[-3000:])
    # It got on between them.
    assert killed[-1] > killed[0], (seed, killed)
    return running.returncode, seed


def written_by_gateway(out: Path) -> int:
    """Tell how far a stream has come that writes a folder for each micro-batch: one begun, and one that is whole, count."""
    return len([*out.glob("batch_id=*"), *out.glob("batch_id=*/_SUCCESS")])
