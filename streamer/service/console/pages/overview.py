"""The state of the service: problems first, then the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from streamer.service.console.client import Refused, part
from streamer.service.console.text import number, plain, size, span
from streamer.service.console.visit import Sent, Shown, View, Visit

#: A source is reported if it lags by more seconds than this.
_BEHIND: Final = 60.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem in a sentence, with its solution.

    Attributes:
        kind: `bad` if data is lost or processing stopped, `warn` if that may happen.
        do: the action of the form that solves it, and its button; None if the console cannot solve it.
        name: the object of the action.
    """

    kind: Literal["bad", "warn"]
    what: str
    advice: str
    do: tuple[str, str] | None = None
    name: str = ""


_WHOLE: Final[Mapping[str, tuple[str, str]]] = {
    "pipeline_failed": (
        "The pipeline has ended with an error, and no longer reads events.",
        "The log has the reason. Fix it and start the service again: it continues at the same place.",
    ),
    "store_gone": (
        "The store was deleted or replaced while the service runs, so it confirms no position.",
        "The log names the missing file or table. Put it back, or restore a backup with `streamer store restore`, and start the "
        "service again.",
    ),
    "store_not_writable": (
        "The store cannot be written, so the service confirms no position.",
        "Check whether the disk of service.data_dir is full or read-only. The service continues by itself once it can write.",
    ),
    "stalled": (
        "The service is stalled: sinks do not confirm their messages.",
        "Look at the sinks below. The sources wait, without loss.",
    ),
}


async def show(visit: Visit) -> Shown:
    """Show the state of the service."""
    status = await visit.api.get("/v1/status")
    return Shown("overview.html", {"status": status, "troubles": list(troubles(status))})


async def act(visit: Visit) -> Sent:
    """Enable a sink again, or delete the messages of a removed one."""
    name, what = visit.form.get("name", ""), visit.form.get("do", "")
    if what not in ("enable", "forget"):
        raise Refused(400, {"title": "Unknown action", "detail": "expected enable or forget"})
    await visit.api.send("POST", f"/v1/sinks/{part(name)}:{what}")
    done = "is enabled again" if what == "enable" else "has no more messages"
    return Sent("/console/", f"{plain(name)} {done}.")


def troubles(status: Mapping[str, Any]) -> Iterator[Trouble]:
    """Yield the problems, the worst first."""
    every = [*_of_all(status), *_of_sinks(status), *_of_sources(status)]
    yield from sorted(every, key=lambda each: each.kind != "bad")


def _of_all(status: Mapping[str, Any]) -> Iterator[Trouble]:
    if (reason := status["reason"]) is not None:
        what, advice = _WHOLE.get(reason, (f"The service is not ready: {plain(reason)}.", "See the log."))
        yield Trouble(kind="bad", what=what, advice=advice)
    if not status["reload"]["good"]:
        yield Trouble(
            kind="warn",
            what="The last reload was refused; the previous configuration stays in use.",
            advice="Its errors are listed below. Fix them, and reload again.",
        )
    if count := status["dead_letters"]:
        yield Trouble(
            kind="warn",
            what=f"{number(count)} dead {'letter waits' if count == 1 else 'letters wait'}.",
            advice="They are unreadable events and undeliverable messages. Check the reasons, then replay or drop them.",
        )
    if not status["subscriptions"]:
        yield Trouble(
            kind="warn", what="There are no subscriptions, so no event matches.", advice="Add some in a file or with the API."
        )


def _of_sinks(status: Mapping[str, Any]) -> Iterator[Trouble]:
    for sink in status["sinks"]:
        name, spool = plain(sink["name"], 60), sink.get("spool", {"messages": 0, "oldest_s": 0.0, "bytes": 0})
        waits = f"{number(spool['messages'])} messages wait, the oldest for {span(spool['oldest_s'])}"
        match sink["state"]:
            case "disabled":
                yield Trouble(
                    kind="bad",
                    what=f"The endpoint of {name} answered 410, and is disabled: {waits}.",
                    advice="Contact its operator. Once it accepts messages again, enable it.",
                    do=("enable", "Enable it"),
                    name=sink["name"],
                )
            case "down":
                yield Trouble(
                    kind="bad",
                    what=f"Deliveries to {name} fail: {waits}.",
                    advice="Check whether its endpoint answers. Its messages are retried by themselves, without loss.",
                )
            case "no_room":
                yield Trouble(
                    kind="bad",
                    what=f"Failed messages of {name} have no room among the dead letters: {waits}.",
                    advice="Replay or drop dead letters, or raise delivery.dead_letter_bytes.",
                )
            case "removed":
                yield Trouble(
                    kind="warn",
                    what=f"{name} was removed from the configuration, and {number(spool['messages'])} messages are kept for it.",
                    advice="Add it again to deliver them, or delete them for good.",
                    do=("forget", f"Delete {number(spool['messages'])} messages"),
                    name=sink["name"],
                )


def _of_sources(status: Mapping[str, Any]) -> Iterator[Trouble]:
    for source in status["sources"]:
        if source["state"] == "away":
            yield Trouble(
                kind="bad",
                what=f"The server of {plain(source['name'], 60)} does not answer, so it reads no events.",
                advice="Check the server, its address and the password. The service connects again by itself, without loss.",
            )
        lag = source["lag"]
        if lag is not None and lag["positions"] and lag["seconds"] >= _BEHIND:
            amount = size(lag["positions"]) if lag["unit"] == "bytes" else f"{number(lag['positions'])} {lag['unit']}"
            yield Trouble(
                kind="warn",
                what=f"{plain(source['name'], 60)} is behind by {amount}, for {span(lag['seconds'])}.",
                advice="If its rate equals the rate of new events, it does not catch up: look at sinks and matching.threads.",
            )


OVERVIEW: Final = View(path="", title="Overview", scope="admin", show=show, act=act)
