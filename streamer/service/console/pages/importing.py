"""Many subscriptions at once, one a line: checked, or written, with the errors of each line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from streamer.service.api.calls import LINES
from streamer.service.console.client import Refused
from streamer.service.console.visit import Shown, View, Visit

#: The most lines whose errors are shown.
_MOST: Final = 200


async def show(visit: Visit) -> Shown:
    """Show the form."""
    return _page("", is_partly=False)


async def act(visit: Visit) -> Shown:
    """Check the lines, or write them, and show the errors."""
    text, is_partly = visit.form.get("text", "").replace("\r\n", "\n"), "partly" in visit.form
    body, sent = text.encode(errors="surrogatepass"), {"Content-Type": LINES}
    try:
        if visit.form.get("do") == "check":
            report = (await visit.api.send("POST", "/v1/lint", body, headers=sent)).json
            return _page(text, is_partly=is_partly, checked=True, wrong=report["errors"], findings=report["findings"])
        query = {"partly": is_partly}
        reply = await visit.api.send("POST", "/v1/subscriptions:import", body, query=query, headers=sent)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(
            text,
            is_partly=is_partly,
            refused=refused.detail or refused.title,
            is_unsure=refused.status >= 500,
            wrong=refused.errors,
        )
    results = [json.loads(line) for line in reply.body.splitlines()]
    wrong = [{"line": each["line"], **each["error"]} for each in results if each["result"] == "refused"]
    return _page(text if wrong else "", is_partly=is_partly, done=Counter(each["result"] for each in results), wrong=wrong)


def _page(text: str, *, is_partly: bool, **values: Any) -> Shown:
    context: dict[str, Any] = {
        "wrong": [],
        "findings": [],
        "refused": "",
        "is_unsure": False,
        "done": None,
        "checked": False,
        **values,
    }
    for name in ("wrong", "findings"):
        all_of_them: list[Mapping[str, Any]] = context[name]
        context |= {name: all_of_them[:_MOST], f"more_{name}": max(0, len(all_of_them) - _MOST)}
    status = 422 if context["refused"] else 200
    return Shown("importing.html", {"text": text, "is_partly": is_partly, **context}, status)


IMPORTING: Final = View(
    path="import", title="Import subscriptions", scope="write", show=show, act=act, is_listed=False, within="subscriptions"
)
