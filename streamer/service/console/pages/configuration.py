"""The current configuration with its origins, and the changes that another text would make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from streamer.service.api.calls import YAML
from streamer.service.console.client import Refused
from streamer.service.console.visit import Sent, Shown, View, Visit

_DEFAULT: Final = ["default"]


async def show(visit: Visit) -> Shown:
    """Show the current configuration."""
    return Shown("configuration.html", await _values(visit, visit.query.get("show") == "all"))


async def act(visit: Visit) -> Shown | Sent:
    """Check a text, or reload the configuration."""
    if visit.form.get("do") == "reload":
        return await _reload(visit)
    # A browser ends lines with CR LF, although the user typed one newline.
    text = visit.form.get("text", "").replace("\r\n", "\n")
    checked = (await visit.api.send("POST", "/v1/config:check", text.encode(), headers={"Content-Type": YAML})).json
    return Shown("configuration.html", {**await _values(visit, is_all=False), "checked": checked, "text": text})


async def _reload(visit: Visit) -> Shown | Sent:
    try:
        answer = (await visit.api.send("POST", "/v1/reload")).json
    except Refused as refused:
        if refused.kind != "configuration":
            raise
        return Shown("configuration.html", {**await _values(visit, is_all=False), "refused": refused.errors}, 422)
    changed = len(answer["changed"])
    return Sent("/console/configuration", f"It was accepted: {changed} {'field' if changed == 1 else 'fields'} changed.")


async def _values(visit: Visit, is_all: bool) -> Mapping[str, Any]:
    config = await visit.api.get("/v1/config")
    fields = [field for field in config["fields"] if is_all or field["from"] != _DEFAULT]
    return {
        "name": config["name"],
        "sections": _sections(fields),
        "is_all": is_all,
        "hidden": len(config["fields"]) - len(fields),
        "checked": None,
        "refused": None,
        "text": config["text"],
    }


def _sections(fields: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    return [(name, list(each)) for name, each in groupby(fields, lambda field: str(field["place"]).partition(".")[0])]


CONFIGURATION: Final = View(path="configuration", title="Configuration", scope="admin", show=show, act=act)
